#!/usr/bin/env bash
# How exactly does a share of GPU time hold? Prints workloads by limits beside the targets: the control loop in virtual
# time, on a simulated GPU. GPUSLICE_WORKLOAD=part prints the workloads with that in their names. Fails where a target is
# missed and no reason is known.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cargo test --release --quiet --package gpuslice-policy --test compute table -- --show-output
