#!/usr/bin/env bash
# Tries every interleaving of the ledgers' models, with at most four preemptions of a thread and two tries of a reservation. Takes
# about 40 s on two cores, most of it for three racers. Three preemptions take a second; two miss one of the deliberate mistakes.
# These flags rebuild everything, so the build has a folder of its own.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" RUSTFLAGS="--cfg loom" \
    cargo test --package gpuslice-region --release --lib "$@"
