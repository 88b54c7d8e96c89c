#!/usr/bin/env bash
# Checks that slices stay whole for a day. Lets programs come and go, be killed and fork, and changes limits, on the simulated
# GPU. Every few seconds nothing may be left of programs that have gone. Fails if anything is left, or if a slice stands still
# for 250 ms beyond the time of its debt.
#   ci/churn.sh [SECONDS]    a day unless said otherwise; GPUSLICE_TEST_SEED=n repeats the random choices
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers
ci/stage.sh >/dev/null
GPUSLICE_TEST_CHURN=${1:-86400} cargo test --release --quiet --package gpuslice-cli --test endurance churn:: -- --nocapture
