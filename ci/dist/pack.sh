#!/usr/bin/env bash
# Packs the output of ci/dist/portable.sh into a new folder: ci/dist/pack.sh FOLDER.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
need_cargo

[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2 && exit 2; }
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
OUT=$(realpath -m "$1") PARTS=$TARGET/portable
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export VERSION SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
PYTHON=$(find_python)
rm -rf "$OUT"
mkdir -p "$OUT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The top folders of the archive are those of /usr/local. The library lies in a folder that is named after its version. So a new
# version overwrites no file that programs have mapped, and programs of a running slice find their own version again.
lay_out() { # the tree's folder
    local share=$1/share name
    mkdir -p "$1"/{bin,include,lib/systemd/system,"lib/gpuslice/$VERSION"} "$share"/{man/man1,doc/gpuslice} \
        "$share"/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
    cp "$PARTS"/{gpuslice,gpuslice-agent} "$1/bin/"
    cp "$PARTS/libgpuslice.so" "$1/lib/gpuslice/$VERSION/"
    ln -s "$VERSION/libgpuslice.so" "$1/lib/gpuslice/libgpuslice.so"
    cp "$PARTS/libgpuslice_read.so" "$1/lib/libgpuslice_read.so.1"
    ln -s libgpuslice_read.so.1 "$1/lib/libgpuslice_read.so"
    cp include/*.h "$1/include/"
    cp examples/agent/gpuslice-agent.service "$1/lib/systemd/system/"
    cp LICENSE examples/agent/agent.toml "$share/doc/gpuslice/"
    "$PYTHON" ci/dist/licences.py >"$share/doc/gpuslice/licences.txt"
    "$PARTS/gpuslice" man "$share/man/man1" >/dev/null
    "$PARTS/gpuslice-agent" man >"$share/man/man1/gpuslice-agent.1"
    for name in gpuslice gpuslice-agent; do
        "$PARTS/$name" completions bash >"$share/bash-completion/completions/$name"
        "$PARTS/$name" completions zsh >"$share/zsh/site-functions/_$name"
        "$PARTS/$name" completions fish >"$share/fish/vendor_completions.d/$name.fish"
    done
}

tree=$work/tree
lay_out "$tree"
ci/dist/parts.sh "$OUT" "$tree/share/doc/gpuslice"
chmod -R u=rwX,go=rX "$tree"
find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

# The archive names no users of this machine. It contains files and no folders, because folders at the place of
# installation have rights of their own.
(cd "$tree" && find . ! -type d -printf '%P\n' | sort |
    tar -c --format=gnu --owner=0 --group=0 --numeric-owner --files-from=-) |
    gzip -n9 >"$OUT/gpuslice-$VERSION-x86_64-linux.tar.gz"
ci/dist/deb.sh "$tree" "$OUT"
ci/dist/wheel.sh "$tree" "$OUT"
(cd "$OUT" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
