#!/usr/bin/env bash
# Do slices stay whole for a day? Lets programs come and go, be killed, fork, and change limits, on the simulated GPU; every
# few seconds nothing may be left of those that have gone. Fails where anything is, and where a slice stands still for 250
# ms beyond what it owes.
#   ci/churn.sh [SECONDS]    a day unless said otherwise; GPUSLICE_SEED=n repeats what chance decides
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers
ci/stage.sh >/dev/null
GPUSLICE_CHURN=${1:-86400} cargo test --release --quiet --package gpuslice-cli --test churn -- --nocapture
