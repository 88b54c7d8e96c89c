#!/usr/bin/env bash
# Builds the workspace for release. Puts the simulated driver into target/simgpu/, where programs find it by LD_LIBRARY_PATH.
# Gives the reader library the name by which programs load it that are linked with it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

TARGET=${CARGO_TARGET_DIR:-target}

stage() { # file that cargo built; name of the driver's library
    cp "$TARGET/release/$1" "$TARGET/simgpu/$2.new"
    mv "$TARGET/simgpu/$2.new" "$TARGET/simgpu/$2.1" # programs that run keep the old file
    ln -sf "$2.1" "$TARGET/simgpu/$2"
}

cargo build --release --workspace
mkdir -p "$TARGET/simgpu"
stage libcuda.so libcuda.so
stage libnvidia_ml.so libnvidia-ml.so
ln -sf libgpuslice_read.so "$TARGET/release/libgpuslice_read.so.1"
echo "ok simulated driver: $TARGET/simgpu"
