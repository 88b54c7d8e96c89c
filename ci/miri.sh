#!/usr/bin/env bash
# Runs tests in miri, which detects undefined behaviour: those of the region's ledger, and of the boundary between the reader and
# programs in C. Of the other crates, policy has no unsafe code, and the rest of the unsafe code calls the system, which miri does
# not know. Takes half a minute. Miri is a part of nightly compilers.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

if ! cargo +nightly miri setup >/dev/null 2>&1; then
    skip "undefined behaviour, by miri: there is no nightly toolchain with it" "rustup toolchain install nightly --component miri --component rust-src"
    exit 0
fi
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/miri
# The tests of `process` are left out, because they read /proc.
cargo +nightly miri test --package gpuslice-region --lib -- --skip process::
cargo +nightly miri test --package gpuslice-reader --lib -- boundary::
