#!/usr/bin/env bash
# Checks that a test fails if the arithmetic of shares is broken. ci/mutants.sh [FILE...] changes one operator, constant or
# function at a time in the pure functions and in the region's words, and runs their packages' own tests. It takes an hour on two
# processors. Prints each change that no test notices, and fails if there is one.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

if ! cargo mutants --version >/dev/null 2>&1; then
    skip "whether tests see broken arithmetic: there is no cargo-mutants" "cargo install cargo-mutants --locked"
    exit 0
fi
files=("$@")
[ $# -gt 0 ] || files=(src/policy/src/compute/{,*/}*.rs src/region/src/compute/*.rs src/region/src/{sync/futex,memory/shared_memory,handle/member_time,handle/region_time}.rs)

# Changes that no test can notice, because they change no result.
same=(
    # Both sides of the comparison have the same result if they are equal.
    'replace > with >= in (done|wakes|beside|before|Lease::lacks|Run::waited|Windows::close|nanoseconds)$'
    'replace < with <= in (running|before|two|least|Lease::share|Union::cover|Union::is_covered|DeviceTime<SLOTS>::base)$'
    # Bits that do not overlap.
    'replace \| with \^ in (pair|Overlap::word|Measured::word|nanoseconds)$'
    # No process is late by exactly the nanosecond that is allowed.
    'replace > with >= in ProcessTime::waits$'
    # These change the models, which are another build (`ci/loom.sh`). That build notices them.
    'replace \|\| with && in Place::read$'
    # Another mixing of bits that serves as well for everything that tests know of it.
    'in (Key::kernel|mixed)$'
    # A difference of one nanosecond, while clocks resolve half a microsecond.
    'replace > with >= in Offset::(recorded|fit)$'
    # A count that another process has overwritten: a whole round, or one more.
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
mutate gpuslice-policy --lib || failed=1 # the package's worlds in virtual time would take a minute for each change
mutate gpuslice-region || failed=1
exit "$failed"
