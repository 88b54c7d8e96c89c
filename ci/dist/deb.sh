#!/usr/bin/env bash
# Makes Debian packages from the tree of a release: ci/dist/deb.sh TREE FOLDER. ci/dist/pack.sh sets the environment.
#
# There are two packages, like those of a Linux kernel. `gpuslice` follows the newest version. The package of the library has the
# version in its name, so an upgrade leaves the old library in place. Programs of a running slice load that one again.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

if ! have dpkg-deb; then
    skip "Debian packages: there is no dpkg-deb" "apt-get install dpkg"
    exit 0
fi
tree=$1 out=$2 library=libgpuslice-$VERSION
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

control() { # package; a line that describes it; further fields
    local root=$work/$1 field
    mkdir -p "$root/DEBIAN" "$root/usr/share/doc/$1"
    cp "$tree/share/doc/gpuslice/LICENSE" "$root/usr/share/doc/$1/copyright"
    {
        printf '%s\n' "Package: $1" "Version: $VERSION" "Architecture: amd64" "Section: admin" "Priority: optional" \
            "Maintainer: gpuslice <packages@gpuslice.invalid>" "${@:3}" \
            "Installed-Size: $(find "$root/usr" -type f -printf '%s\n' | awk '{ sum += $1 } END { print int(sum / 1024) + 1 }')" \
            "Description: $2" " Each container or program on an NVIDIA GPU gets a quota of memory and a share of time."
    } >"$root/DEBIAN/control"
    (cd "$root" && find usr -type f | sort | xargs md5sum) >"$root/DEBIAN/md5sums"
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    chmod -R u=rwX,go=rX "$root"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/$1_${VERSION}_amd64.deb" >/dev/null
}

mkdir -p "$work/$library/usr/lib/gpuslice" "$work/$library/DEBIAN"
mkdir -p "$work/gpuslice/DEBIAN"
cp -r "$tree" "$work/gpuslice/usr"
mv "$work/gpuslice/usr/lib/gpuslice/$VERSION" "$work/$library/usr/lib/gpuslice/"
gzip -n9 "$work"/gpuslice/usr/share/man/man1/*.1
# In a distribution, zsh and fish search these folders for completions.
mkdir -p "$work/gpuslice/usr/share/zsh/vendor-completions"
mv "$work"/gpuslice/usr/share/zsh/site-functions/_* "$work/gpuslice/usr/share/zsh/vendor-completions/"
rmdir "$work/gpuslice/usr/share/zsh/site-functions"

sed "s/@VERSION@/$VERSION/g" ci/dist/library.prerm >"$work/$library/DEBIAN/prerm"
cp ci/dist/agent.prerm "$work/gpuslice/DEBIAN/prerm"
chmod 755 "$work/$library/DEBIAN/prerm" "$work/gpuslice/DEBIAN/prerm"
control "$library" "preload library of gpuslice $VERSION" "Depends: libc6 (>= 2.31)"
control gpuslice "slices of an NVIDIA GPU: memory quotas and shares of time" \
    "Depends: $library (= $VERSION), libc6 (>= 2.31)"
