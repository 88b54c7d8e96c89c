#!/usr/bin/env bash
# Fetches NVIDIA's own driver libraries of several series into build/drivers/<series>/. The script needs no GPU, installs nothing,
# and does not change the state of the machine's own apt.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

OUT=$ROOT/build/drivers APT=$ROOT/build/apt/drivers
again="ci/drivers.sh, where apt reaches Debian's non-free packages"
SERIES="470 libcuda1 libnvidia-ml1 nvidia-smi
525 libnvidia-tesla-cuda1 libnvidia-tesla-ml1 nvidia-tesla-smi
535 libcuda1 libnvidia-ml1 nvidia-smi
550 libcuda1 libnvidia-ml1 nvidia-smi
555 libcuda1 libnvidia-ml1 nvidia-smi"
SUITES="bullseye bookworm bookworm-security trixie sid experimental"

fetch() { # series; its packages
    local dir=$OUT/$1 root=$APT/root package version wanted=()
    rm -rf "$dir" "$root"
    mkdir -p "$dir"
    for package in "${@:2}"; do
        version=$(private apt-cache madison "$package" | awk -v s="$1." 'index($3, s) == 1 { print $3; exit }')
        [ -n "$version" ] || return 1
        wanted+=("$package=$version")
    done
    unpack "$root" "${wanted[@]}" || return 1
    find "$root" -type f \( -name 'libcuda.so.*' -o -name 'libnvidia-ml.so.*' -o -name nvidia-smi \) -exec mv {} "$dir" \;
    for package in cuda nvidia-ml; do
        (cd "$dir" && ln -s lib$package.so.[0-9]*.* lib$package.so.1 && ln -s lib$package.so.1 lib$package.so)
    done
    rm -rf "$root"
}

# Prints "<driver> <CUDA version>" as the libraries report them. This works without a GPU.
ask() {
    python3 - "$1" <<'PYTHON'
import ctypes, glob, sys
version = ctypes.c_int()
assert ctypes.CDLL(f"{sys.argv[1]}/libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0
ctypes.CDLL(f"{sys.argv[1]}/libnvidia-ml.so.1").nvmlInit_v2
(file,) = glob.glob(f"{sys.argv[1]}/libcuda.so.*.*")
print(file.rsplit(".so.")[1], version.value)
PYTHON
}

if ! have apt-get || ! have dpkg; then
    skip_here "real driver libraries: they come as Debian packages, and there is no apt-get" "$again"
    exit 0
fi
have python3 || packages python3 || exit 0 # `ask` uses Python to get the versions from the libraries
sources=
while read -ra row; do
    series=${row[0]} dir=$OUT/${row[0]}
    if [ ! -s "$dir/version" ]; then
        # shellcheck disable=SC2086 # words
        [ -n "$sources" ] || make_sources non-free $SUITES
        sources=made
        if fetch "${row[@]}" && ask "$dir" >"$dir/asked"; then
            mv "$dir/asked" "$dir/version"
        else
            rm -rf "$dir" "$APT/root"
            skip_here "driver $series: apt does not get it" "$again"
            continue
        fi
    fi
    echo "ok driver $series: $(cat "$dir/version")"
done <<<"$SERIES"
