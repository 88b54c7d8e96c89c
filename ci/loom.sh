#!/usr/bin/env bash
# Tries every interleaving of the models of the ledgers, with at most four preemptions of a thread and two tries of a reservation.
# Takes about 40 s on two cores, most of it for the model with three threads. With three preemptions it would take a second, but
# then two of the deliberate mistakes go unnoticed. The flags make cargo rebuild everything, so the build has its own folder.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" RUSTFLAGS="--cfg loom" \
    cargo test --package gpuslice-region --release --lib "$@"
