#!/usr/bin/env bash
# Checks that the library touches no foreign memory, and that its memory does not grow with each call. A program makes every kind
# of call on the simulated GPU. Under valgrind, a thousand more rounds must not leave more memory in use. The program also runs in
# two builds with the compiler's sanitizers, one for addresses and one for threads.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
library=${GPUSLICE_LIB:-$TARGET/release/libgpuslice.so} simulated=${GPUSLICE_SIMGPU:-$TARGET/simgpu}
if [ -z "${GPUSLICE_LIB:-}" ] || [ -z "${GPUSLICE_SIMGPU:-}" ]; then ci/stage.sh >/dev/null; fi
folder=$TARGET/sanitize
QUOTA=67108864
passed=0 failed=0 skipped=0
export SIMGPU_MEMORY=1GiB SIMGPU_CONTEXT_BYTES=0 SIMGPU_STATE=$folder/state GPUSLICE_REGION=$folder/region
# Thousands of rounds would take too long with an NVML that is as slow as a real one.
export SIMGPU_NVML_INIT_MS=0 SIMGPU_NVML_LIST_US=0
export LD_LIBRARY_PATH=$simulated

rm -rf "$folder"
mkdir -p "$folder"

left_out() {
    skip "$@"
    skipped=$((skipped + 1))
}

verdict() { # name; status; the file to show on failure
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "ok $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1"
        cat "$3"
    fi
}

compiled() { # name; flags
    cc -std=gnu11 -O1 -g -o "$folder/$1" "${@:2}" tests/programs/steady.c -ldl -lpthread 2>"$folder/$1.compiler"
}

checked() { # rounds. Runs that many under memcheck, and prints the bytes and blocks that are in use at the end
    # The search for leaks is off, because it would read all memory of the simulated GPU.
    LD_PRELOAD=$library GPU_MEM_LIMIT=$QUOTA valgrind --error-exitcode=9 --leak-check=no \
        "$folder/steady" $QUOTA "$1" >"$folder/memcheck.$1" 2>&1 || return
    awk '/in use at exit/ { gsub(",", ""); print $6, $9 }' "$folder/memcheck.$1"
}

# If one call of a round kept memory, there would be at least a thousand more blocks. A few come and
# go with the timing of threads.
memcheck() {
    local few many status=0
    few=$(checked 500) || status=1
    verdict "valgrind: no memory but its own" $status "$folder/memcheck.500"
    [ $status = 0 ] || return 0
    many=$(checked 1500) || many="999999 999999"
    echo "bytes and blocks in use after 500 rounds: $few; after 1500: $many" >>"$folder/memcheck.1500"
    if [ $((${many#* } - ${few#* })) -ge 50 ] || [ $((${many% *} - ${few% *})) -ge 5000 ]; then status=1; fi
    verdict "valgrind: ${few#* } blocks in use, ${many#* } after a thousand rounds more" $status "$folder/memcheck.1500"
}

sanitized() { # name; the variable of its options; options
    if ! compiled "$1" "-fsanitize=$1"; then
        left_out "the $1 sanitizer: cc has none" "apt-get install gcc"
        return
    fi
    local status=0
    env "$2=$3" LD_PRELOAD="$library" GPU_MEM_LIMIT=$QUOTA "$folder/$1" $QUOTA 300 >"$folder/$1.said" 2>&1 || status=$?
    verdict "the $1 sanitizer" $status "$folder/$1.said"
}

compiled steady
if have valgrind || packages valgrind; then memcheck; else skipped=$((skipped + 1)); fi
# The search for leaks does not read the page that is empty in a forked child. But there the library keeps its state.
sanitized address ASAN_OPTIONS verify_asan_link_order=0:detect_leaks=0
sanitized thread TSAN_OPTIONS exitcode=66:ignore_noninstrumented_modules=1
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
