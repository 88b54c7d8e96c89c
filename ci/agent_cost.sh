#!/usr/bin/env bash
# Measures what the agent costs with 64 slices that it looks at once a second. Prints its part of a processor and its memory.
# Fails above 1 % of a processor or 32 MiB. Takes half a minute, and needs a machine that does nothing else.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers
ci/stage.sh >/dev/null
cargo test --quiet --package gpuslice-cli --test agent -- --ignored --nocapture cost::
