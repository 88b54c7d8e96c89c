#!/usr/bin/env bash
# Runs everything that ci/test.sh leaves out and that this machine can test, with or without a GPU. With --all it runs the parts
# of ci/test.sh first. Then each test runs once, and the run ends with one list of skips and one last line.
#   ci/test-full.sh [--all] [PART...]    runs only these parts, e.g. ci/test-full.sh build "real drivers"
set -euo pipefail
. "$(dirname "$0")/parts.sh"

all=no
if [ "${1:-}" = --all ]; then all=yes && shift; fi
begin "$@"
first_parts
[ $all = no ] || short_parts
long_parts
finish
