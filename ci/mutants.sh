#!/usr/bin/env bash
# Does a test fail when the arithmetic of shares is broken? Changes one operator, constant or function at a time in the pure
# functions and in the region's words, and runs their packages' own tests: ci/mutants.sh [FILE...]; an hour on two processors.
# Prints each change that no test saw; it fails where there is one.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

if ! cargo mutants --version >/dev/null 2>&1; then
    skip "whether tests see broken arithmetic: there is no cargo-mutants" "cargo install cargo-mutants --locked"
    exit 0
fi
files=("$@")
[ $# -gt 0 ] || files=(src/policy/src/compute/{,*/}*.rs src/region/src/compute/*.rs src/region/src/{sync/futex,memory/shared_memory,handle/member_time,handle/region_time}.rs)

# What cannot be seen, since it is the same.
same=(
    # Both sides of the comparison give the same where they are equal.
    'replace > with >= in (done|wakes|beside|before|Lease::lacks|Run::waited|Windows::close|nanoseconds)$'
    'replace < with <= in (running|before|two|least|Lease::share|Union::cover|Union::is_covered|DeviceTime<SLOTS>::base)$'
    # Bits that do not overlap.
    'replace \| with \^ in (pair|Overlap::word|Measured::word|nanoseconds)$'
    # Nobody is late by exactly the nanosecond that is allowed.
    'replace > with >= in ProcessTime::waits$'
    # Of the models, which are another build (`ci/loom.sh`): there it is seen.
    'replace \|\| with && in Place::read$'
    # Another mixing of bits that is as good for what tests know of it.
    'in (Key::kernel|mixed)$'
    # To the nanosecond, where clocks tell no more than half a microsecond.
    'replace > with >= in Offset::(recorded|fit)$'
    # Of a count that somebody has written over, a whole round or one more.
    'replace > with >= in Reader::read$'
)
for pattern in "${same[@]}"; do excluded+=(--exclude-re "$pattern"); done
for file in "${files[@]}"; do chosen+=(--file "$file"); done

mutate() { # a package; how its tests are run
    CARGO_PROFILE_DEV_DEBUG=0 cargo mutants --package "$1" "${chosen[@]}" "${excluded[@]}" --jobs "$(nproc)" --timeout 60 \
        --no-shuffle --output "build/mutants/$1" -- "${@:2}"
}
mkdir -p build/mutants
failed=0
mutate gpuslice-policy --lib || failed=1 # its worlds in virtual time would take a minute for each change
mutate gpuslice-region || failed=1
exit "$failed"
