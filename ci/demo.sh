#!/usr/bin/env bash
# Builds the demo, and shows two slices that share one GPU. The GPU is the machine's own, or a simulated one if there is none.
# Needs rustup (or cargo) and a C compiler. The arguments are those of `gpuslice demo`, e.g. --seconds 30.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

ci/stage.sh
exec "${CARGO_TARGET_DIR:-target}/release/gpuslice" demo "$@"
