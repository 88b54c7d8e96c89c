#!/usr/bin/env bash
# Tries every interleaving of the ledgers' models, with at most four switches of a thread where it need not
# be switched, and two tries of a reservation. About 40 s on two cores, most of it three racers; three switches take
# a second, two miss one of the deliberate mistakes. With these flags everything is built anew, so in its own folder.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" RUSTFLAGS="--cfg loom" \
    cargo test --package gpuslice-region --release --lib "$@"
