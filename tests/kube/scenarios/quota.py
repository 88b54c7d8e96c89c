"""A CUDA program in a pod: the simulated driver serves it, and the preload library refuses allocations above its quota."""

import api
from cluster import kubectl, until
from slices import expected, phase, pod, remove, with_driver

MEMORY = 4096
# MiB that a context of the simulated GPU takes.
CONTEXT = 530


def scenario(cluster):
    kubectl("create", "configmap", "quota", "--from-file=examples/python/quota.py")
    wanted = pod("quota", MEMORY, 50, "cat /run/gpuslice/conf/config; exec python3 /program/quota.py", restartPolicy="Never")
    api.make(with_driver(wanted, "quota"))
    until("the program ends", lambda: phase("quota") in ("Succeeded", "Failed"), 60)
    said = api.log("quota")
    assert phase("quota") == "Succeeded", said
    assert all(line in said.splitlines() for line in expected(api.pod("quota"))), said
    assert f"device 0: {MEMORY} MiB" in said, said
    (granted,) = [line for line in said.splitlines() if "CUDA_ERROR_OUT_OF_MEMORY" in line]
    pieces, size = int(granted.split()[0]), int(granted.split()[3])
    assert CONTEXT + pieces * size <= MEMORY < CONTEXT + (pieces + 1) * size, granted
    remove(["quota"])
    kubectl("delete", "configmap", "quota")
    return f"the device shows {MEMORY} MiB of 16384; {granted}"
