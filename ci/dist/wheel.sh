#!/usr/bin/env bash
# Makes a wheel with the command and the library from the tree of a release: ci/dist/wheel.sh TREE FOLDER. ci/dist/pack.sh sets
# the environment. In a virtual environment, the files of the wheel have the same places as those of the archive in /usr/local.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

make_venv || exit 0
if ! build/venv/bin/python -c 'import hatchling' 2>/dev/null &&
    ! build/venv/bin/pip install --quiet --only-binary :all: 'hatchling>=1.27,<2'; then
    skip_here "the wheel: pip does not get hatchling" "ci/dist.sh, where pip reaches its package index"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/data"
cp -r "$1"/{bin,lib,share} "$work/data/"
find "$work"/data/share/{man,bash-completion,zsh,fish} -name '*gpuslice-agent*' -delete
cp LICENSE "$1/share/doc/gpuslice/licences.txt" ci/dist/hatch_build.py "$work/"
sed "s/@VERSION@/$VERSION/g" ci/dist/wheel.toml >"$work/pyproject.toml"
python=$PWD/build/venv/bin/python
if ! said=$(cd "$work" && "$python" -m hatchling build -t wheel -d "$2" 2>&1); then
    echo "$said" >&2
    exit 1
fi
