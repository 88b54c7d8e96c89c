"""The container engine, the schedulers, the controller manager, etcd and the apiserver are away for a while, as pods start and stop:
afterwards all pods run with their own limits, and nothing is left of those that are gone."""

import os
import signal
import threading
import time

import api
from cluster import kubectl, programs, until
from crashes import all_run, replicas
from slices import GPU_MIB, GPUS, check, nothing_left, pod, remove, running

# Pods of a round, one after the other. So many of them live at the same time.
PODS, LIVING = 10, 5
ROUNDS = 2
# Seconds from the kill to the start of the next process.
AWAY = 2


def containerd(cluster):
    away(cluster, "containerd")


def scheduler(cluster):
    kill_schedulers_of_pods(cluster)
    away(cluster, "kube-scheduler")


def kill_schedulers_of_pods(cluster):
    """Kills gpuslice's schedulers, which run beside that of the cluster. The kubelet starts their containers again."""
    for pid, _ in programs("kube-scheduler"):
        if cluster["kube-scheduler"].running.pid != pid:
            os.kill(pid, signal.SIGKILL)


def controllers(cluster):
    away(cluster, "kube-controller-manager")


def etcd(cluster):
    away(cluster, "etcd")


def apiserver(cluster):
    away(cluster, "kube-apiserver")


def away(cluster, name):
    cluster[name].kill()
    time.sleep(AWAY)
    cluster[name].start()


def scenario(cluster):
    took, kills, pods = {}, 0, 0
    for victim in (containerd, scheduler, controllers, etcd, apiserver):
        for number in range(ROUNDS):
            begun = time.monotonic()
            one(cluster, victim, f"{victim.__name__}-{number}")
            took[victim.__name__] = max(took.get(victim.__name__, 0), time.monotonic() - begun)
            kills, pods = kills + 1, pods + PODS
        print(f"  {victim.__name__}: at most {took[victim.__name__]:.1f} s a round", flush=True)
    left = nothing_left()
    # Neither the schedulers nor the agent count pods that are gone.
    whole = [f"whole-{number}" for number in range(GPUS)]
    for name in whole:
        api.make(pod(name, GPU_MIB, 100))
    check([running(name) for name in whole])
    remove(whole)
    return f"{kills} kills, {pods} pods and {kills} ReplicaSets: 0 wrong limits, 0 failed; nothing is left after {left:.0f} s, and whole GPUs are free"


def one(cluster, victim, label):
    """Makes and deletes pods, and kills `victim` among them."""
    killer = threading.Thread(target=victim, args=(cluster,))
    names = [f"{label}-{number}" for number in range(PODS)]
    for number, name in enumerate(names):
        surely(lambda: api.make(pod(name, 1000 + number, 8)))
        if number >= LIVING:
            surely(lambda: api.delete(names[number - LIVING], grace=number % 2))
        if number == LIVING:
            # Some pods run, some start, and one ends.
            killer.start()
            surely(lambda: replicas(label, {"metadata": {"labels": {"app": label}}, "spec": pod(label, 500, 5)["spec"]}))
        time.sleep(0.3)
    killer.join()
    until("the apiserver answers", cluster.ready, 60)
    living = [running(name, 120) for name in names[LIVING:]]
    replicated = until(f"{label}: its pods run", lambda: all_run(f"app%3D{label}"), 120)
    check([*living, *replicated])
    surely(lambda: kubectl("delete", "replicaset", label, "--wait=false"))
    remove(names)
    until(f"{label}: its pods are gone", lambda: not api.pods(selector=f"app%3D{label}"), 60)


def surely(act):
    """Repeats `act` until the apiserver has taken the object. An earlier try may have succeeded and its answer be lost."""

    def is_taken():
        try:
            act()
        except api.Refused as refused:
            return refused.status == 409
        return True

    until("the apiserver takes it", is_taken, 60)
