#!/usr/bin/env bash
# Runs everything that only a GPU can show, and changes no setting of the GPU. `ci/gpu.sh
# quick|facts|memory|compute|frameworks|overhead|neighbours` runs one group of parts within 8 minutes. Without a name it runs all
# groups. With names of parts it runs only those, and `--list` prints the names. `quick` answers the most important questions in
# five minutes. The script needs python3, the driver and target/release/libgpuslice.so (or GPUSLICE_LIB). If PyTorch, Triton, JAX,
# CuPy, TensorFlow, nvidia-smi or cc are installed, it uses them. `--out DIR` sets the folder for the file and the page with the
# results. `--managed` allows managed memory. `--simulated` runs the parts that work on the simulated GPU. `selftest` tests the
# suite itself.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

if ! have python3; then
    skip "everything that needs a GPU: there is no python3" "apt-get install python3"
    exit 0
fi
if [ "${1:-}" = selftest ]; then
    exec python3 tests/gpu/selftest.py "${@:2}"
fi
exec python3 tests/gpu/run.py "$@"
