#!/usr/bin/env bash
# Measures what the library costs. Each figure is measured without the library, with it and no limit, and with a limit that does
# not bind. The three alternate in one run, and the median of several rounds counts (3, or as many as the first argument says).
# The table also shows the most that may be added, from tests/bench/targets.txt. Times are in nanoseconds, memory is in KiB. The
# driver does nothing, except that kernels which keep a GPU busy run on the simulated GPU. There, events take 2.5 us of its time.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

cargo build --release --quiet --package=gpuslice-{shim,reader,agent} --package=simgpu-{cuda,nvml}
library=${GPUSLICE_LIB:-${CARGO_TARGET_DIR:-$PWD/target}/release/libgpuslice.so}
folder=$(mktemp -d)
export LD_LIBRARY_PATH=$folder GPUSLICE_REGION=/dev/shm/gpuslice-bench-$$ SIMGPU_STATE=/dev/shm/gpuslice-bench-gpu-$$
agent=
trap '[ -z "$agent" ] || kill "$agent" || true; rm -rf "$folder" "$GPUSLICE_REGION" "$SIMGPU_STATE"*' EXIT
for program in calls startup processes memory launches throughput; do
    cc -O2 -pthread -o "$folder/$program" "tests/bench/$program.c" -ldl
done
cc -O2 -shared -fPIC -Wl,-soname,libcuda.so.1,-Bsymbolic -o "$folder/libcuda.so.1" tests/bench/null_driver.c
mkdir "$folder/gpu"
cp "${CARGO_TARGET_DIR:-target}/release/libcuda.so" "$folder/gpu/libcuda.so.1"
mkdir "$folder/nvml"
cp "${CARGO_TARGET_DIR:-target}/release/libnvidia_ml.so" "$folder/nvml/libnvidia-ml.so.1"
cc -O2 -Itests/programs -o "$folder/many_look_ups" tests/programs/many_look_ups.c -ldl
cp "${CARGO_TARGET_DIR:-target}/release/libgpuslice_read.so" "$folder/libgpuslice_read.so.1"
cc -O2 -Iinclude -o "$folder/reading" tests/bench/reading.c "$folder/libgpuslice_read.so.1" -Wl,-rpath,"$folder"
cc -O2 -o "$folder/quota" examples/c/quota.c "$folder/gpu/libcuda.so.1"

measure() { # file of the figures; variables for the programs, which are in the list `jobs`
    rm -f "$GPUSLICE_REGION"
    for job in "${jobs[@]}"; do
        # shellcheck disable=SC2086 # a program and its argument
        env "${@:2}" "$folder"/$job >>"$folder/$1"
    done
}
# The same start in a slice of the agent, whose files are mounted as a container engine would mount them.
measure_beside_an_agent() {
    local node=$folder/node name=start_with_900_look_ups
    if [ "$(id -u)" != 0 ] || ! unshare --mount true 2>/dev/null; then
        skip_here "the start with 900 look-ups in a slice of the agent: this user may not mount" "as root"
        return
    fi
    mkdir -p "$node/etc/gpuslice"
    printf '%s\n' 'discover = false' '[web]' 'listen = "127.0.0.1:0"' '[[slices]]' 'name = "a"' 'gpu = 0' 'memory = "8GiB"' \
        >"$node/etc/gpuslice/agent.toml"
    rm -f "$SIMGPU_STATE"
    env "${slow[@]}" GPUSLICE_LIB="$library" "${CARGO_TARGET_DIR:-target}/release/gpuslice-agent" run --root "$node" \
        2>"$node/log" &
    agent=$!
    until [ -S "$node/var/lib/gpuslice/slots/a/conf/memory.sock" ]; do
        kill -0 "$agent" || { cat "$node/log" >&2 && exit 1; }
        sleep 0.1
    done
    # The agent starts NVML meanwhile, for which calls of other processes wait. So only the second start is measured.
    for _ in 1 2; do
        # shellcheck disable=SC2016 # the inner shell expands these
        unshare --mount sh -ec 'mount -t tmpfs none /run && mkdir -p /run/gpuslice/conf /run/gpuslice/region &&
            mount --bind "$0/var/lib/gpuslice/slots/a/conf" /run/gpuslice/conf &&
            mount --bind "$0/run/gpuslice/slots/a" /run/gpuslice/region && exec env "$@"' \
            "$node" "${slow[@]}" LD_PRELOAD="$library" "$folder/many_look_ups" >"$node/figures"
    done
    kill "$agent"
    wait "$agent" || true
    agent=
    for figures in bare unlimited; do
        cp "$folder/$figures" "$node/$figures"
        sed -n "s/^$name /${name}_and_an_agent /p" "$node/$figures" >>"$folder/$figures"
    done
    sed -n "s/^$name /${name}_and_an_agent /p" "$node/figures" >>"$folder/limited"
}

all=(calls processes\ {1,2,16,64} memory\ {none,1,1000000} "launches whole_launch")
steps=("launches paced_launch" "launches step_of_256_shapes 256")
paced=("${steps[@]}" "launches idle")
for ((round = 0; round < ${1:-3}; round++)); do
    jobs=("${all[@]}" "${paced[@]}")
    measure bare NOTHING=
    measure unlimited LD_PRELOAD="$library"
    jobs=("${all[@]}")
    measure limited LD_PRELOAD="$library" GPU_MEM_LIMIT=64GiB
    jobs=("${paced[@]}")
    measure limited LD_PRELOAD="$library" GPU_MEM_LIMIT=64GiB GPU_CORE_PERCENT=95
    jobs=("launches whole_launch_of_8_devices")
    measure bare NULL_DEVICES=8
    measure unlimited NULL_DEVICES=8 LD_PRELOAD="$library"
    measure limited NULL_DEVICES=8 LD_PRELOAD="$library" GPU_MEM_LIMIT=64GiB
    paced=("${steps[@]}")
done
export LD_LIBRARY_PATH=$folder/gpu
jobs=(throughput)
measure bare NOTHING=
measure unlimited LD_PRELOAD="$library"
measure limited LD_PRELOAD="$library" GPU_MEM_LIMIT=16GiB GPU_CORE_PERCENT=99.9
# For these measurements NVML is as slow as that of real drivers, for which other processes wait.
slow=(LD_LIBRARY_PATH="$folder/gpu:$folder/nvml" SIMGPU_NVML_INIT_MS=300 SIMGPU_NVML_LIST_US=4500 SIMGPU_MODULE_BYTES=64KiB)
jobs=(many_look_ups)
rm -f "$SIMGPU_STATE"
measure bare "${slow[@]}"
measure unlimited "${slow[@]}" LD_PRELOAD="$library"
measure limited "${slow[@]}" LD_PRELOAD="$library" GPU_MEM_LIMIT=8GiB
measure_beside_an_agent
"$folder/startup" "$library" >"$folder/start"
awk -v at="$folder/" '{ print $1, $2 >>(at "bare"); print $1, $3 >>(at "unlimited"); print $1, $3 >>(at "limited") }' "$folder/start"

rm -f "$GPUSLICE_REGION"
LD_PRELOAD=$library GPU_MEM_LIMIT=1GiB "$folder/quota" \
    "env -u LD_PRELOAD $folder/reading $GPUSLICE_REGION" | grep ^read_ >"$folder/read"

cd "$folder"
awk -f "$OLDPWD/tests/bench/table.awk" "$OLDPWD/tests/bench/targets.txt" bare unlimited limited
cat read # the cost of one call of a monitor that reads a slice with one process
