"""The agent, the kubelet and the apiserver are killed at each step of a pod with a claim: no pod fails, no specification or region
is left, and no container has other limits than its own."""

import time

import api
import claims
from cluster import kubectl, until
from crashes import PODS, agent, apiserver, kubelet, replicas
from slices import SPECS, all_run, nothing_left

STEPS = ("made", "bound", "specified", "running", "deleted")


def scenario(cluster):
    kills = 0
    for victim in (agent, kubelet, apiserver):
        for step in STEPS:
            begun = time.monotonic()
            one(cluster, victim, step)
            print(f"  {victim.__name__} {step}: {time.monotonic() - begun:.1f} s", flush=True)
            kills += 1
        nothing_left()
    return f"{kills} kills, 0 wrong limits, 0 failed pods, nothing left"


def one(cluster, victim, step):
    """Kills `victim` when a pod of a new ReplicaSet reaches `step`."""
    name = f"claimed-{victim.__name__}-{step}"
    selector, before = f"app%3D{name}", set(SPECS.glob("*claim-*"))
    template = {"metadata": {"name": name}, "spec": {"spec": claims.request(3000, 30)}}
    api.call("POST", f"{claims.RESOURCES}/namespaces/default/resourceclaimtemplates", template)
    replicas(name, claims.with_claim({"resourceClaimTemplateName": name}, name))

    def reached():
        found = api.pods(selector=selector)
        run = sum(pod["status"].get("phase") == "Running" for pod in found)
        return {
            "made": True,
            "bound": any(pod["spec"].get("nodeName") for pod in found),
            "specified": bool(set(SPECS.glob("*claim-*")) - before),
            "running": run > 0,
            "deleted": run == PODS,
        }[step]

    # The kubelet may have found no agent at its first try.
    until(f"{name}: the step is reached", reached, 120, 0.005)
    if step == "deleted":
        kubectl("delete", "replicaset", name, "--wait=false")
    victim(cluster)
    if step != "deleted":
        claims.check(until(f"{name}: all pods run", lambda: all_run(selector, PODS), 120))
        until("it is deleted", lambda: kubectl("delete", "replicaset", name, "--wait=false", "--ignore-not-found") or True)
    until(f"{name}: the pods are gone", lambda: not api.pods(selector=selector), 90)
    kubectl("delete", "resourceclaimtemplate", name)
