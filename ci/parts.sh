# shellcheck shell=bash
# Parts of ci/test.sh and ci/test-full.sh, which source this file: the commands of each, the count of the results, and the list of
# skips. A part belongs to one of the two. The first parts belong to both, and count no results.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_cargo

LOG=$ROOT/build/test.log
broken=() wanted=() known=()

begin() { # the wanted parts; all without a name
    wanted=("$@")
    mkdir -p build
    : >"$LOG"
}

part() { # its name; the command
    local seconds=$SECONDS
    known+=("$1")
    if [ ${#wanted[@]} -gt 0 ]; then
        printf '%s\n' "${wanted[@]}" | grep -qxF "$1" || return 0
    fi
    printf '\n== %s\n' "$1"
    "${@:2}" 2>&1 | tee -a "$LOG" || broken+=("$1")
    printf '== %s: %s s\n' "$1" $((SECONDS - seconds))
}

# Installs everything that a part uses, before the first part, so that a first run tests the same as a second one. Compilers for
# the test programs come with the sanitizers. Further: the allocators that some test programs run under, and tools that count
# system calls and instructions. A terminal, readers of manual pages and completions, a compiler for musl. Python for the
# third-party clients and real drivers. Clients for the agent's metrics and page. Buildah for the images of a release. Podman with
# pods, Compose and its networks.
tools() {
    local names=(gcc g++ libc6-dev binutils procps perl libjemalloc2 libtcmalloc-minimal4 strace valgrind tmux man-db zsh fish
        prometheus chromium buildah podman runc podman-compose catatonit containernetworking-plugins iptables musl-tools)
    find_python >/dev/null || names+=(python3 python3-venv)
    if have dpkg; then
        packages "${names[@]}" || true
    else
        skip_here "what needs one of ${names[*]}, where it is missing: packages are installed on Debian only" "on Debian or Ubuntu"
    fi
}

# Prints the test binaries of a run as options of cargo.
binaries() { # short, timed or long
    awk -v run="$1" '$1 == run { print "--test"; print $2 }' ci/tests.txt
}

short_tests() {
    local status=0
    # shellcheck disable=SC2046 # words
    RUST_TEST_THREADS=$((2 * $(nproc))) cargo test --workspace --no-fail-fast --lib --bins $(binaries short) -- --show-output ||
        status=$?
    # shellcheck disable=SC2046 # words
    cargo test --workspace --no-fail-fast $(binaries timed) -- --show-output || status=$?
    return $status
}

long_tests() {
    local status=0
    # shellcheck disable=SC2046 # words
    cargo test --workspace --no-fail-fast $(binaries long) -- --show-output || status=$?
    cargo test --workspace --no-fail-fast --doc || status=$?
    return $status
}

kube_cluster() {
    if [ "${GPUSLICE_REQUIRE_KUBE:-}" = 1 ]; then
        ci/kube.sh
    else
        skip "scenarios in a Kubernetes cluster: they take an hour" "GPUSLICE_REQUIRE_KUBE=1 ci/test-full.sh \"kubernetes cluster\""
    fi
}

first_parts() {
    part "tools" tools
    need_compilers
    part "build" ci/stage.sh
}

short_parts() {
    part "tests" short_tests
}

long_parts() {
    part "real drivers" ci/drivers.sh
    part "headers" ci/headers.sh
    part "clients" ci/clients.sh # before the tests: some use the packages that it installs
    part "charts" ci/charts.sh   # before the tests, which use its tools
    part "kubernetes cluster" kube_cluster # before the tests: tests/packages/charts starts the apiserver that it builds
    part "docker" ci/docker.sh   # the daemon that tests/agent starts
    part "bases" ci/bases.sh     # the file systems of its containers
    part "release" ci/dist.sh    # the files that tests/packages/dist installs
    part "long tests" long_tests
    part "models" ci/loom.sh
    part "instructions" ci/instructions.sh
    part "other C libraries" ci/everywhere.sh
    part "sanitizers" ci/sanitize.sh
    part "miri" ci/miri.sh
    part "hostile input" ci/fuzz.sh
    part "GPU suite itself" ci/gpu.sh selftest
    part "GPU suite, simulated" ci/gpu.sh --simulated
    OUT=build part "GPU" ci/gpu.sh
}

# Prints the numbers of passed, failed, ignored and inconclusive tests. `cargo test` prints "test result: ok. 3 passed; 0 failed;
# 1 ignored", the repository's own runners "3 passed, 0 failed, 1 skipped". An inconclusive test passes, and says so in a line of
# its output, which cargo shows below `successes:`.
count() {
    awk '
        /^successes:$/ { good = 1 }
        /^failures:$/ { good = 0 }
        good && /^INCONCLUSIVE / { late[$2] = 1 }
        /^test result: / {
            of_binary = 0
            for (name in late) of_binary++
            split("", late)
            passed += $4 - of_binary; failed += $6; ignored += $8; inconclusive += of_binary; good = 0
        }
        /^[0-9]+ passed, [0-9]+ failed/ { passed += $1; failed += $3 }
        END { print passed + 0, failed + 0, ignored + 0, inconclusive + 0 }' "$1"
}

# Lists the skipped checks: those that a command brings on this machine, under that command; then the rest. Then lists the tests
# for which the host was too late.
list() {
    grep '^SKIP ' "$LOG" | sed 's/^SKIP //' | sort -u | awk -F '; to mend it: ' '
        NF == 2 { if (!($2 in brings)) order[++commands] = $2; brings[$2] = brings[$2] "      " $1 "\n"; next }
        { here = here "  " $0 "\n" }
        END {
            if (commands) print "Skipped, though a command brings it:"
            for (i = 1; i <= commands; i++) printf "  %s\n%s", order[i], brings[order[i]]
            if (here != "") printf "Skipped, and not to be had on this machine:\n%s", here
        }' || true
    ! grep -q '^INCONCLUSIVE ' "$LOG" || echo "Inconclusive, since the host was late:"
    sed -n 's/^INCONCLUSIVE /  /p' "$LOG" | sort -u
}

# Prints each failed test of a log, with the place of the panic and the first two lines of its message. Also prints each line of a
# runner with FAIL. So the last lines of a run show which test failed, and why.
failures() {
    awk '
        /^failures:$/ { bad = 1 }
        /^(successes:|test result: .*)$/ { bad = 0; name = "" }
        bad && /^---- .* stdout ----$/ { name = $2; for (n = 3; n < NF - 1; n++) name = name " " $n; more = 0 }
        bad && name != "" && / panicked at / { sub(/.* panicked at /, ""); print "FAILED: " name ": " $0; name = ""; more = 2; next }
        /^(stack backtrace|note):/ { more = 0 }
        bad && more > 0 && NF { print "    " $0; more-- }
        /^FAIL / { print }
        /process didn.t exit successfully/ { print "FAILED: " $0 }' "$1" | cut -c1-300
}

# Ends the run: prints the lists and one line that counts. Fails if a part or a test failed.
finish() {
    local name passed failed ignored inconclusive skipped
    read -r passed failed ignored inconclusive < <(count "$LOG")
    skipped=$(($(grep -c '^SKIP ' "$LOG" || true) + ignored))
    printf '\n'
    list
    for name in ${wanted[@]+"${wanted[@]}"}; do
        printf '%s\n' "${known[@]}" | grep -qxF "$name" || broken+=("$name: there is no such part")
    done
    failures "$LOG"
    for name in ${broken[@]+"${broken[@]}"}; do echo "FAILED: $name"; done
    echo "$passed passed, $failed failed, $skipped skipped, $inconclusive inconclusive"
    [ ${#broken[@]} -eq 0 ] && [ "$failed" -eq 0 ]
}
