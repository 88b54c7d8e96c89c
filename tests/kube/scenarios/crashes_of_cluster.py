"""The container engine, the schedulers, the controller manager and etcd are killed at the steps of a pod: no pod fails, no
container has other limits than its own, and no slot, specification or region is left."""

import time

from cluster import until
from crashes import STEPS, one
from outages import kill_schedulers_of_pods
from slices import nothing_left


def containerd(cluster):
    cluster.restart("containerd")


def scheduler(cluster):
    kill_schedulers_of_pods(cluster)
    cluster.restart("kube-scheduler")


def controllers(cluster):
    cluster.restart("kube-controller-manager")


def etcd(cluster):
    cluster.restart("etcd")
    until("the apiserver answers", cluster.ready, 60)


# The steps at which a process has work. At the others it only waits.
VICTIMS = {
    containerd: ("bound", "specified", "running", "deleted"),
    scheduler: ("made", "patched", "bound"),
    controllers: ("made", "running", "deleted"),
    etcd: STEPS,
}


def scenario(cluster):
    begun, failed, kills = time.monotonic(), {}, 0
    for victim, steps in VICTIMS.items():
        for step in steps:
            kills += 1
            if number := one(cluster, victim, step):
                failed[f"{victim.__name__} {step}"] = number
        print(f"  {victim.__name__}: over after {time.monotonic() - begun:.0f} s", flush=True)
    assert not failed, f"pods that failed: {failed}"
    left = nothing_left()
    return f"{kills} kills, 0 wrong limits, 0 failed; nothing is left after {left:.0f} s"
