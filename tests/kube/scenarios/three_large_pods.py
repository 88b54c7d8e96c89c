"""Three pods of 10 GiB on two GPUs of 16 GiB: two run on a GPU each, and the third waits until one is deleted."""

import time

import api
from cluster import until
from slices import GPU_MIB, alloc, check, phase, pod, remove, running, why_not

MIB = 10240


def scenario(cluster):
    # The node has three GPUs. One of them is full.
    api.make(pod("full", GPU_MIB))
    full = running("full")
    names = [f"large-{number}" for number in range(3)]
    for name in names[:2]:
        api.make(pod(name, MIB, 40))
    first = [running(name) for name in names[:2]]
    gpus = {part["uuid"] for made in [full, *first] for part in alloc(made)}
    assert len(gpus) == 3, gpus
    api.make(pod(names[2], MIB, 40))
    # The sums of the node have room for the pod, but no single GPU has.
    reason = f"0 of 1 GPUs have {MIB} MiB and 40 percent of time left (at most {GPU_MIB - MIB} MiB"
    until(f"it waits because {reason}", lambda: reason in why_not(names[2]), 30)
    assert phase(names[2]) == "Pending" and not alloc(api.pod(names[2]))
    api.delete(names[0], grace=1)
    begun = time.monotonic()
    third = running(names[2], 30)
    took = time.monotonic() - begun
    check([full, api.pod(names[1]), third])
    remove(["full", *names])
    return f"two of {MIB} MiB run on a GPU each; the third waits with its reason, and runs {took:.1f} s after one is deleted"
