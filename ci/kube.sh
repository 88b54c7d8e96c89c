#!/usr/bin/env bash
# Runs gpuslice in a real Kubernetes cluster of one node on this machine. etcd, apiserver, controller manager, scheduler, kubelet,
# containerd and runc run in namespaces of their own. The GPUs are simulated. The script needs root. If a part is not available,
# it prints SKIP, or fails if GPUSLICE_REQUIRE_KUBE=1.
#   ci/kube.sh [SCENARIO...]    only these scenarios of tests/kube/scenarios, e.g. ci/kube.sh three_pods
# Everything is built and kept in build/kube. The first run takes about 25 minutes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

MODULE=$ROOT/tests/kube KUBE=$ROOT/build/kube APT=$ROOT/build/apt/kube
KEY=$(sha256sum "$MODULE/go.sum" | cut -c1-16)
BIN=$KUBE/$KEY/bin NODE=$KUBE/$KEY/node GO_TREE=$KUBE/go BASE=$KUBE/base RUN=$KUBE/run
VERSION=$(sed -n 's/^.*\bk8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$MODULE/go.mod")
# Kueue requires other versions of Kubernetes' packages, so it is a module of its own.
KUEUE=kueue-$(sed -n 's/^.*\bsigs.k8s.io\/kueue \(v[0-9.]*\).*/\1/p' "$MODULE/queues/go.mod")
what="a Kubernetes cluster"

finish() { # why there is no cluster
    if [ "${GPUSLICE_REQUIRE_KUBE:-}" = 1 ]; then
        echo "FAIL $what: $1"
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    fi
    skip_here "$what: $1" "${2:-ci/kube.sh as root, where apt reaches Debian and go reaches its proxy}"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

sources() { # once, and only if something has to be fetched
    [ -z "${has_sources:-}" ] || return 0
    make_sources main "$(suite)" "$(suite)-updates" "$(suite)-security" trixie-backports sid
    has_sources=1
}

# Finds the machine's Go if it is new enough, otherwise Debian's.
find_go() {
    export GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS="-buildvcs=false -mod=readonly -trimpath"
    local wanted
    wanted=$(sed -n 's/^go //p' "$MODULE/go.mod")
    new_enough() {
        local found
        found=$(go env GOVERSION 2>/dev/null) || return 1
        [ "$(printf '%s\n' "$wanted" "${found#go}" | sort -V | head -1)" = "$wanted" ]
    }
    new_enough && return 0
    local name=golang-${wanted%.*}
    if [ ! -x "$GO_TREE/usr/lib/go-${wanted%.*}/bin/go" ]; then
        sources
        unpack "$GO_TREE" "$name-go/trixie-backports" "$name-src/trixie-backports" || return 1
    fi
    PATH=$GO_TREE/usr/lib/go-${wanted%.*}/bin:$PATH
    new_enough
}

build() { # a package; the program's name; the folder of its module; variables that the linker sets
    [ ! -x "$BIN/$2" ] || return 0
    local begun=$SECONDS
    (cd "$3" && nice -n 10 go build -o "$BIN/$2.new" -ldflags "-s -w ${4:-}" "$1") >"$KUBE/$2.log" 2>&1 || return 1
    mv "$BIN/$2.new" "$BIN/$2"
    echo "built $2 in $((SECONDS - begun)) s"
}

version_of_kubernetes() {
    local version=k8s.io/component-base/version client=k8s.io/client-go/pkg/version
    echo "-X $version.gitVersion=$VERSION -X $version.gitMajor=1 -X $version.gitMinor=$(echo "$VERSION" | cut -d. -f2)" \
        "-X $client.gitVersion=$VERSION"
}

# Fetches the container engine: the newest that Debian has, because kubelets need its CDI.
fetch_node() {
    [ ! -x "$NODE/usr/sbin/runc" ] || return 0
    rm -rf "$NODE"
    sources
    unpack "$NODE.new" "containerd/sid" "runc/$(suite)" "containernetworking-plugins/$(suite)" || return 1
    mv "$NODE.new" "$NODE"
}

# Fetches the file system of all images: Python and a shell, with their dependencies. Its C library is the machine's, like that of
# the programs that ci/stage.sh builds.
fetch_base() {
    [ ! -x "$BASE/usr/bin/python3" ] || return 0
    sources
    root_file_system "$BASE" "$(suite)" python3 dash grep coreutils || return 1
}

# Makes the image of all pods, for each name in their manifests, and one with another preload library for an upgrade. Kueue has an
# image of its own.
make_images() {
    local tree=$KUBE/image target=${CARGO_TARGET_DIR:-$ROOT/target}/release
    rm -rf "$tree" "$KUBE"/image*.tar
    cp -a "$BASE" "$tree"
    mkdir -p "$tree/usr/local/bin" "$tree/usr/local/lib/gpuslice"
    cp "$target/gpuslice-agent" "$target/gpuslice" "$BIN/kube-scheduler" "$tree/usr/local/bin/"
    cp "$target/libgpuslice.so" "$tree/usr/local/lib/gpuslice/"
    echo 'int pause(void); int main(void) { for (;;) pause(); }' | cc -static -O -x c -o "$tree/pause" - || return 1
    make_image "$tree" 1 || return 1
    echo >>"$tree/usr/local/lib/gpuslice/libgpuslice.so" # the loader does not read behind the sections
    make_image "$tree" 2 || return 1
    rm -rf "$tree"
    mkdir "$tree"
    cp "$BIN/$KUEUE" "$tree/manager" # where Kueue's chart looks for it
    make_image "$tree" 3
    rm -rf "$tree"
}

make_image() { # folder; number
    local podman=(podman --root "$KUBE/podman" --runroot "$KUBE/podman/run" --storage-driver vfs --cgroup-manager cgroupfs)
    local name=localhost/pause:$2
    tar -C "$1" -c . | "${podman[@]}" import --quiet --change 'ENTRYPOINT ["/pause"]' \
        --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' - "$name" &&
        "${podman[@]}" save --quiet --format oci-archive -o "$KUBE/image$2.tar" "$name"
    local status=$?
    rm -rf "$KUBE/podman"
    return $status
}

[ "$(id -u)" = 0 ] || finish "only root can start one" "ci/kube.sh as root"
have apt-get && have dpkg || finish "containerd comes as a Debian package, and there is no apt-get"
why=$(unshare --mount --net --pid --fork ip link set lo up 2>&1) ||
    finish "no namespaces: ${why:-ip fails}" "where root may make namespaces (Docker: --privileged)"
[ -e /sys/fs/cgroup/memory ] || [ -e /sys/fs/cgroup/cgroup.controllers ] || finish "there are no cgroups in /sys/fs/cgroup"
packages podman openssl iproute2 libseccomp2 || finish "packages are missing"
need_compilers
find_python >/dev/null || packages python3 python3-venv || true
PYTHON=$(find_python) || finish "there is no Python 3.11"

mkdir -p "$BIN"
find_go || finish "there is no Go of $(sed -n 's/^go //p' "$MODULE/go.mod"), and apt does not get one"
variables=$(version_of_kubernetes)
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet; do
    build "k8s.io/kubernetes/cmd/$name" $name "$MODULE" "$variables" || finish "$name is not built: $(tail -1 "$KUBE/$name.log")"
done
build go.etcd.io/etcd/server/v3 etcd "$MODULE" || finish "etcd is not built: $(tail -1 "$KUBE/etcd.log")"
build sigs.k8s.io/kueue/cmd/kueue "$KUEUE" "$MODULE/queues" || finish "Kueue is not built: $(tail -1 "$KUBE/$KUEUE.log")"
ci/charts.sh
[ -x build/charts/helm ] || finish "helm is not built"
fetch_node || finish "apt does not get containerd, runc and the network plugins"
fetch_base || finish "apt does not get Python for the images"
nice -n 10 ci/stage.sh
make_images >"$KUBE/image.log" 2>&1 || finish "podman makes no image: $(tail -1 "$KUBE/image.log")"

"$BIN/kubelet" --version
"$BIN/etcd" --version | sed -n 1p # head would end before etcd has written its other lines, and etcd would fail
PATH=$NODE/usr/bin:$NODE/usr/sbin:$PATH
containerd --version
runc --version | sed -n 1p
uname -sr | sed 's/^/kernel /'

groups() { find /sys/fs/cgroup -mindepth 2 -type d | sort; }
before=$(groups)
# Processes and mounts of a cluster that was cut off end with its namespaces. Its empty cgroups are removed here.
remove() {
    comm -13 <(echo "$before") <(groups) | sort -r | xargs -r rmdir 2>/dev/null || true
    rm -rf --one-file-system "$RUN/lib" "$RUN/etcd" # the logs stay
}
trap remove EXIT
rm -rf --one-file-system "$RUN"
mkdir -p "$RUN"
export BIN NODE RUN
status=0
unshare --mount --net --pid --fork --mount-proc --kill-child=KILL tests/kube/inside.sh "$PYTHON" tests/kube/run.py "$@" || status=$?
exit $status
