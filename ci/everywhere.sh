#!/usr/bin/env bash
# Checks that the portable library works with other C libraries: the glibc of each of Debian's releases, and musl. With
# each, a small program starts through the loader of that C library: without gpuslice, with it and no limit, and inside a
# quota. With each glibc, the command line runs as well. The script fetches the C libraries into build/libc and never
# installs them. The driver does nothing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

APT=$ROOT/build/apt/everywhere
SUITES="bullseye bookworm trixie sid"
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
library=$TARGET/portable/libgpuslice.so
OLDEST=$ROOT/build/debian11 TREES=$ROOT/build/libc
folder=$TARGET/everywhere
QUOTA=67108864
passed=0 failed=0 skipped=0

left_out() {
    skip_here "$@"
    skipped=$((skipped + 1))
}

# Fetches glibc and musl of each release, unchanged. The headers of musl come from the first release that has them.
fetch_all() {
    local suite
    [ ! -e "$TREES/sid" ] || return 0
    have apt-get && have dpkg || return 0
    # shellcheck disable=SC2086 # words
    make_sources main $SUITES
    for suite in $SUITES; do
        rm -rf "${TREES:?}/$suite"
        unpack "$TREES/$suite" "libc6/$suite" "musl/$suite" "musl-dev/$suite" || rm -rf "${TREES:?}/$suite"
    done
}

driver="tests/bench/null_driver.c -shared -fPIC -Wl,-soname,libcuda.so.1,-Bsymbolic"
host="tests/programs/everywhere.c -fPIE -pie"

# Links the program with the oldest glibc, so that the same program runs with every newer one.
make_for_glibc() {
    local one
    mkdir -p "$folder/glibc"
    # shellcheck disable=SC2086 # words
    for one in "libcuda.so.1 $driver" "host $host"; do
        cc -O2 --sysroot="$OLDEST" -L"$TARGET/portable/link" -B"$OLDEST/usr/lib/x86_64-linux-gnu" \
            -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu -o "$folder/glibc/"$one -ldl -lpthread
    done
}

make_for_musl() { # a release's tree
    local usr=$1/usr/lib/x86_64-linux-musl flags
    flags="-O2 -nostdinc -isystem $1/usr/include/x86_64-linux-musl -nostdlib -L$(dirname "$(find_musl "$1")")"
    mkdir -p "$folder/musl"
    # shellcheck disable=SC2086 # words
    cc $flags -o "$folder/musl/"libcuda.so.1 $driver -l:libc.so
    # shellcheck disable=SC2086 # words
    cc $flags -o "$folder/musl/"host $host "$usr/Scrt1.o" "$usr/crti.o" -l:libc.so "$usr/crtn.o"
}

find_musl() { # a release's tree
    find "$1" -path '*/x86_64-linux-musl/libc.so' -type f
}
find_glibc() { # a release's tree
    find "$1" -path '*/x86_64-linux-gnu/ld-linux-x86-64.so.2'
}

compare() { # name of the check; output of the program; expected output
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
        echo "ok $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1; < expected, > found:"
        diff <(echo "$3") <(echo "$2") || true
    fi
}

expected() { # status of one allocation too many; the line of a process that reaches its quota, if it prints one
    local line=${2-}
    # sed drops the line if the process prints nothing.
    sed '/^$/d' <<EXPECTED
getpid found
nothing not found
an error of the loader is told
init 0, version 0 13000, errno 77
$line
here: four pieces 0 0 0 0, one more $1
threads: 0 failures
$line
child: four pieces 0 0 0 0, one more $1
child ended with 0
again: four pieces 0 0 0 0, one more $1
exit 0
EXPECTED
}

check() { # name; kind; its loader; its folder of libraries
    run() { # variables
        local status=0
        env GPUSLICE_REGION="$folder/region" "${@:4}" "$2" --library-path "$3:$folder/$1" "$folder/$1/host" $QUOTA 2>&1 ||
            status=$?
        echo "exit $status"
    }
    rm -f "$folder/region"
    compare "$1, bare" "$(run "${@:2}")" "$(expected 0)"
    compare "$1, no limit" "$(run "${@:2}" LD_PRELOAD="$library")" "$(expected 0)"
    # The process number and the name of the command differ from run to run.
    compare "$1, a quota" \
        "$(run "${@:2}" LD_PRELOAD="$library" GPU_MEM_LIMIT=$QUOTA | sed 's/^gpuslice: .*\( is refused: the slice holds [0-9]*MiB\).*/...\1/')" \
        "$(expected 2 "... is refused: the slice holds 64MiB")"
}

check_command() { # name; its loader; its folder of libraries
    local path=/nonexistent/region status=0 said
    said=$("$2" --library-path "$3" "$TARGET/portable/gpuslice" status $path 2>&1) || status=$?
    compare "$1, the command line" "$said; exit $status" \
        "gpuslice: there is no region at $path; \`gpuslice list\` shows those there are; exit 1"
}

if [ ! -e "$library" ]; then
    skip_here "other C libraries: there is no portable library" "ci/dist.sh, where apt reaches Debian 11"
    exit 0
fi
fetch_all
rm -rf "$folder"
make_for_glibc
for suite in $SUITES; do
    tree=$TREES/$suite
    if [ ! -e "$tree" ]; then
        left_out "the C libraries of $suite: apt does not get them" "ci/everywhere.sh, where apt reaches Debian's releases"
        continue
    fi
    glibc=$(dirname "$(find_glibc "$tree")")
    version=$(grep -ao 'GNU C Library (Debian GLIBC [^)]*)' "$glibc/libc.so.6" | grep -o '[0-9][^)]*')
    check "glibc $version" glibc "$glibc/ld-linux-x86-64.so.2" "$glibc"
    check_command "glibc $version" "$glibc/ld-linux-x86-64.so.2" "$glibc"
    [ -e "$folder/musl/host" ] || make_for_musl "$tree"
    check "musl of $suite" musl "$(find_musl "$tree")" /nonexistent
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
