"""Two slices on GPUs that NVLink connects, and a model that the node does not have."""

import json

import api
from cluster import until
from slices import GPU_MIB, alloc, check, pod, remove, running, why_not


def constrained(name, mib, slices, **annotations):
    wanted = pod(name, mib * slices)
    wanted["spec"]["containers"][0]["resources"]["limits"]["gpuslice.dev/slice"] = str(slices)
    wanted["metadata"]["annotations"] = {f"gpuslice.dev/gpu-{key}": value for key, value in annotations.items()}
    return wanted


def waits(name, reason):
    until(f"{name} waits because of {reason}", lambda: reason in why_not(name), 30)
    assert "MISSING" not in why_not(name), "the scheduler has taken the reason for a format"


def scenario(cluster):
    # NVLink connects the first two of the three GPUs. The third one is the fullest, and would be taken otherwise.
    third = running_on_last()
    api.make(constrained("linked", 4000, 2, topology="nvlink"))
    linked = running("linked")
    gpus = {part["uuid"] for part in alloc(linked)}
    assert len(gpus) == 2 and not gpus & {part["uuid"] for part in alloc(third)}, (gpus, alloc(third))
    check([linked, third])
    api.make(constrained("three", 1000, 3, topology="nvlink"))
    waits("three", "no 3 of them are connected by NVLink")
    api.make(constrained("model", 1000, 1, model="B200"))
    waits("model", "0 of 1 GPUs of the model b200")
    remove(["linked", "three", "model", third["metadata"]["name"]])
    return "two slices are on the two GPUs with NVLink; three such slices, and a model that is not there, wait with their reasons"


def running_on_last():
    """Returns a running pod on the GPU without NVLink. It is the one that is left when two large pods have the others."""
    names = [f"large-{number}" for number in range(3)]
    for name in names:
        api.make(pod(name, GPU_MIB - 4000))
        running(name)
    # The GPUs are alike, so the pods may be on them in any order.
    inventory = gpus_of_node()
    on = {alloc(api.pod(name))[0]["uuid"]: name for name in names}
    last = on.pop(inventory[2]["uuid"])
    remove(on.values())
    return api.pod(last)


def gpus_of_node():
    annotations = api.call("GET", "/api/v1/nodes/node1")["metadata"]["annotations"]
    gpus = json.loads(annotations["gpuslice.dev/inventory"])["gpus"]
    assert [gpu.get("nvlink", []) for gpu in gpus] == [[1], [0], []], gpus
    return gpus
