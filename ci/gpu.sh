#!/usr/bin/env bash
# Checks the library on a real GPU and measures what is assumed about it, without changing any setting of the GPU:
# `ci/gpu.sh memory` and `ci/gpu.sh compute`, each within 8 minutes; both without a name, and names of parts run only
# those. Needs python3, the driver and target/release/libgpuslice.so; PyTorch, JAX, CuPy, nvidia-smi and cc where they
# are there. `--simulated` runs what can be run on the simulated GPU.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

if ! have python3; then
    skip "everything that needs a GPU" "apt-get install python3"
    exit 0
fi
exec python3 tests/gpu/run.py "$@"
