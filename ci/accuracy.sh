#!/usr/bin/env bash
# Measures how exactly shares of GPU time hold. Prints a table of workloads and limits, with the targets beside it. Fails if a
# target is missed without a known reason.
#   ci/accuracy.sh virtual    the control loop in virtual time, on a simulated GPU; this is also the default
#   ci/accuracy.sh real       the library under real programs on the simulated GPU; takes half an hour
#   ci/accuracy.sh changes    new limits, and deaths of processes, while programs run
#   ci/accuracy.sh events     kernels of all lengths while events take the GPU's time; takes twenty minutes
#   ci/accuracy.sh variants   the table of `real` if events fail, NVML is missing, or NVML knows less; takes two and a half hours
#   ci/accuracy.sh policies   how slices divide a GPU by policy, weight and priority; takes five minutes
#   ci/accuracy.sh apart      slices whose regions lie in folders of their own, without an agent; takes three minutes
#   ci/accuracy.sh start      eight processes of a slice that start together, with kernels of 5 us, thirty times at each limit;
#                             takes a quarter of an hour
#   ci/accuracy.sh debts      programs of one kernel that run one after another in a slice; takes three minutes
#   ci/accuracy.sh picture    draws docs/results/share.svg
# GPUSLICE_TEST_WORKLOAD='part|part' and GPUSLICE_TEST_LIMITS=5,30 choose rows. GPUSLICE_TEST_SECONDS=n sets how long each cell of
# `real` or `debts` is measured, GPUSLICE_TEST_RUNS=n how often `start` runs, and GPUSLICE_TEST_VARIANT=part chooses the variant.
# GPUSLICE_TEST_JSON=file collects the figures as JSON.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

if [ "${1:-virtual}" = virtual ]; then
    exec cargo test --release --quiet --package gpuslice-policy --test compute table -- --show-output
fi
ci/stage.sh >/dev/null
cargo test --quiet --package gpuslice-cli --test accuracy --no-run
# At real-time priority, other programs of the machine do not disturb the measurement. Not every user may have this priority.
first=()
if have chrt && chrt -r 1 true 2>/dev/null; then first=(chrt -r 1); fi
missed=0

measure() { # name of the test; variables
    env GPUSLICE_TEST_SECONDS="${GPUSLICE_TEST_SECONDS:-11}" "${@:2}" ${first[@]+"${first[@]}"} \
        cargo test --quiet --package gpuslice-cli --test accuracy -- "$1" --nocapture --test-threads=1 || missed=1
}

case $1 in
    real) measure a_share_holds ;;
    changes) measure a_new_limit && measure a_killed_process ;;
    variants)
        for variant in "no event" "no libnvidia-ml" "knows no process" instance "take a second"; do
            measure a_share_holds GPUSLICE_TEST_VARIANT="$variant"
        done
        ;;
    events) measure a_share_holds GPUSLICE_TEST_VARIANT="all lengths" ;;
    apart) measure a_share_holds GPUSLICE_TEST_VARIANT="folders of their own" ;;
    start) measure processes_that_start_together ;;
    debts) measure one_after_the_other GPUSLICE_TEST_SECONDS="${GPUSLICE_TEST_SECONDS:-60}" ;;
    policies) measure slices_divide_a_gpu ;;
    picture) measure a_share_over_time GPUSLICE_TEST_PICTURE="$ROOT/docs/results/share.svg" ;;
    *) echo "ci/accuracy.sh virtual, real, changes, events, variants, policies, apart, start, debts or picture" >&2 && exit 2 ;;
esac
exit "$missed"
