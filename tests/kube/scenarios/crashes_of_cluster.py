"""The container engine, the schedulers, the controller manager and etcd are killed at each step of a pod: no pod fails, no container
has other limits than its own, and no slot, specification or region is left."""

import os
import signal
import time

from cluster import programs, until
from crashes import STEPS, one
from slices import nothing_left


def containerd(cluster):
    cluster.restart("containerd")


def scheduler(cluster):
    # Of the cluster, and of gpuslice. The kubelet restarts those in pods.
    own = cluster["kube-scheduler"].running.pid
    for pid, _ in programs("kube-scheduler"):
        if pid != own:
            os.kill(pid, signal.SIGKILL)
    cluster.restart("kube-scheduler")


def controllers(cluster):
    cluster.restart("kube-controller-manager")


def etcd(cluster):
    cluster.restart("etcd")
    until("the apiserver answers", cluster.ready, 60)


def scenario(cluster):
    begun, failed = time.monotonic(), {}
    for victim in (containerd, scheduler, controllers, etcd):
        for step in STEPS:
            if number := one(cluster, victim, step):
                failed[f"{victim.__name__} {step}"] = number
        print(f"  {victim.__name__}: over after {time.monotonic() - begun:.0f} s", flush=True)
    assert not failed, f"pods that failed: {failed}"
    left = nothing_left(90)
    return f"{4 * len(STEPS)} kills, 0 wrong limits, 0 failed; nothing is left after {left:.0f} s"
