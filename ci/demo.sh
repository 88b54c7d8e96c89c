#!/usr/bin/env bash
# Builds what is needed and shows two slices sharing one GPU: the machine's where it has one, otherwise a simulated
# one. Needs rustup (or cargo) and a C compiler. Arguments go to `gpuslice demo`, e.g. --seconds 30.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

ci/stage.sh
exec "${CARGO_TARGET_DIR:-target}/release/gpuslice" demo "$@"
