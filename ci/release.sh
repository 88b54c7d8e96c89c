#!/usr/bin/env bash
# Makes target/dist/gpuslice-VERSION-x86_64-linux.tar.gz and its checksum: the command line, the preload library, the reader
# with the headers, manual pages and completions. They run with glibc 2.31 and newer and need nothing but the C library.
#
# To install it: tar -C /usr/local -xzf gpuslice-VERSION-x86_64-linux.tar.gz     (any other folder works as well)
#
# The parts lie in target/portable/, too, linked against the files of Debian 11, which are fetched into build/debian11 and never
# installed. Prints their sizes, and what the preload library adds to a program's start.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

APT=$ROOT/build/apt/release TREE=$ROOT/build/debian11
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
OUT=$TARGET/portable LINK=$TARGET/portable/link
NEWEST=2.31

# What the linker is told to use instead of the machine's own libraries. The unwinder comes from gcc 10, whose static
# one asks for nothing newer than glibc 2.31; `libgcc_s` is the name under which Rust asks for it. The loader is left
# out of the C library's own script: it is in every process anyway, and musl has none of that name.
make_link() {
    local name gcc=$TREE/usr/lib/gcc/x86_64-linux-gnu/10 lib=$TREE/lib/x86_64-linux-gnu usr=$TREE/usr/lib/x86_64-linux-gnu
    rm -rf "$LINK"
    mkdir -p "$LINK"
    echo "INPUT($gcc/libgcc_eh.a $gcc/libgcc.a)" >"$LINK/libgcc_s.so"
    echo "GROUP($lib/libc.so.6 $usr/libc_nonshared.a)" >"$LINK/libc.so"
    # Debian's own names for these are absolute links, which lead out of the tree.
    for name in libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1; do
        echo "INPUT($lib/$name)" >"$LINK/${name%.[0-9]}"
    done
}

if [ ! -e "$TREE/usr/lib/gcc/x86_64-linux-gnu/10/libgcc_eh.a" ]; then
    rm -rf "$TREE"
    if ! have apt-get || ! have dpkg || ! make_sources main bullseye ||
        ! unpack "$TREE" libc6/bullseye libc6-dev/bullseye libgcc-10-dev/bullseye; then
        skip_here "the portable library: apt does not get Debian 11's C library" "ci/release.sh, where apt reaches Debian 11"
        exit 0
    fi
fi
make_link

wrong() {
    echo "FAIL $1"
    exit 1
}

# Builds one library or program, and looks at what it needs before it is given its place.
make_portable() { # package; what cargo makes of it; cargo's words for it
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
    # What has no version belongs to a library that was not linked with; the loader alone is left out on purpose.
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
ln -sf libgpuslice_read.so "$OUT/libgpuslice_read.so.1"
cc -O2 -o "$OUT/startup" tests/bench/startup.c
"$OUT/startup" "$library" | awk '{ # nanoseconds
    printf "microseconds to start /bin/true: bare %.0f, with the library %.0f, added %.0f\n", $2 / 1e3, $3 / 1e3, ($3 - $2) / 1e3 }'

# The archive has no folder of its own on top: its folders are those of /usr/local.
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
DIST=$TARGET/dist archive=gpuslice-$VERSION-x86_64-linux.tar.gz
tree=$DIST/tree share=$DIST/tree/share
rm -rf "$DIST"
mkdir -p "$tree"/{bin,include,lib/gpuslice} "$share"/{man/man1,doc/gpuslice,bash-completion/completions} \
    "$share"/{zsh/site-functions,fish/vendor_completions.d}
cp "$OUT/gpuslice" "$tree/bin/"
cp "$OUT/libgpuslice.so" "$tree/lib/gpuslice/"
cp "$OUT/libgpuslice_read.so" "$tree/lib/libgpuslice_read.so.1"
ln -s libgpuslice_read.so.1 "$tree/lib/libgpuslice_read.so"
cp include/*.h "$tree/include/"
cp LICENSE "$share/doc/gpuslice/"
"$OUT/gpuslice" man "$share/man/man1" >/dev/null
"$OUT/gpuslice" completions bash >"$share/bash-completion/completions/gpuslice"
"$OUT/gpuslice" completions zsh >"$share/zsh/site-functions/_gpuslice"
"$OUT/gpuslice" completions fish >"$share/fish/vendor_completions.d/gpuslice.fish"
chmod -R u=rwX,go=rX "$tree"
# The same bytes from the same sources: no times and no users of this machine. No folders, which have their own rights where
# it is installed.
(cd "$tree" && find ./* ! -type d | LC_ALL=C sort |
    tar -c --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" --transform='s|^[.]/||' --files-from=-) |
    gzip -n9 >"$DIST/$archive"
(cd "$DIST" && sha256sum "$archive" >"$archive.sha256")
rm -rf "$tree"

# Unpacked elsewhere, the command finds its library, and says why it shows no demo where there is no GPU.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
(cd "$DIST" && sha256sum --quiet --check "$archive.sha256") || wrong "$archive: its checksum"
tar -C "$place" -xzf "$DIST/$archive"
bare=(env -i PATH="$place/bin:/usr/bin:/bin")
said=$("${bare[@]}" gpuslice --version) && [ "$said" = "gpuslice $VERSION" ] || wrong "$archive: --version says $said"
# shellcheck disable=SC2016 # the inner shell's variable
said=$("${bare[@]}" gpuslice run --mem 1GiB -- sh -c 'echo $LD_PRELOAD') && [ "$said" = "$place/lib/gpuslice/libgpuslice.so" ] ||
    wrong "$archive: run preloads $said"
if said=$("${bare[@]}" gpuslice demo --simulated 2>&1) || [[ $said != *"of a source checkout"* ]]; then
    wrong "$archive: the demo says $said"
fi
echo "ok $DIST/$archive: $(stat -c %s "$DIST/$archive") bytes"
