#!/usr/bin/env bash
# Makes root file systems for the containers of tests/agent, in build/bases, from Debian's packages. `here` has packages of this
# machine's release, whose C library runs programs that are built here. `debian11` has those of Debian 11, whose glibc 2.31 is the
# oldest one that the portable library works with. `podman` has Podman of Debian 13, whose `kube play` accepts names of devices.
# The script installs nothing on this machine.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

OUT=$ROOT/build/bases APT=$ROOT/build/apt/bases
what="containers of Debian's packages"

bring() { # name; suite; packages
    if [ -e "$OUT/$1" ]; then
        echo "ok $1: fetched before"
        return
    fi
    make_sources main "${@:2:1}"
    if root_file_system "$OUT/$1" "${@:2}"; then
        echo "ok $1: $(du -sm "$OUT/$1" | cut -f1) MiB"
    else
        skip_here "$what: apt does not get the packages of $2" "ci/bases.sh, where apt reaches Debian's packages"
    fi
}

if ! have apt-get || ! have dpkg; then
    skip_here "$what: there is no apt-get" "on Debian"
    exit 0
fi
mkdir -p "$OUT"
# The tests use `unshare`, which is in util-linux, and perl, which writes to regions.
bring here "$(suite)" dash coreutils util-linux perl-base
bring debian11 bullseye dash coreutils
# The last three packages have the programs that the tests start beside the engine.
bring podman trixie podman runc conmon catatonit dash coreutils util-linux mount
