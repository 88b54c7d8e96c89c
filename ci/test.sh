#!/usr/bin/env bash
# The short run: what guards each promise of the product, on the simulated GPU, with nothing that is fetched; six minutes on two
# cores, once everything is compiled. ci/test-full.sh runs the rest. What cannot run is skipped aloud. The last line counts; the
# exit status is 0 only when nothing failed.
#   ci/test.sh [PART...]    only these parts, e.g. ci/test.sh build tests
set -euo pipefail
. "$(dirname "$0")/parts.sh"

begin "$@"
first_parts
short_parts
finish
