"""A tenant gains nothing by writing the annotation of its own pod: the policy refuses it, and the agent would refuse it, too."""

import api
from cluster import until
from late_alloc import annotation, gpus
from slices import ALLOC, GPU_MIB, phase, pod, remove, running, why_not

POLICY = "writes the annotation gpuslice.dev/alloc"


def refused_by_policy(act):
    try:
        act()
    except api.Refused as refused:
        assert POLICY in str(refused), refused
        return
    raise AssertionError("the policy lets a tenant write the annotation")


def refused_by_agent(name, uuid, mib, core, says):
    """Checks that a pod of 2048 MiB and 20 %, bound by hand, does not start with this annotation. An event of the pod must
    have the reason."""
    made = api.make(pod(name, 2048, 20, nodeName="node1"))
    api.annotate(name, {ALLOC: annotation(made, uuid, mib, core)}, api.EXTENDER)
    until(f"an event of {name} says {says!r}", lambda: says in why_not(name), 40)
    assert phase(name) == "Pending"


def scenario(cluster):
    full, free, _ = gpus()
    made = api.make(pod("whole", GPU_MIB, 100, nodeName="node1"))
    refused_by_policy(lambda: api.annotate("whole", {ALLOC: annotation(made, full, GPU_MIB, 100)}))
    api.annotate("whole", {ALLOC: annotation(made, full, GPU_MIB, 100)}, api.EXTENDER)
    running("whole")
    refused_by_policy(lambda: api.annotate("whole", {ALLOC: annotation(made, full, 1, 1)}))
    brought = pod("brought", 2048, 20)
    brought["metadata"]["annotations"] = {ALLOC: annotation(made, full, 1, 1)}
    refused_by_policy(lambda: api.make(brought))
    # This is the agent's own check, as if there were no policy.
    refused_by_agent("more", free, 8192, 20, "which asks for 2048 MiB")
    refused_by_agent("unlimited", free, 2048, 0, "which asks for 2048 MiB and 20 %")
    refused_by_agent("full", full, 2048, 20, "0 MiB and 0 % are left")
    refused_by_agent("unknown", "GPU-of-nobody", 2048, 20, "no GPU of this node")
    api.annotate("whole", {ALLOC: annotation(made, full, 1, 1)}, api.EXTENDER)
    refused_by_agent("next", full, 2048, 20, "0 MiB and 0 % are left")
    remove(["whole", "more", "unlimited", "full", "unknown", "next"])
    return "3 writes of tenants refused by the policy; 5 annotations that would give too much refused by the agent, with the reason"
