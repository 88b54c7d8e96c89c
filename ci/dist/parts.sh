#!/usr/bin/env bash
# Writes a software bill of materials for each library and command of a release, in the CycloneDX format: ci/dist/parts.sh
# FOLDER... Each folder gets the same files. Installs cargo-cyclonedx in build/tools if it is missing.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
need_cargo

TOOL=0.5.9
PATH=$ROOT/build/tools/bin:$PATH
# This builds the tool without optimisation, because the tool runs for one second only, and so compiles in half of the time.
if ! cargo cyclonedx --version >/dev/null 2>&1 &&
    ! cargo install --quiet --locked --debug --root build/tools --version "$TOOL" cargo-cyclonedx 2>/dev/null; then
    skip_here "lists of parts: cargo does not get cargo-cyclonedx" "ci/dist.sh, where cargo reaches its registry"
    exit 0
fi
# The tool writes each file beside the manifest of its package.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r Cargo.toml Cargo.lock src examples "$work/"
(cd "$work" && cargo cyclonedx -qq --format json --spec-version 1.5 --describe binaries --no-build-deps \
    --target x86_64-unknown-linux-gnu)
for part in shim/gpuslice_cdylib:libgpuslice.so reader/gpuslice_read_cdylib-staticlib:libgpuslice_read.so \
    cli/gpuslice_bin:gpuslice agent/gpuslice-agent_bin:gpuslice-agent; do
    for folder in "$@"; do
        sed "s|file://$work|file:///gpuslice|g" "$work/src/${part%:*}.cdx.json" >"$folder/${part#*:}.cdx.json"
    done
done
