#!/usr/bin/env bash
# The short run: the tests that guard each promise of the product, on the simulated GPU, without fetched files. It takes six
# minutes on two cores once everything is compiled. ci/test-full.sh runs the rest. The run prints each skip. The last line counts;
# the exit status is 0 only if nothing failed.
#   ci/test.sh [PART...]    only these parts, e.g. ci/test.sh build tests
set -euo pipefail
. "$(dirname "$0")/parts.sh"

begin "$@"
first_parts
short_parts
finish
