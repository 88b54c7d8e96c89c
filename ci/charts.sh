#!/usr/bin/env bash
# Brings the tools of the chart's tests into build/charts: helm, kubeconform, the schemas of Kubernetes, Kueue and Volcano's jobs,
# the protocols of the kubelet, and Kueue's chart for ci/kube.sh. All of it comes as modules of Go.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Modules of which only files are used, with the sums of Go's checksum database.
KUBERNETES=k8s.io/kubernetes@v1.36.3 KUBERNETES_SUM=h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o=
# The versions of the kubelet whose protocols the agent speaks.
KUBELETS=(1.36 k8s.io/kubelet@v0.36.3 h1:dRzEnhHk35Opy6wjWR4YBcN5RI9lB2npUY37TghFuPU=
    1.37 k8s.io/kubelet@v0.37.2 h1:AaRApKAcqmMD4pxmsxdghJHbTNfOxYOIlPCARw8+01A=)
OUT=$ROOT/build/charts
export GOTOOLCHAIN=local CGO_ENABLED=0

missing() { # why
    skip_here "the chart with helm and kubeconform: $1" "where Go 1.26 reaches its modules"
    exit 0
}
module() { # name; sum. Prints the folder of the module
    local told
    told=$(go mod download -json "$1") || return 1
    grep -qF "\"Sum\": \"$2\"" <<<"$told" || return 1
    sed -n 's/.*"Dir": "\(.*\)".*/\1/p' <<<"$told"
}
kueue_module() { # of the version that the cluster runs. Prints its folder
    cd tests/kube/queues && go mod download sigs.k8s.io/kueue && go list -m -f '{{.Dir}}' sigs.k8s.io/kueue
}
# Volcano's own module, which has the definition of its jobs, is not served. Its types are.
volcano_jobs() { # folder
    cd tests/kube/queues && go build -trimpath -o "$1/" sigs.k8s.io/controller-tools/cmd/controller-gen &&
        "$1/controller-gen" crd:maxDescLen=0 paths=volcano.sh/apis/pkg/apis/batch/v1alpha1 "output:crd:dir=$1/crd"
}

have go || missing "there is no Go"
mark=$(cat "$0" tests/packages/charts/go.mod tests/packages/charts/go.sum tests/kube/queues/go.sum | sha256sum)
if [ "$(cat "$OUT/mark" 2>/dev/null)" = "$mark" ]; then
    echo "ok charts: built before"
    exit 0
fi
kubernetes=$(module "$KUBERNETES" "$KUBERNETES_SUM") && kueue=$(kueue_module) || missing "modules cannot be had"
(cd tests/packages/charts && go mod download) || missing "modules cannot be had"
for ((i = 0; i < ${#KUBELETS[@]}; i += 3)); do
    kubelet=$(module "${KUBELETS[i + 1]}" "${KUBELETS[i + 2]}") || missing "modules cannot be had"
    mkdir -p "$OUT/kubelet"
    rm -rf "$OUT/kubelet/${KUBELETS[i]}"
    cp -r --no-preserve=mode "$kubelet/pkg/apis" "$OUT/kubelet/${KUBELETS[i]}"
done
mkdir -p "$OUT/crd"
install -m 644 "$kubernetes/api/openapi-spec/swagger.json" "$OUT/swagger.json"
install -m 644 "$kueue"/config/components/crd/bases/*.yaml "$OUT/crd/"
rm -rf "$OUT/kueue"
cp -r --no-preserve=mode "$kueue/charts/kueue" "$OUT/kueue"
(volcano_jobs "$OUT") || missing "modules cannot be had"
# The version of the cluster that helm assumes if there is no cluster.
helm=$(sed -n 's/^\thelm.sh\/helm\/v3 \(v[0-9.]*\).*/\1/p' tests/packages/charts/go.mod)
minor=$(cut -d. -f2 <<<"${KUBERNETES#*@}")
(cd tests/packages/charts && go build -trimpath -o "$OUT/" -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$helm \
    -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor" \
    helm.sh/helm/v3/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform)
printf '%s' "$mark" >"$OUT/mark"
echo "ok charts: helm $("$OUT/helm" version --template '{{.Version}}'), kubeconform"
