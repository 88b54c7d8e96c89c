"""Pods with slices, and checks of them."""

import json
import os
import pathlib
import time

import api
from cluster import helm, kubectl, until

IMAGE = "docker.io/library/python:3.12-slim-bookworm"
ALLOC = "gpuslice.dev/alloc"
SHOW = "grep GPU_ /run/gpuslice/conf/config; exec sleep infinity"
MIB = 1 << 20
GPU_MIB, GPUS = 16384, 3
# Folders that an agent fills, as the node sees them.
SPECS, SLOTS, REGIONS = (pathlib.Path(path) for path in ("/run/cdi", "/var/lib/gpuslice/slots", "/run/gpuslice/slots"))


def pod(name, mib, core=0, command=SHOW, **spec):
    """Returns a pod of one container with one slice."""
    limits = {"gpuslice.dev/slice": "1", "gpuslice.dev/memory-mib": str(mib)}
    if core:
        limits["gpuslice.dev/core-percent"] = str(core)
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", command], "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name.rstrip("0123456789-")}},
        "spec": {
            "schedulerName": "gpuslice-scheduler",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
            **spec,
        },
    }


def with_driver(wanted, programs):
    """Lets a pod's container use the simulated driver, as NVIDIA's runtime does. `programs`: a ConfigMap, in /program."""
    driver = {"LD_LIBRARY_PATH": "/simgpu/lib", "SIMGPU_STATE": "/simgpu/state/gpus", "SIMGPU_DEVICES": "3", "SIMGPU_MEMORY": "16GiB"}
    container = wanted["spec"]["containers"][0]
    container["env"] = [{"name": name, "value": value} for name, value in driver.items()]
    places = {"driver": "/simgpu/lib", "gpus": "/simgpu/state", "program": "/program"}
    container["volumeMounts"] = [{"name": name, "mountPath": path} for name, path in places.items()]
    wanted["spec"]["volumes"] = [
        {"name": "driver", "hostPath": {"path": "/run/simgpu/lib"}},
        {"name": "gpus", "hostPath": {"path": "/run/simgpu/state"}},
        {"name": "program", "configMap": {"name": programs}},
    ]
    return wanted


def phase(name, namespace="default"):
    found = api.pod(name, namespace)
    return found and found["status"].get("phase")


def running(name, seconds=60, namespace="default"):
    """Waits until the pod runs, and returns it."""
    try:
        until(f"{name} runs", lambda: phase(name, namespace) in ("Running", "Failed"), seconds, 0.1)
        assert phase(name, namespace) == "Running", "it has failed"
    except AssertionError as error:
        raise AssertionError(f"{error}; {api.pod(name, namespace)['status']}; {why_not(name, namespace)}") from None
    return api.pod(name, namespace)


def all_run(selector, count):
    """Returns the pods if there are `count` and all run."""
    found = api.pods(selector=selector)
    return len(found) == count and all(pod["status"].get("phase") == "Running" for pod in found) and found


def alloc(pod):
    """Returns the parts of the annotation of the pod's first container."""
    text = pod["metadata"].get("annotations", {}).get(ALLOC)
    return text and next(iter(json.loads(text)["c"].values()))


def expected(pod):
    """Returns the lines about limits that the pod's container should print."""
    parts = alloc(pod)
    memory = ",".join(f"{part['uuid']}={part['memMiB'] * MIB}" for part in parts)
    core = ",".join(f"{part['uuid']}={part['core']}" for part in parts if part["core"])
    return [f"GPU_MEM_LIMIT={memory}"] + ([f"GPU_CORE_PERCENT={core}"] if core else [])


def limits(pod):
    """Waits for the lines that the container prints, and returns them."""
    return printed(pod["metadata"]["name"], len(expected(pod)), pod["metadata"]["namespace"])


def printed(name, count, namespace="default"):
    """Waits for `count` lines about limits, and returns them. While the engine is away, a log has its error instead."""

    def found():
        lines = [line for line in api.log(name, namespace).splitlines() if line.startswith("GPU_")]
        return len(lines) >= count and lines[-count:]

    return until(f"{name} prints its limits", found, 20)


