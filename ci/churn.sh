#!/usr/bin/env bash
# Checks that slices stay correct for a day, on the simulated GPU. Programs come and go, are killed and fork, and limits change.
# Every few seconds the script looks for anything that a program has left after its end. Fails if there is something, or if a
# slice stands still for 250 ms longer than its debt explains.
#   ci/churn.sh [SECONDS]    takes a day without an argument; GPUSLICE_TEST_SEED=n repeats the random choices of a run
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers
ci/stage.sh >/dev/null
GPUSLICE_TEST_CHURN=${1:-86400} cargo test --release --quiet --package gpuslice-cli --test endurance churn:: -- --nocapture
