#!/usr/bin/env bash
# What does the library cost? Every figure bare, with the library and no limit, and with a limit that does not bind,
# from one run: look at differences and ratios, machines are noisy. The driver behind does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --quiet --package gpuslice-shim
library=$PWD/target/release/libgpuslice.so
folder=target/bench
mkdir -p "$folder"
for program in calls startup; do cc -O2 -pthread -o "$folder/$program" "tests/bench/$program.c" -ldl; done
cc -O2 -shared -fPIC -Wl,-soname,libcuda.so.1,-Bsymbolic -o "$folder/libcuda.so.1" tests/bench/null_driver.c

export LD_LIBRARY_PATH=$folder GPUSLICE_REGION=/dev/shm/gpuslice-bench-$$
rm -f "$GPUSLICE_REGION"
"$folder/calls" >"$folder/bare"
LD_PRELOAD=$library "$folder/calls" >"$folder/unlimited"
LD_PRELOAD=$library GPU_MEM_LIMIT=64GiB "$folder/calls" >"$folder/limited"
rm -f "$GPUSLICE_REGION"

echo "nanoseconds a call                bare  no limit     added     limit     added"
paste "$folder/bare" "$folder/unlimited" "$folder/limited" | awk '{
    printf "%-30s %7.1f %9.1f %9.1f %9.1f %9.1f\n", $1, $2, $4, $4 - $2, $6, $6 - $2 }'
"$folder/startup" "$library" | awk '{
    printf "microseconds to start /bin/true: bare %d, with the library %d, added %d\n", $2, $3, $3 - $2 }'
