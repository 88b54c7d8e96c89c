"""The agent, the kubelet, the apiserver and the extender are killed at each step of a pod: no slot, specification or region is
left, and no container has other limits than its own."""

import os
import signal
import threading
import time

import api
from cluster import kubectl, programs, until
from gate import Gate
from slices import SPECS, check, nothing_left, pod

PODS = 2
STEPS = ("made", "patched", "bound", "specified", "running", "deleted")


def agent(cluster):
    kill_program("run")


def extender(cluster):
    kill_program("extender")


def kubelet(cluster):
    cluster.restart("kubelet")


def apiserver(cluster):
    cluster.restart("kube-apiserver")
    until("the apiserver answers", cluster.ready, 60)


def kill_program(subcommand):
    """Kills the agent of a pod. The kubelet restarts its container."""
    found = [pid for pid, words in programs("gpuslice-agent") if subcommand in words]
    assert found, f"no gpuslice-agent {subcommand} runs"
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def scenario(cluster):
    failed, kills = {}, 0
    for victim in (agent, kubelet, apiserver, extender):
        for step in STEPS:
            kills += 1
            if number := one(cluster, victim, step):
                failed[f"{victim.__name__} {step}"] = number
        nothing_left()
    replaced = ", ".join(f"{what}: {number}" for what, number in failed.items()) or "none"
    return f"{kills} kills, 0 wrong limits, nothing left; pods that failed at admission and were replaced: {replaced}"


def one(cluster, victim, step):
    """Kills `victim` when a pod of a new ReplicaSet reaches `step`. Returns the number of pods that failed."""
    name = f"{victim.__name__}-{step}"
    killed = threading.Event()

    def kill():
        if not killed.is_set():
            killed.set()
            victim(cluster)

    def on_bind(bound):
        # The apiserver waits for the answer, so it would wait for its own successor.
        if step == "patched" and bound.startswith(name) and not killed.is_set():
            threading.Thread(target=kill).start()
            killed.wait()
            time.sleep(0.2 if victim is apiserver else 0)

    before = set(SPECS.glob("*slot-*"))
    with Gate(on_bind):
        template = pod(name, 3000, 30)
        replicas(name, {"metadata": {"labels": {"app": name}}, "spec": template["spec"]})
        selector = f"app%3D{name}"

        def reached():
            if step == "made":
                return True
            found = api.pods(selector=selector)
            return {
                "patched": killed.is_set(),
                "bound": any(pod["spec"].get("nodeName") for pod in found),
                "specified": bool(set(SPECS.glob("*slot-*")) - before),
                "running": any(pod["status"].get("phase") == "Running" for pod in found),
                "deleted": sum(pod["status"].get("phase") == "Running" for pod in found) == PODS,
            }[step]

        until(f"{name}: the step is reached", reached, 60, 0.005)
        if step == "deleted":
            kubectl("delete", "replicaset", name, "--wait=false")
        kill()
        failed = 0
        if step != "deleted":
            pods = until(f"{name}: all pods run", lambda: all_run(selector), 120)
            check(pods)
            failed = sum(pod["status"].get("phase") == "Failed" for pod in api.pods(selector=selector))
            until("it is deleted", lambda: kubectl("delete", "replicaset", name, "--wait=false", "--ignore-not-found") or True)
        until(f"{name}: the pods are gone", lambda: not api.pods(selector=selector), 90)
    return failed


def all_run(selector):
    alive = [pod for pod in api.pods(selector=selector) if pod["status"].get("phase") != "Failed"]
    is_ready = len(alive) == PODS and all(pod["status"].get("phase") == "Running" for pod in alive)
    return is_ready and alive


def replicas(name, template):
    """Makes a ReplicaSet of pods with the label `app` of this name."""
    spec = {"replicas": PODS, "selector": {"matchLabels": {"app": name}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}
    api.call("POST", "/apis/apps/v1/namespaces/default/replicasets", body)
