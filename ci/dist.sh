#!/usr/bin/env bash
# Makes the files of a release in target/dist: an archive, Debian packages, a wheel, bills of materials and checksums.
#   sudo tar -C /usr/local -xzf gpuslice-VERSION-x86_64-linux.tar.gz     any other folder works as well
#   sudo apt install ./*.deb
#   pip install gpuslice-VERSION-*.whl
# The same commit always gives the same bytes, because files carry the time of the commit (or SOURCE_DATE_EPOCH).
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
if ! find_python >/dev/null && ! { packages python3 python3-venv && find_python >/dev/null; }; then
    skip_here "the files of a release: there is no Python 3.11" "with Python 3.11 or newer"
    exit 0
fi
ci/dist/portable.sh
[ -e "$TARGET/portable/gpuslice-agent" ] || exit 0 # ci/dist/portable.sh has printed the reason
ci/dist/pack.sh "$TARGET/dist"

# After unpacking in another folder, the command must find its library. On a machine without a GPU, it
# must say why it shows no demo.
wrong() {
    echo "FAIL $archive: $1"
    exit 1
}
archive=$(echo "$TARGET"/dist/*.tar.gz)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
(cd "$TARGET/dist" && sha256sum --quiet --check SHA256SUMS) || wrong "its checksum"
tar -C "$place" -xzf "$archive"
bare=(env -i PATH="$place/bin:/usr/bin:/bin")
version=$("${bare[@]}" gpuslice --version | cut -d' ' -f2)
# shellcheck disable=SC2016 # the inner shell's variable
said=$("${bare[@]}" gpuslice run --mem 1GiB -- sh -c 'echo $LD_PRELOAD') &&
    [ "$said" = "$place/lib/gpuslice/$version/libgpuslice.so" ] || wrong "run preloads $said"
if said=$("${bare[@]}" gpuslice demo --simulated 2>&1) || [[ $said != *"of a source checkout"* ]]; then
    wrong "the demo says $said"
fi
(cd "$TARGET/dist" && stat -c '%n: %s bytes' -- *)
echo "ok $TARGET/dist"
