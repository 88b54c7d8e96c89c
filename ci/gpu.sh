#!/usr/bin/env bash
# Runs everything that only a GPU can show, in one command that changes no setting of the GPU. `ci/gpu.sh
# quick|facts|memory|compute|frameworks|overhead|neighbours` runs one group within 8 minutes. Without a name it runs all groups.
# Names of single parts run only those (`--list`). `quick` asks the most decisive questions in five minutes. The script needs
# python3, the driver and target/release/libgpuslice.so (or GPUSLICE_LIB). It uses PyTorch, Triton, JAX, CuPy, TensorFlow,
# nvidia-smi and cc if they are there. `--out DIR` names the folder of the file and the page. `--simulated` runs the parts that
# can run on the simulated GPU. `selftest` tests the suite itself.
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
