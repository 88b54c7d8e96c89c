#!/usr/bin/env bash
# Runs whole frameworks on the simulated GPU, in the same three ways as ci/clients.sh. ci/test-full.sh does not run it, because it
# takes 800 MB of disk. The arguments are names of frameworks that use NVIDIA's CUDA runtime (cupy, warp, torch, jax). For each,
# the script fetches up to 6 GB, and shows where the framework stops. Afterwards you may remove the folder build/frameworks.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

FOLDER=build/frameworks
ROOM=20 # GB of disk that must stay free

# Packages for pip, and how many GB they take.
declare -A PACKAGE=([cupy]=cupy-cuda12x==14.2.0 [warp]=warp-lang==1.19.0 [torch]=torch==2.15.0 ['jax']='jax[cuda12]==0.10.2')
declare -A SIZE=([base]=1 [cupy]=1 [warp]=1 [torch]=6 ['jax']=6)

fetch() { # folder in $FOLDER; key of its size; pip's arguments
    local free
    free=$(df -BG --output=avail "$FOLDER" | tail -1 | tr -dc 0-9)
    if [ "$free" -lt $((ROOM + SIZE[$2])) ]; then
        skip "$1 on the simulated GPU" "make room: ${SIZE[$2]} GB, and $ROOM GB that stay free"
        return 1
    fi
    [ -x "$FOLDER/$1/bin/pip" ] || "$(find_python)" -m venv "$FOLDER/$1"
    "$FOLDER/$1/bin/pip" install --quiet --no-cache-dir --only-binary :all: "${@:3}" && return 0
    skip_here "$1 on the simulated GPU: pip does not get it" "ci/frameworks.sh, where pip reaches its package index"
    return 1
}

for name in "$@"; do
    [ -n "${PACKAGE[$name]:-}" ] || { echo "no framework is called $name; there are: ${!PACKAGE[*]}" >&2; exit 2; }
done
find_python >/dev/null || packages python3 python3-venv || exit 0
ci/stage.sh >/dev/null # without this, frameworks could run under a library that is older than the source
mkdir -p "$FOLDER"
failed=0
if [ $# -eq 0 ]; then
    fetch base base --no-deps --requirement tests/clients/frameworks.txt || exit 0
    "$FOLDER/base/bin/python" tests/clients/run.py graphs arrays fields || failed=1
fi
for name in "$@"; do
    fetch "$name" "$name" "${PACKAGE[$name]}" || continue
    "$FOLDER/$name/bin/python" tests/clients/run.py runtimes || failed=1
done
exit $failed
