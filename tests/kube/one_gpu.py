"""A node with one GPU, on which the agent places the containers: pods need no scheduler of gpuslice."""

import slices
from cluster import kubectl, until

SETTINGS = ("--set", "agent.autoAlloc=true", "--set", "scheduler.enabled=false")


def install():
    """Installs gpuslice as the guide says for such nodes, in place of what is there."""
    slices.chart(*SETTINGS)
    # The simulated driver keeps the state of another number of GPUs in another file.
    words = ("SIMGPU_DEVICES=1", "SIMGPU_NVLINK-", "SIMGPU_STATE=/simgpu/state/one")
    kubectl("set", "env", "--namespace=gpuslice", "daemonset/gpuslice-agent", *words)
    until("the agent has registered one GPU", lambda: slices.agent_has_registered(1), 90)


def check(pods):
    """Checks that each pod has printed the limits that it requests. Returns the GPU."""
    gpus = set()
    for pod in pods:
        asked = {name: int(value) for name, value in pod["spec"]["containers"][0]["resources"]["limits"].items()}
        memory, core = asked["gpuslice.dev/memory-mib"] * slices.MIB, asked["gpuslice.dev/core-percent"]
        name = pod["metadata"]["name"]
        printed = dict(line.split("=", 1) for line in slices.printed(name, 2))
        gpu, size = printed["GPU_MEM_LIMIT"].rsplit("=", 1)
        assert (int(size), printed["GPU_CORE_PERCENT"]) == (memory, f"{gpu}={core}"), (name, printed, asked)
        gpus.add(gpu)
    (gpu,) = gpus
    return gpu
