#!/usr/bin/env bash
# Builds the workspace for release and puts the simulated driver into target/simgpu/, for use through LD_LIBRARY_PATH. Gives the
# reader the name that programs linked with it ask for.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

TARGET=${CARGO_TARGET_DIR:-target}

stage() { # file that cargo built; name of the driver's library
    cp "$TARGET/release/$1" "$TARGET/simgpu/$2.new"
    mv "$TARGET/simgpu/$2.new" "$TARGET/simgpu/$2.1" # running programs keep the old one
    ln -sf "$2.1" "$TARGET/simgpu/$2"
}

cargo build --release --workspace
mkdir -p "$TARGET/simgpu"
stage libcuda.so libcuda.so
stage libnvidia_ml.so libnvidia-ml.so
ln -sf libgpuslice_read.so "$TARGET/release/libgpuslice_read.so.1"
echo "ok simulated driver: $TARGET/simgpu"
