#!/usr/bin/env bash
# Gives a quick answer about a change. Builds the parts that the tests of the whole product use, without the optimisations of a
# release. Then runs the unit tests and a few tests of the whole product. With names, runs those tests in place of the few:
#   ci/quick.sh [--only] [TEST...]    tests/launches.rs is launches, tests/memory/limits.rs is memory/limits, and memory is all
#                                     of that folder; --only leaves out the unit tests
# After a change of one line this takes less than two minutes. Only ci/check.sh, ci/test.sh and ci/test-full.sh decide.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

# This uses the folder of a release build, because the tests look for the libraries there. ci/stage.sh
# builds the real release again.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
export CARGO_PROFILE_RELEASE_INCREMENTAL=true CARGO_PROFILE_RELEASE_STRIP=none
units=yes
if [ "${1:-}" = --only ]; then units=no && shift; fi
[ $# -gt 0 ] || set -- memory/limits interpose/preload launches repository/staged
for name in "$@"; do
    if [ ! -e "tests/$name.rs" ] && [ ! -e "tests/$name/main.rs" ] && [ ! -e "tests/$name/mod.rs" ]; then
        echo "$0: there is no tests/$name.rs" >&2
        exit 2
    fi
done

ci/stage.sh
failed=0
[ $units = no ] || cargo test --workspace --lib --bins --quiet || failed=1
for name in "$@"; do
    file=()
    [ "${name%%/*}" = "$name" ] || { path=${name#*/} && file=("${path//\//::}::"); }
    cargo test --package gpuslice-cli --quiet --test "${name%%/*}" -- ${file[@]+"${file[@]}"} || failed=1
done
exit $failed
