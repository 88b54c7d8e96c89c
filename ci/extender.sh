#!/usr/bin/env bash
# Measures how long the extender takes to answer for 1,000 nodes of a cluster. Also prints the times of an algorithm that counts
# all pods again at each request. Fails if two of 100 requests take 20 ms. Needs a machine that does nothing else.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers
cargo test --release --quiet --package gpuslice-kubernetes --test extender latency:: -- --nocapture --test-threads=1
