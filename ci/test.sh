#!/usr/bin/env bash
# The one door to everything that can be tested on this machine, with or without a GPU. What cannot be is skipped
# aloud. The last line counts; the exit status is 0 only when nothing failed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

LOG=$ROOT/build/test.log
broken=()
mkdir -p build
: >"$LOG"

part() { # what; the command
    local seconds=$SECONDS
    printf '\n== %s\n' "$1"
    "${@:2}" 2>&1 | tee -a "$LOG" || broken+=("$1")
    printf '== %s: %s s\n' "$1" $((SECONDS - seconds))
}

# A C compiler for the test programs, which bring the sanitizers, the allocators that some of them run under, and what counts
# system calls and instructions.
tools() { packages gcc libc6-dev libjemalloc2 libtcmalloc-minimal4 strace valgrind || true; }

part "tools" tools
part "build" ci/stage.sh
part "real drivers" ci/drivers.sh
part "headers" ci/headers.sh
part "clients" ci/clients.sh # before the tests, some of which use what it installs
part "tests" cargo test --workspace --no-fail-fast -- --show-output
part "models" ci/loom.sh
part "instructions" ci/instructions.sh
part "portable library" ci/release.sh
part "other C libraries" ci/everywhere.sh
part "sanitizers" ci/sanitize.sh
part "miri" ci/miri.sh
part "hostile input" ci/fuzz.sh
part "GPU suite itself" ci/gpu.sh selftest
part "GPU suite, simulated" ci/gpu.sh --simulated
OUT=build part "GPU" ci/gpu.sh

# `cargo test` says "test result: ok. 3 passed; 0 failed; 1 ignored"; our own runners "3 passed, 0 failed, 1 skipped".
read -r passed failed ignored < <(awk '
    /^test result: / { passed += $4; failed += $6; ignored += $8 }
    /^[0-9]+ passed, [0-9]+ failed/ { passed += $1; failed += $3 }
    END { print passed + 0, failed + 0, ignored + 0 }' "$LOG")
skipped=$(($(grep -c '^SKIP ' "$LOG" || true) + ignored))

printf '\n'
grep '^SKIP ' "$LOG" | sort -u || true
for name in ${broken[@]+"${broken[@]}"}; do echo "FAILED: $name"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ ${#broken[@]} -eq 0 ] && [ "$failed" -eq 0 ]
