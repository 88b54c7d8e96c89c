#!/usr/bin/env bash
# Everything that only a GPU can show, in one command that changes no setting of it:
# `ci/gpu.sh quick|facts|memory|compute|frameworks|overhead|neighbours`, each within 8 minutes; all without a name. Names of single
# parts run only those (`--list`). `quick` asks what decides most, in five minutes. Needs python3, the driver and target/release/libgpuslice.so (or GPUSLICE_LIB); PyTorch,
# Triton, JAX, CuPy, TensorFlow, nvidia-smi and cc where they are there. `--out DIR` says where the file and the page go;
# `--simulated` runs what can be run on the simulated GPU; `selftest` tests the suite itself.
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
