#!/usr/bin/env bash
# How many instructions does the library add to a call? Counted by valgrind, so the same on every machine and run, and
# compared with tests/bench/instructions.txt, which holds `kind limit most-added`. Prints each count.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

if ! command -v valgrind >/dev/null; then
    packages valgrind || exit 0
fi
cargo build --release --quiet --package gpuslice-shim
target=${CARGO_TARGET_DIR:-$ROOT/target}
folder=$target/bench
mkdir -p "$folder"
cc -O2 -o "$folder/repeat" tests/bench/repeat.c -ldl
cc -O2 -shared -fPIC -Wl,-soname,libcuda.so.1,-Bsymbolic -o "$folder/libcuda.so.1" tests/bench/null_driver.c

instructions() { # kind; count; then variables for the program
    env LD_LIBRARY_PATH="$folder" GPUSLICE_REGION="/dev/shm/gpuslice-instructions-$$" "${@:3}" \
        valgrind --tool=callgrind --callgrind-out-file=/dev/null "$folder/repeat" "$1" "$2" 2>&1 |
        awk '/Collected/ { print $NF }'
}
each() { # the same: what one call takes, whatever start and end take
    echo $((($(instructions "$1" 3000 "${@:2}") - $(instructions "$1" 1000 "${@:2}")) / 2000))
}

failed=0 passed=0
while read -r kind limit most; do
    preload=(LD_PRELOAD="$target/release/libgpuslice.so")
    [ "$limit" = none ] || preload+=(GPU_MEM_LIMIT="$limit")
    added=$(($(each "$kind" "${preload[@]}") - $(each "$kind" NOTHING=)))
    verdict=ok
    [ "$added" -le "$most" ] || verdict=FAIL
    echo "$verdict $kind, limit $limit: $added instructions added, at most $most"
    if [ $verdict = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done <tests/bench/instructions.txt
rm -f "/dev/shm/gpuslice-instructions-$$"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
