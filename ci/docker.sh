#!/usr/bin/env bash
# Fetches Docker's daemon and command into build/docker, in a version that reads CDI specifications, and also
# Compose. The script installs nothing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

OUT=$ROOT/build/docker APT=$ROOT/build/apt/docker
again="ci/docker.sh, where apt reaches Debian's newest packages"

if [ -x "$OUT/usr/sbin/dockerd" ] && [ -x "$OUT/usr/libexec/docker/cli-plugins/docker-compose" ]; then
    echo "ok docker: fetched before"
    exit 0
fi
if ! have apt-get || ! have dpkg; then
    skip_here "a slice by Docker: its daemon comes as a Debian package, and there is no apt-get" "on Debian"
    exit 0
fi
make_sources main sid
rm -rf "$OUT" "$OUT.new"
if ! unpack "$OUT.new" docker.io/sid docker-cli/sid containerd/sid docker-compose/sid; then
    skip_here "a slice by Docker: apt does not get its daemon" "$again"
    exit 0
fi
mv "$OUT.new" "$OUT"
# The C library of this machine may be older than the one that the packages need.
if ! version=$("$OUT/usr/sbin/dockerd" --version 2>&1); then
    rm -rf "$OUT"
    skip_here "a slice by Docker: its daemon does not start: $(head -1 <<<"$version")" "on a newer Debian"
    exit 0
fi
echo "ok docker: $version"
