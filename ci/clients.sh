#!/usr/bin/env bash
# Runs unmodified programs of other authors on the simulated GPU: without the library, with it, and inside a quota. The arguments
# are those of tests/clients/run.py.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

WANTED=tests/clients/requirements.txt
make_venv || exit 0
if ! cmp -s "$WANTED" build/venv/installed; then
    if ! build/venv/bin/pip install --quiet --no-deps --only-binary :all: --requirement "$WANTED"; then
        skip_here "all third-party clients: pip does not get them" "ci/clients.sh, where pip reaches its package index"
        exit 0
    fi
    cp "$WANTED" build/venv/installed
fi
ci/stage.sh >/dev/null # without this, clients could run under a library that is older than the source
exec build/venv/bin/python tests/clients/run.py "$@"
