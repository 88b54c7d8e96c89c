# shellcheck shell=bash
# The parts of ci/test.sh and ci/test-full.sh, which source this file. It has the commands of each part, counts the results, and
# lists the skips. A part belongs to one of the two scripts. The first parts belong to both, and count no results.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_cargo

LOG=$ROOT/build/test.log
broken=() wanted=() known=()

begin() { # names of the wanted parts; without a name, all parts are wanted
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

# Installs everything that the parts use, before the first part. So a first run tests the same as a second one. Compilers for
# the test programs come with the sanitizers. The other packages have: allocators under which some test programs run, and
# tools that count system calls and instructions. A terminal, readers of manual pages and completions, and a compiler for
# musl. Python for the clients of other authors and for real drivers. Clients for the agent's metrics and page. Buildah
# for the images of a release. Podman with
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

# Prints the names of the test binaries of a run, as options for cargo.
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
    part "clients" ci/clients.sh # before the tests, because some use the packages that this installs
    part "charts" ci/charts.sh   # before the tests, because they use its tools
    part "kubernetes cluster" kube_cluster # before the tests, because tests/packages/charts starts the apiserver that this builds
    part "docker" ci/docker.sh   # has the daemon that tests/agent starts
    part "bases" ci/bases.sh     # has the file systems of its containers
    part "release" ci/dist.sh    # makes the files that tests/packages/dist installs
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

# Prints how many tests passed, failed, were ignored, and were inconclusive. `cargo test` prints "test result: ok. 3 passed; 0
# failed; 1 ignored". The repository's own runners print "3 passed, 0 failed, 1 skipped". An inconclusive test passes, and prints
# a line that says so. cargo shows this line below `successes:`.
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

# Lists the skipped checks. Checks that a command makes possible on this machine come first, under that command, and then the
# others. After that, lists the inconclusive tests, for which the host was too late.
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
# runner that starts with FAIL. So the last lines of a run show which test failed, and why.
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

# Ends the run. Prints the lists, and one line with the counts. Fails if a part or a test failed.
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
