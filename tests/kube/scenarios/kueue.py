"""Kueue and its example: jobs beyond the queue's time or memory wait suspended, and start once others have ended."""

import copy
import json
import os
import signal
import time

import api
from cluster import helm, kubectl, programs, until
from slices import all_run, check, nothing_left

EXAMPLE = "examples/kubernetes/kueue.yaml"
SYSTEM = "kueue-system"
CERTIFICATES = f"/api/v1/namespaces/{SYSTEM}/secrets/kueue-webhook-server-cert"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/gpuslice"
CORE, MEMORY, SLICE = (f"gpuslice.dev/{name}" for name in ("core-percent", "memory-mib", "slice"))
# Prints the limits, and stays until `finish` ends it.
HELD = "trap 'exit 0' TERM; grep GPU_ /run/gpuslice/conf/config; sleep infinity & wait"


def install():
    """Installs Kueue by its own chart, as its users do."""
    helm("install", "kueue", "build/charts/kueue", "--namespace", SYSTEM, "--create-namespace",
         "--values", "tests/kube/queues/values.yaml")
    # Kueue makes certificates, and waits until the kubelet brings them into its pod. The kubelet looks for changes every 60 to
    # 90 s, and when the pod itself changes.
    until("Kueue has made certificates", lambda: api.call("GET", CERTIFICATES).get("data"), 60)
    kubectl("annotate", "pods", "--all", f"--namespace={SYSTEM}", "certificates=made")
    kubectl("rollout", "status", f"--namespace={SYSTEM}", "--timeout=115s", "deployment/kueue-controller-manager")


def uninstall():
    """Removes Kueue. The objects go first, because Kueue itself takes their finalizers off."""
    try:
        kubectl("delete", "jobs", "--all", "--grace-period=1", "--timeout=60s")
        kubectl("delete", "localqueues,clusterqueues,resourceflavors", "--all", "--timeout=60s")
    finally:
        # Its webhooks would refuse the pods of later scenarios.
        helm("uninstall", "kueue", "--namespace", SYSTEM)
        kubectl("delete", "namespace", SYSTEM, "--timeout=60s")


def scenario(_):
    begun = time.monotonic()
    try:
        install()
        installed = time.monotonic() - begun
        figure = queue()
    finally:
        uninstall()
    return f"{figure}; nothing is left after {nothing_left():.0f} s; Kueue was installed in {installed:.0f} s"


def queue():
    kubectl("create", "-f", EXAMPLE)
    (example,) = api.call("GET", JOBS)["items"]
    name = example["metadata"]["name"]
    until("the example's job is complete", lambda: is_complete(name), 60)
    check(api.pods(selector=f"job-name%3D{name}"))

    # Three such jobs take 24576 MiB and 180 % of the queue's 32768 MiB and 200 %. The node has room for one more.
    for number in range(3):
        make(f"held-{number}", 4096, 30)
    check(pods_of("held-0", "held-1", "held-2"))
    make("long", 4096, 30)
    make("much", 9000, 10)
    waits("long", CORE)
    waits("much", MEMORY)

    begun = time.monotonic()
    finish("held-0")
    pods_of("long")
    took = time.monotonic() - begun
    check(pods_of("held-1", "held-2", "long"))
    waits("much", MEMORY)
    for name in ("held-1", "held-2"):
        finish(name)
    check(pods_of("long", "much"))
    used = {SLICE: "4", MEMORY: "26192", CORE: "80"}
    until(f"the queue counts {used}", lambda: usage() == used, 30)
    return f"of 24576 MiB and 180 % used, 18000 MiB and 60 % more wait suspended with the resource; the pods run {took:.1f} s after a job is asked to end"


def make(name, mib, core):
    """Makes a job like the example's, whose two pods stay. Each pod has this much."""
    job = copy.deepcopy(job_of_example())
    job["metadata"] = {"name": name, "labels": job["metadata"]["labels"]}
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["command"][-1:] = HELD, name
    container["resources"]["limits"] |= {MEMORY: mib, CORE: core}
    api.call("POST", JOBS, job)


def job_of_example():
    """Returns the last object of the example's file."""
    text = kubectl("create", "-f", EXAMPLE, "--dry-run=client", "--output=json")
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        last, end = decoder.raw_decode(text)
        text = text[end:]
    assert last["kind"] == "Job", last
    return last


def job(name):
    return api.call("GET", f"{JOBS}/{name}")


def is_complete(name):
    return job(name)["status"].get("succeeded") == 2


def pods_of(*jobs):
    """Waits until both pods of each job run, and returns them."""
    found = [until(f"{name} runs", lambda: all_run(f"job-name%3D{name}", 2), 60) for name in jobs]
    return [pod for pods in found for pod in pods]


def waits(name, resource):
    """Waits until Kueue says that this resource alone keeps the job, and checks that the job has no pod."""
    uid = job(name)["metadata"]["uid"]

    def reason():
        (workload,) = api.call("GET", f"{WORKLOADS}?labelSelector=kueue.x-k8s.io/job-uid%3D{uid}")["items"]
        return next((c["message"] for c in workload["status"].get("conditions", [])
                     if c["type"] == "QuotaReserved" and c["status"] == "False"), "")

    until(f"{name} waits for {resource}", lambda: f"insufficient unused quota for {resource}" in reason(), 30)
    others = [one for one in (CORE, MEMORY, SLICE) if one != resource and one in reason()]
    assert not others, reason()
    assert job(name)["spec"]["suspend"], job(name)
    assert not api.pods(selector=f"job-name%3D{name}"), "a suspended job has pods"


def finish(name):
    """Lets the programs of a job end by themselves, and waits until the job is complete."""
    found = [pid for pid, words in programs("sh") if name in words]
    assert len(found) == 2, found
    for pid in found:
        os.kill(pid, signal.SIGTERM)
    until(f"{name} is complete", lambda: is_complete(name), 30)


def usage():
    (flavor,) = api.call("GET", QUEUE)["status"]["flavorsUsage"]
    return {resource["name"]: str(resource["total"]) for resource in flavor["resources"]}
