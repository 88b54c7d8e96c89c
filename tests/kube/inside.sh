#!/usr/bin/env bash
# Runs a command as ci/kube.sh's cluster sees the machine: folders of its own where Kubernetes has its state, a network without
# other hosts. It is the first process of its namespace: every other one ends with it.
set -euo pipefail

mkdir -p "$RUN"/{lib,log}
mount --bind "$RUN/lib" /var/lib
mount --bind "$RUN/log" /var/log
mount -t tmpfs tmpfs /run
ip link set lo up
# The address of the node, and that of the service `kubernetes`, on which the apiserver itself listens.
ip link add node0 type bridge
ip address add 10.98.0.1/24 dev node0
ip address add 10.99.0.1/32 dev node0
ip link set node0 up
"$@"
