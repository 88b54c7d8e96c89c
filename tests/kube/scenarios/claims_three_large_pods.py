"""Three pods with claims of 10 GiB on two GPUs of 16 GiB: two run on a GPU each, and the third waits until one is deleted."""

import time

import api
from claims import MIB as BYTES
from claims import check, make, remove
from cluster import until
from slices import GPU_MIB, phase, running, why_not

MIB = 10240


def scenario(cluster):
    # The node has three GPUs. One of them is full.
    make("full", GPU_MIB, 10)
    # The agent's devices are in the apiserver before the kubelet knows the driver. The kubelet then asks up to 90 s later.
    full = running("full", 120)
    names = [f"large-{number}" for number in range(3)]
    for name in names[:2]:
        make(name, MIB, 40)
    given = check([full, *(running(name) for name in names[:2])])
    assert sorted(memory for memory, _ in given.values()) == [MIB * BYTES, MIB * BYTES, GPU_MIB * BYTES], given
    make(names[2], MIB, 40)
    reason = "cannot allocate all claims"
    until(f"it waits because it {reason}", lambda: reason in why_not(names[2]), 30)
    assert phase(names[2]) == "Pending"
    begun = time.monotonic()
    remove(names[:1])
    third = running(names[2], 60)
    took = time.monotonic() - begun
    check([full, api.pod(names[1]), third])
    remove(["full", *names[1:]])
    return f"two of {MIB} MiB run on a GPU each; the third waits with its reason, and runs {took:.1f} s after one is deleted"
