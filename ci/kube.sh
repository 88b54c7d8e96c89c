#!/usr/bin/env bash
# Runs gpuslice in a real Kubernetes cluster of one node, on this machine. etcd, apiserver, controller manager, scheduler,
# kubelet, containerd and runc run in namespaces of their own. The GPUs are simulated. The script needs root. If a program of the
# cluster cannot be had, it prints SKIP. With GPUSLICE_REQUIRE_KUBE=1 it fails then.
#   ci/kube.sh [SCENARIO...]    runs only these scenarios of tests/kube/scenarios, e.g. ci/kube.sh three_pods
# The script builds everything in build/kube, and keeps it there. The first run takes about 25 minutes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

MODULE=$ROOT/tests/kube KUBE=$ROOT/build/kube APT=$ROOT/build/apt/kube
KEY=$(sha256sum "$MODULE/go.sum" | cut -c1-16)
BIN=$KUBE/$KEY/bin NODE=$KUBE/$KEY/node GO_TREE=$KUBE/go BASE=$KUBE/base RUN=$KUBE/run
VERSION=$(sed -n 's/^.*\bk8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$MODULE/go.mod")
# Kueue requires other versions of Kubernetes' packages than the rest. So it is built as a module of its own.
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

sources() { # makes the list of sources once, and only if something must be fetched
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

# Fetches the container engine. It is the newest one that Debian has, because the kubelets need an engine that knows CDI.
fetch_node() {
    [ ! -x "$NODE/usr/sbin/runc" ] || return 0
    rm -rf "$NODE"
    sources
    unpack "$NODE.new" "containerd/sid" "runc/$(suite)" "containernetworking-plugins/$(suite)" || return 1
    mv "$NODE.new" "$NODE"
}

# Fetches the file system for all images: Python and a shell, with their dependencies. The C library is of the same release as
# this machine's, because ci/stage.sh builds programs for it.
fetch_base() {
    [ ! -x "$BASE/usr/bin/python3" ] || return 0
    sources
    root_file_system "$BASE" "$(suite)" python3 dash grep coreutils || return 1
}

# Makes three images. The first is the image of all pods, under each name in their manifests. The second differs only in its
# preload library, for an upgrade. The third is Kueue's.
make_images() {
    local tree=$KUBE/image target=${CARGO_TARGET_DIR:-$ROOT/target}/release
    rm -rf "$tree" "$KUBE"/image*.tar
    cp -a "$BASE" "$tree"
    mkdir -p "$tree/usr/local/bin" "$tree/usr/local/lib/gpuslice"
    cp "$target/gpuslice-agent" "$target/gpuslice" "$BIN/kube-scheduler" "$tree/usr/local/bin/"
    cp "$target/libgpuslice.so" "$tree/usr/local/lib/gpuslice/"
    echo 'int pause(void); int main(void) { for (;;) pause(); }' | cc -static -O -x c -o "$tree/pause" - || return 1
    make_image "$tree" 1 || return 1
    echo >>"$tree/usr/local/lib/gpuslice/libgpuslice.so" # changes the file; the loader does not read after the sections
    make_image "$tree" 2 || return 1
    rm -rf "$tree"
    mkdir "$tree"
    cp "$BIN/$KUEUE" "$tree/manager" # Kueue's chart expects it here
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
"$BIN/etcd" --version | sed -n 1p # head would end before etcd has written its other lines, and then etcd would fail
PATH=$NODE/usr/bin:$NODE/usr/sbin:$PATH
containerd --version
runc --version | sed -n 1p
uname -sr | sed 's/^/kernel /'

groups() { find /sys/fs/cgroup -mindepth 2 -type d | sort; }
before=$(groups)
# If a run is cut off, its processes and mounts end with its namespaces, but its empty cgroups stay. They are removed here.
remove() {
    comm -13 <(echo "$before") <(groups) | sort -r | xargs -r rmdir 2>/dev/null || true
    rm -rf --one-file-system "$RUN/lib" "$RUN/etcd" # the log files stay
}
trap remove EXIT
rm -rf --one-file-system "$RUN"
mkdir -p "$RUN"
export BIN NODE RUN
status=0
unshare --mount --net --pid --fork --mount-proc --kill-child=KILL tests/kube/inside.sh "$PYTHON" tests/kube/run.py "$@" || status=$?
exit $status
