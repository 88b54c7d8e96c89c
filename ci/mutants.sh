#!/usr/bin/env bash
# Checks that a test fails if somebody breaks the arithmetic of shares. ci/mutants.sh [FILE...] changes one operator, constant or
# function at a time, in the pure functions and in the code of the region's words. After each change it runs the package's own
# tests. It takes an hour on two processors. Prints each change that no test notices, and fails if there is one.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

if ! cargo mutants --version >/dev/null 2>&1; then
    skip "whether tests see broken arithmetic: there is no cargo-mutants" "cargo install cargo-mutants --locked"
    exit 0
fi
files=("$@")
[ $# -gt 0 ] || files=(src/policy/src/compute/{,*/}*.rs src/region/src/compute/*.rs src/region/src/{sync/futex,memory/shared_memory,handle/member_time,handle/region_time}.rs)

# Changes that no test can notice, because the result stays the same or nearly the same.
same=(
    # If both sides of the comparison are equal, both branches give the same result.
    'replace > with >= in (done|wakes|beside|before|Lease::lacks|Run::waited|Windows::close|nanoseconds)$'
    'replace < with <= in (running|before|two|least|Lease::share|Union::cover|Union::is_covered|DeviceTime<SLOTS>::base)$'
    # The two values have no bits in common.
    'replace \| with \^ in (pair|Overlap::word|Measured::word|nanoseconds)$'
    # In no test is a process late by exactly the nanosecond that is allowed.
    'replace > with >= in ProcessTime::waits$'
    # This code is a part of the models, which `ci/loom.sh` builds. That build notices the change.
    'replace \|\| with && in Place::read$'
    # The result is another mixing of bits. It is as good in everything that tests can know about it.
    'in (Key::kernel|mixed)$'
    # The result differs by one nanosecond, and clocks resolve half a microsecond.
    'replace > with >= in Offset::(recorded|fit)$'
    # This finds a count that another process has overwritten: a reader is ahead of it by a whole round, or by one place more.
    'replace > with >= in Reader::read$'
)
for pattern in "${same[@]}"; do excluded+=(--exclude-re "$pattern"); done
for file in "${files[@]}"; do chosen+=(--file "$file"); done

mutate() { # package; how its tests are run
    CARGO_PROFILE_DEV_DEBUG=0 cargo mutants --package "$1" "${chosen[@]}" "${excluded[@]}" --jobs "$(nproc)" --timeout 60 \
        --no-shuffle --output "build/mutants/$1" -- "${@:2}"
}
mkdir -p build/mutants
failed=0
mutate gpuslice-policy --lib || failed=1 # its other tests simulate whole machines, which would take a minute for each change
mutate gpuslice-region || failed=1
exit "$failed"
