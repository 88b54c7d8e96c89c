#!/usr/bin/env bash
# Builds the libraries and commands of a release in target/portable. They run with glibc 2.31 and newer, and need no other
# library than the C library. The linker uses the files of Debian 11, which the script fetches into build/debian11 and
# never installs. The same sources give the same bytes in any folder. Prints the sizes, and how much time the preload
# library adds to the start of a program.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
need_compilers

APT=$ROOT/build/apt/release TREE=$ROOT/build/debian11
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
OUT=$TARGET/portable LINK=$TARGET/portable/link
NEWEST=2.31

# Makes the files that the linker uses in place of the machine's own libraries. The unwinder comes from gcc 10, because its static
# one needs nothing newer than glibc 2.31. Rust links with it under the name `libgcc_s`. The script for the C library does not
# name the loader: the loader is in every process anyway, and with musl there is none of that name.
make_link() {
    local name gcc=$TREE/usr/lib/gcc/x86_64-linux-gnu/10 lib=$TREE/lib/x86_64-linux-gnu usr=$TREE/usr/lib/x86_64-linux-gnu
    rm -rf "$LINK"
    mkdir -p "$LINK"
    echo "INPUT($gcc/libgcc_eh.a $gcc/libgcc.a)" >"$LINK/libgcc_s.so"
    echo "GROUP($lib/libc.so.6 $usr/libc_nonshared.a)" >"$LINK/libc.so"
    # Debian's own links have absolute targets, which are outside of the tree.
    for name in libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1; do
        echo "INPUT($lib/$name)" >"$LINK/${name%.[0-9]}"
    done
}

if [ ! -e "$TREE/usr/lib/gcc/x86_64-linux-gnu/10/libgcc_eh.a" ]; then
    rm -rf "$TREE"
    if ! have apt-get || ! have dpkg || ! make_sources main bullseye ||
        ! unpack "$TREE" libc6/bullseye libc6-dev/bullseye libgcc-10-dev/bullseye; then
        skip_here "the portable library: apt does not get Debian 11's C library" "ci/dist.sh, where apt reaches Debian 11"
        exit 0
    fi
fi
make_link

wrong() {
    echo "FAIL $1"
    exit 1
}

# Replaces paths of this machine in messages, so that all machines build the same bytes. If several
# prefixes match, the last one counts.
remap() { # pairs FROM=TO
    local flags
    flags=$(printf '\x1f--remap-path-prefix=%s' "$@")
    export CARGO_ENCODED_RUSTFLAGS=${flags#?}
}
remap "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$ROOT=/gpuslice" "$OUT=/gpuslice/target/portable"

# Builds one library or program, checks what it needs at run time, and only then gives it its name.
make_portable() { # package; file that cargo makes of it; cargo's arguments for it
    local library=$OUT/$2 needed name open version
    CARGO_TARGET_DIR=$OUT cargo rustc --release --quiet --package "$1" "${@:3}" -- -C strip=symbols \
        -C link-arg="--sysroot=$TREE" -C link-arg="-L$LINK"
    cp "$OUT/release/$2" "$library.new"
    needed=$(readelf --dynamic --wide "$library.new" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | xargs)
    for name in $needed; do
        case $name in
            libc.so.6 | libdl.so.2 | libpthread.so.0) ;;
            *) wrong "$2 needs $name" ;;
        esac
    done
    # A symbol without a version comes from a library that is not linked. Only the loader is left out on purpose.
    open=$(readelf --dyn-syms --wide "$library.new" | awk '$5 == "GLOBAL" && $7 == "UND" && $8 !~ /@/ { print $8 }' | xargs)
    [ -z "${open#__tls_get_addr}" ] || wrong "$2 asks for $open without a version"
    version=$(readelf --version-info --wide "$library.new" | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -uV | tail -1)
    [ "$(printf '%s\n' "$version" $NEWEST | sort -V | tail -1)" = $NEWEST ] || wrong "$2 needs glibc $version"
    mv "$library.new" "$library"
    echo "ok $library: $(stat -c %s "$library") bytes, glibc $version, needs $needed"
}

library=$OUT/libgpuslice.so
make_portable gpuslice-shim libgpuslice.so --crate-type cdylib
make_portable gpuslice-reader libgpuslice_read.so --crate-type cdylib
make_portable gpuslice-cli gpuslice --bin gpuslice
make_portable gpuslice-agent gpuslice-agent --bin gpuslice-agent
ln -sf libgpuslice_read.so "$OUT/libgpuslice_read.so.1"
cc -O2 -o "$OUT/startup" tests/bench/startup.c
"$OUT/startup" "$library" | awk '{ # nanoseconds
    printf "microseconds to start /bin/true: bare %.0f, with the library %.0f, added %.0f\n", $2 / 1e3, $3 / 1e3, ($3 - $2) / 1e3 }'
