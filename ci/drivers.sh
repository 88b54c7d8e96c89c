#!/usr/bin/env bash
# Brings real NVIDIA driver libraries of several series into build/drivers/<series>/. No GPU is needed, nothing is
# installed, and the machine's own apt state stays as it is.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

OUT=$ROOT/build/drivers APT=$ROOT/build/apt
again="ci/drivers.sh, where apt reaches Debian's non-free packages"
SERIES="470 libcuda1 libnvidia-ml1 nvidia-smi
525 libnvidia-tesla-cuda1 libnvidia-tesla-ml1 nvidia-tesla-smi
535 libcuda1 libnvidia-ml1 nvidia-smi
550 libcuda1 libnvidia-ml1 nvidia-smi
555 libcuda1 libnvidia-ml1 nvidia-smi"
SUITES="bullseye bookworm trixie sid experimental"

private() { # an apt program with our sources and state
    "$1" -q -o Dir::Etc::sourcelist="$APT/sources" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferencesparts=- \
        -o Dir::State="$APT/state" -o Dir::State::status="$APT/status" -o Dir::Cache="$APT/cache" \
        -o APT::Sandbox::User=root -o Acquire::Languages=none "${@:2}"
}

# The mirror is the one the machine uses; only the suites and the component are ours.
make_sources() {
    mkdir -p "$APT/state/lists/partial" "$APT/cache/archives/partial"
    : >"$APT/status"
    local uri release keyring suites line options=
    for keyring in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do
        [ ! -r "$keyring" ] || options="[signed-by=$keyring] "
    done
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Identifier: Packages' | sort -u |
        while read -r uri release; do
            case $release in
                *-security) suites="bookworm-security" ;;
                *[-/]*) continue ;;
                *) suites=$SUITES ;;
            esac
            for line in $suites; do echo "deb $options$uri $line non-free"; done
        done | sort -u >"$APT/sources"
    private apt-get update >"$APT/update.log" 2>&1 || true # a suite that is not to be had fails alone
}

fetch() { # series; its packages
    local dir=$OUT/$1 part=$APT/part.$1 package version
    rm -rf "$dir" "$part"
    mkdir -p "$dir" "$part"
    for package in "${@:2}"; do
        version=$(private apt-cache madison "$package" | awk -v s="$1." 'index($3, s) == 1 { print $3; exit }')
        [ -n "$version" ] || return 1
        (cd "$part" && private apt-get download "$package=$version" >>"$APT/download.log" 2>&1) || return 1
    done
    for package in "$part"/*.deb; do dpkg -x "$package" "$part/root"; done
    find "$part/root" -type f \( -name 'libcuda.so.*' -o -name 'libnvidia-ml.so.*' -o -name nvidia-smi \) -exec mv {} "$dir" \;
    for package in cuda nvidia-ml; do
        (cd "$dir" && ln -s lib$package.so.[0-9]*.* lib$package.so.1 && ln -s lib$package.so.1 lib$package.so)
    done
    rm -rf "$part"
}

# Prints "<driver> <CUDA version>" as the libraries themselves say it, without a GPU.
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

if ! have apt-get || ! have dpkg || ! have python3; then
    skip "real driver libraries" "run $again"
    exit 0
fi
sources=
while read -ra row; do
    series=${row[0]} dir=$OUT/${row[0]}
    if [ ! -s "$dir/version" ]; then
        [ -n "$sources" ] || make_sources
        sources=made
        if fetch "${row[@]}" && ask "$dir" >"$dir/asked"; then
            mv "$dir/asked" "$dir/version"
        else
            rm -rf "$dir" "$APT/part.$series"
            skip "driver $series" "run $again"
            continue
        fi
    fi
    echo "ok driver $series: $(cat "$dir/version")"
done <<<"$SERIES"
