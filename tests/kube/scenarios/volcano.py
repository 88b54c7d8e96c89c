"""Volcano's example on a node with one GPU. Volcano is not run: the scenario makes the job's pods, and the cluster's own
scheduler places them. Like Volcano's, it counts resources and knows no GPUs."""

import api
from cluster import kubectl, skip, until
from one_gpu import check
from slices import all_run, nothing_left, remove, why_not

EXAMPLE = "examples/kubernetes/volcano.yaml"
DEFINITION = "build/charts/crd/batch.volcano.sh_jobs.yaml"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


def scenario(_):
    skip("volcano.yaml with Volcano's scheduler and controllers: Volcano's module is not served", "on a cluster that has Volcano")
    job = job_of_example()
    (task,) = job["spec"]["tasks"]
    assert job["spec"]["minAvailable"] == task["replicas"] == 2, job
    names = [f"together-{number}" for number in range(4)]
    for name in names[:3]:
        make(name, task)
    gpu = check(until("three pods run", lambda: all_run("app%3Dtogether", 3), 60))
    # 30 % of a fourth pod are more than the node has left.
    make(names[3], task)
    until("the fourth waits", lambda: "Insufficient gpuslice.dev/core-percent" in why_not(names[3]), 30)
    assert not api.pod(names[3])["spec"].get("nodeName"), "it is placed"
    remove(names[:1])
    until("the fourth runs", lambda: all_run("app%3Dtogether", 3), 60)
    assert check(api.pods(selector="app%3Dtogether")) == gpu
    remove(names[1:])
    return f"three pods on {gpu} in exactly their slices, a fourth waits until one has ended; nothing is left after {nothing_left():.0f} s"


def job_of_example():
    """Returns the job as an apiserver keeps it that knows Volcano's definition, and refuses unknown fields."""
    kubectl("create", "-f", DEFINITION)
    try:
        until("the apiserver serves Volcano's jobs", lambda: "items" in api.call("GET", JOBS), 30)
        kubectl("create", "--validate=strict", "-f", EXAMPLE)
        (job,) = api.call("GET", JOBS)["items"]
        return job
    finally:
        kubectl("delete", "-f", DEFINITION)


def make(name, task):
    """Makes a pod of a task, which stays."""
    (container,) = task["template"]["spec"]["containers"]
    held = {**container, "command": [*container["command"][:-1], f"{container['command'][-1]}; exec sleep infinity"]}
    spec = {**task["template"]["spec"], "terminationGracePeriodSeconds": 0, "containers": [held]}
    api.make({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "together"}}, "spec": spec})
