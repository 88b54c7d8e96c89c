#!/usr/bin/env bash
# Runs a command in the machine of ci/kube.sh's cluster. Kubernetes has folders of its own for its state there, and the network
# has no other hosts. The command is the first process of its namespace, and every other one ends with it.
set -euo pipefail

mkdir -p "$RUN"/{lib,log}
mount --bind "$RUN/lib" /var/lib
mount --bind "$RUN/log" /var/log
mount -t tmpfs tmpfs /run
ip link set lo up
# The address of the node, and the address of the service `kubernetes`, on which the apiserver itself listens.
ip link add node0 type bridge
ip address add 10.98.0.1/24 dev node0
ip address add 10.99.0.1/32 dev node0
ip link set node0 up
"$@"
