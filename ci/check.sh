#!/usr/bin/env bash
# Checks formatting, lints, documentation and the licences of dependencies.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    echo "$0: there is no rustfmt or no clippy; rustup component add rustfmt clippy" >&2
    exit 127
fi

cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings
cargo fmt --manifest-path fuzz/Cargo.toml --check
cargo clippy --manifest-path fuzz/Cargo.toml --quiet -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet
if cargo deny --version >/dev/null 2>&1; then
    cargo deny check bans licenses sources
else
    skip "licences and sources of dependencies: there is no cargo-deny" "cargo install cargo-deny"
fi
for script in ci/*.sh ci/dist/*.sh tests/kube/*.sh .ci/run; do bash -n "$script"; done
echo "ok form"
