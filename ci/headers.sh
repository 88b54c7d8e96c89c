#!/usr/bin/env bash
# Fetches the headers of CUDA and NVML into build/headers/, for tests that compare gpuslice's declarations with NVIDIA's. Also
# fetches the assembler for the kernels of the GPU suite. The simulated GPU does not read the assembler's output.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

WHEELS="nvidia-cuda-runtime==13.5.37 nvidia-nvml-dev==13.5.37 nvidia-cuda-nvcc==13.5.37"
OUT=$ROOT/build/headers

if [ "$(cat "$OUT/version" 2>/dev/null)" != "$WHEELS" ]; then
    make_venv || exit 0
    rm -rf "$OUT" build/wheels
    # shellcheck disable=SC2086 # several words
    if ! build/venv/bin/pip download --quiet --no-deps --only-binary :all: --dest build/wheels $WHEELS; then
        skip_here "the comparison with NVIDIA's headers: pip does not get them" "ci/headers.sh, where pip reaches its package index"
        exit 0
    fi
    for wheel in build/wheels/*.whl; do build/venv/bin/python -m zipfile -e "$wheel" build/wheels/contents; done
    mv build/wheels/contents/nvidia/cu13/include "$OUT"
    install build/wheels/contents/nvidia/cu13/bin/ptxas "$OUT"
    rm -rf build/wheels
    echo "$WHEELS" >"$OUT/version"
fi
[ -f "$OUT/cuda.h" ] && [ -f "$OUT/cudaTypedefs.h" ] && [ -f "$OUT/nvml.h" ] && [ -x "$OUT/ptxas" ]
echo "ok headers: $WHEELS"