def mismatches(pods):
    """Returns the pods that have printed other limits than those of their annotation."""
    return [pod["metadata"]["name"] for pod in pods if sorted(limits(pod)) != sorted(expected(pod))]


def check(pods):
    """Checks that each pod has the limits of its annotation and its request, and that no GPU is overcommitted."""
    assert not mismatches(pods), f"other limits than in the annotation: {mismatches(pods)}"
    given = {}
    for pod in pods:
        asked = pod["spec"]["containers"][0]["resources"]["limits"]
        total = sum(part["memMiB"] for part in alloc(pod))
        assert str(total) == quantity(asked["gpuslice.dev/memory-mib"]), (total, asked)
        for part in alloc(pod):
            memory, core = given.get(part["uuid"], (0, 0))
            given[part["uuid"]] = (memory + part["memMiB"], core + part["core"])
    for uuid, (memory, core) in given.items():
        assert memory <= GPU_MIB and core <= 100, f"{uuid} has given away {memory} MiB and {core} %"
    return given


def quantity(text):
    """Returns the number of a quantity. The apiserver writes 16000 as 16k."""
    return str(int(text[:-1]) * 1000) if text.endswith("k") else text


def slots():
    """Returns all files that an agent has made for the kubelet's slots and claims."""
    names = ("slot-*", "claim-*")
    folders = [folder.glob(prefix + name) for name in names for folder, prefix in ((SLOTS, ""), (REGIONS, ""), (SPECS, "*"))]
    return sorted(str(path) for folder in folders for path in folder)


def nothing_left(seconds=90):
    """Waits until no file of a slot is left, and returns the seconds of the wait.

    A pod that ignores SIGTERM ends after its 30 s, and the agent keeps the files for up to 40 s more.
    """
    begun = time.monotonic()
    until("no slot, specification and region is left", lambda: not slots() or None, seconds)
    return time.monotonic() - begun


def remove(names, namespace="default"):
    """Ends pods, and waits until they are gone."""
    for name in names:
        api.delete(name, namespace, 1)
    until(f"{', '.join(names)} end", lambda: not any(api.pod(name, namespace) for name in names), 60)


def why_not(name, namespace="default"):
    """Returns the messages of the pod's events, which say why its container waits."""
    return " | ".join(api.events(name, namespace))


def agent_has_registered(gpus=GPUS):
    """Returns whether the node has the slots and the sums of its GPUs."""
    has = api.call("GET", "/api/v1/nodes/node1")["status"]["allocatable"]
    return int(has.get("gpuslice.dev/slice", 0)) > 0 and quantity(has.get("gpuslice.dev/core-percent", "0")) == str(100 * gpus)


def chart(*settings):
    """Installs gpuslice by helm as in the guide, with the node's simulated GPUs, or changes its settings."""
    values = ("--values", "tests/kube/values.yaml", "--post-renderer", "tests/kube/post-render.sh")
    words = ("--namespace", "gpuslice", "--create-namespace", *values, *settings)
    helm("upgrade", "--install", "gpuslice", "charts/gpuslice", *words)
    kubectl("label", "node", "node1", "gpuslice.dev/gpu=true", "--overwrite")


def install():
    """Installs gpuslice, and waits until it serves pods."""
    chart()
    until("the agent has registered", agent_has_registered, 90)
    kubectl("rollout", "status", "--namespace=gpuslice", "--timeout=90s", "deployment/gpuslice-scheduler")


def simulated_gpus(root):
    """Puts the driver's libraries on the node, in the place of NVIDIA's."""
    os.makedirs("/run/simgpu/state")
    os.chmod("/run/simgpu/state", 0o777)
    folder = pathlib.Path("/run/simgpu/lib")
    folder.mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (folder / name).write_bytes((root / "target/simgpu" / name).read_bytes())


def clear():
    """Removes the objects that a failed scenario has left."""
    kinds = "replicasets,deployments,pods,validatingwebhookconfigurations,configmaps,resourceclaims,resourceclaimtemplates"
    kubectl("delete", kinds, "--all", "--grace-period=1", "--wait=false")
    kubectl("delete", "namespace", "team-a", "--ignore-not-found", "--timeout=60s")
    until("the pods are gone", lambda: not api.pods(), 90)
    until("no slot is left", lambda: not slots(), 90)
