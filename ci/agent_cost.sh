#!/usr/bin/env bash
# What the agent costs with 64 slices that are looked at once a second: prints the part of a processor and the memory. Fails
# above 1 % of a processor or 32 MiB. Half a minute, on a machine that does nothing else.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers
ci/stage.sh >/dev/null
cargo test --quiet --package gpuslice-cli --test agent -- --ignored --nocapture cost::
