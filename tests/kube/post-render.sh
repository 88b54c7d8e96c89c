#!/usr/bin/env bash
# Changes the objects that helm renders from the chart, for a node whose GPUs are simulated. Reads and prints objects.
set -euo pipefail
folder=$RUN/rendered # kustomize takes relative paths only
mkdir -p "$folder"
cat >"$folder/all.yaml"
simulated=$(realpath --relative-to="$folder" "$(dirname "$0")/simulated")
printf '%s\n' "resources: [all.yaml]" "components: [$simulated]" >"$folder/kustomization.yaml"
"$BIN/kubectl" kustomize "$folder"
