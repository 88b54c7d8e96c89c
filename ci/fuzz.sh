#!/usr/bin/env bash
# Gives random content to the code that reads regions, arbiters' files, configurations and lines to the agent, SECONDS for each
# (10 without an argument): ci/fuzz.sh [SECONDS [SEED]]. No coverage guides the choices, because that needs a nightly compiler.
# Prints the seed. Keeps an input that fails in build/fuzz.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
need_compilers

seconds=${1:-10} seed=${2:-$(od -An -N7 -tu8 /dev/urandom | tr -d ' ')}
target=${CARGO_TARGET_DIR:-$ROOT/fuzz/target}
kept=$ROOT/build/fuzz
mkdir -p "$kept"
CARGO_TARGET_DIR=$target cargo build --release --quiet --locked --manifest-path fuzz/Cargo.toml

passed=0 failed=0
for name in region arbiter_leases config control; do
    folder=$(mktemp -d /dev/shm/gpuslice-fuzz.XXXXXX) # this file system supports locks
    status=0
    "$target/release/gpuslice-fuzz" $name "$seconds" "$seed" "$folder" || status=$?
    if [ $status = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        case=$(cat "$folder/$name.case")
        for file in "$folder/$name.$case.failed" "$folder/region"; do
            [ ! -e "$file" ] || cp "$file" "$kept/$name.$case.${file##*[./]}"
        done
        echo "FAIL $name, exit $status, seed $seed, kept in build/fuzz; to try it again:"
        echo "  $target/release/gpuslice-fuzz $name case $case \$(mktemp -d -p /dev/shm)"
    fi
    rm -rf "$folder"
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
