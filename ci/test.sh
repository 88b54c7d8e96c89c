#!/usr/bin/env bash
# The short run. Runs the tests that guard each promise of the product, on the simulated GPU, without files that must be fetched.
# It takes six minutes on two cores if everything is compiled. ci/test-full.sh runs the other tests. The run prints each skip. The
# last line has the counts, and the exit status is 0 only if nothing failed.
#   ci/test.sh [PART...]    runs only these parts, e.g. ci/test.sh build tests
set -euo pipefail
. "$(dirname "$0")/parts.sh"

begin "$@"
first_parts
short_parts
finish
