#!/usr/bin/env bash
# Counts how many instructions the library adds to a call. valgrind counts them, so each machine and each run gets the same
# number. Compares the counts with the lines `kind limit most-added` of tests/bench/instructions.txt. The limit is a limit of
# memory, also with a number of devices (`8x64GiB`), or a share of GPU time in percent. Prints each count. The instructions of the
# library's own thread do not count.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

have valgrind || packages valgrind || exit 0
cargo build --release --quiet --package gpuslice-shim
target=${CARGO_TARGET_DIR:-$ROOT/target}
folder=$target/bench
mkdir -p "$folder"
region=$(mktemp -d -p /dev/shm gpuslice-instructions-XXXXXX)
trap 'rm -rf "$region"' EXIT
cc -O2 -o "$folder/repeat" tests/bench/repeat.c -ldl
cc -O2 -shared -fPIC -Wl,-soname,libcuda.so.1,-Bsymbolic -o "$folder/libcuda.so.1" tests/bench/null_driver.c

instructions() { # kind; count; then variables for the program
    env LD_LIBRARY_PATH="$folder" GPUSLICE_REGION="$region/region" "${@:3}" \
        valgrind --quiet --tool=callgrind --separate-threads=yes --callgrind-out-file="$folder/counted" \
        "$folder/repeat" "$1" "$2" >/dev/null
    awk '/^totals:/ { print $NF }' "$folder/counted-01"
}
calls=20000
of_calls() { # kind; variables for the program. Prints the instructions of $calls calls, not those of the program's start and end
    echo $(($(instructions "$1" $((2000 + calls)) "${@:2}") - $(instructions "$1" 2000 "${@:2}")))
}

counted() { # prints how many instructions the library adds to a call. It rounds once, because two roundings could add an error
    local with without
    with=$(of_calls "$kind" NULL_DEVICES="$devices" "${preload[@]}")
    without=$(of_calls "$kind" NULL_DEVICES="$devices")
    echo $(((with - without) / calls))
}

failed=0 passed=0
while read -r kind limit most; do
    preload=(LD_PRELOAD="$target/release/libgpuslice.so") devices=1
    case $limit in
        *x*) devices=${limit%%x*} && preload+=(GPU_MEM_LIMIT="${limit#*x}") ;;
        none) ;;
        *%) preload+=(GPU_MEM_LIMIT=64GiB GPU_CORE_PERCENT="${limit%\%}") ;;
        *) preload+=(GPU_MEM_LIMIT="$limit") ;;
    esac
    added=$(counted)
    # Periodic work counts, too, and a busy machine has more of it. So the smallest of three counts decides.
    for _ in 2 3; do
        [ "$added" -gt "$most" ] || break
        again=$(counted)
        [ "$again" -ge "$added" ] || added=$again
    done
    verdict=ok
    [ "$added" -le "$most" ] || verdict=FAIL
    echo "$verdict $kind, limit $limit: $added instructions added, at most $most"
    if [ $verdict = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done <tests/bench/instructions.txt

# A launch makes no system call. System calls come from the opening of a batch, and from a wait while the library's
# thread closes one. Both are rare.
system_calls() { # number of launches. Prints the system calls of the thread that makes them
    env LD_LIBRARY_PATH="$folder" GPUSLICE_REGION="$region/region" GPU_CORE_PERCENT=95 \
        strace -o "$folder/calls" -E LD_PRELOAD="$target/release/libgpuslice.so" "$folder/repeat" launched "$1"
    wc -l <"$folder/calls"
}
skipped=0
if have strace || packages strace; then
    added=$(($(system_calls 202000) - $(system_calls 2000)))
    if [ $added -le 200 ]; then passed=$((passed + 1)) verdict=ok; else failed=$((failed + 1)) verdict=FAIL; fi
    echo "$verdict 200000 launches, limit 95%: $added system calls added, at most 200"
else
    skipped=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
