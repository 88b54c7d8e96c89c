#!/usr/bin/env bash
# The one door to everything that can be tested on this machine, with or without a GPU. What cannot be is skipped
# aloud. The last line counts; the exit status is 0 only when nothing failed.
#   ci/test.sh [PART...]    only these parts, e.g. ci/test.sh build "real drivers"
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_cargo

LOG=$ROOT/build/test.log
broken=() wanted=("$@") known=()
mkdir -p build
: >"$LOG"

part() { # what; the command
    local seconds=$SECONDS
    known+=("$1")
    if [ ${#wanted[@]} -gt 0 ]; then
        printf '%s\n' "${wanted[@]}" | grep -qxF "$1" || return 0
    fi
    printf '\n== %s\n' "$1"
    "${@:2}" 2>&1 | tee -a "$LOG" || broken+=("$1")
    printf '== %s: %s s\n' "$1" $((SECONDS - seconds))
}

# All that some part uses, before the first part: a first run tests what a second one would. Compilers for the test programs,
# which bring the sanitizers; the allocators that some of them run under; what counts system calls and instructions; a
# terminal, the readers of manual pages and completions, Python for the third-party clients and real drivers; what reads the
# agent's metrics, page and devices.
tools() {
    local names=(gcc g++ libc6-dev binutils procps perl libjemalloc2 libtcmalloc-minimal4 strace valgrind tmux man-db zsh fish
        prometheus chromium podman runc)
    find_python >/dev/null || names+=(python3 python3-venv)
    if have dpkg; then
        packages "${names[@]}" || true
    else
        skip_here "what needs one of ${names[*]}, where it is missing: packages are installed on Debian only" "on Debian or Ubuntu"
    fi
}

part "tools" tools
need_compilers
part "build" ci/stage.sh
part "real drivers" ci/drivers.sh
part "headers" ci/headers.sh
part "clients" ci/clients.sh # before the tests, some of which use what it installs
part "charts" ci/charts.sh   # the same
part "release" ci/dist.sh # what tests/dist.rs installs
part "tests" cargo test --workspace --no-fail-fast -- --show-output
part "models" ci/loom.sh
part "instructions" ci/instructions.sh
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

# Lists the skipped checks: those that a command brings on this machine, under that command; then the rest.
list_skips() {
    grep '^SKIP ' "$LOG" | sed 's/^SKIP //' | sort -u | awk -F '; to mend it: ' '
        NF == 2 { if (!($2 in brings)) order[++commands] = $2; brings[$2] = brings[$2] "      " $1 "\n"; next }
        { here = here "  " $0 "\n" }
        END {
            if (commands) print "Skipped, though a command brings it:"
            for (i = 1; i <= commands; i++) printf "  %s\n%s", order[i], brings[order[i]]
            if (here != "") printf "Skipped, and not to be had on this machine:\n%s", here
        }' || true
}

printf '\n'
list_skips
for name in ${wanted[@]+"${wanted[@]}"}; do
    printf '%s\n' "${known[@]}" | grep -qxF "$name" || broken+=("$name: there is no such part")
done
for name in ${broken[@]+"${broken[@]}"}; do echo "FAILED: $name"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ ${#broken[@]} -eq 0 ] && [ "$failed" -eq 0 ]
