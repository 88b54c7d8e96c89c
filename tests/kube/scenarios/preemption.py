"""A pod of high priority needs one GPU, and evictions by the sums of the node alone free parts of several GPUs."""

import time

import api
from cluster import kubectl, until
from slices import GPUS, alloc, check, phase, pod, remove, running

# Two pods fill a GPU, and each GPU has one of each size.
LARGE, SMALL = 9000, 7000
# The sum of two small pods is enough, and no GPU has that much without its large pod.
ASKED = 12000
PRIORITIES = {"slices-low": 100, "slices-high": 1000}


def scenario(cluster):
    for name, value in PRIORITIES.items():
        kubectl("create", "priorityclass", name, f"--value={value}")
    names = [f"{size}-{number}" for size in ("large", "small") for number in range(GPUS)]
    for name in names:
        api.make(pod(name, LARGE if "large" in name else SMALL, 10, priorityClassName="slices-low"))
        running(name)
        # The scheduler compares the times at which pods started, in whole seconds.
        time.sleep(1.1)
    gpus = {name: alloc(api.pod(name))[0]["uuid"] for name in names}
    for size in ("large", "small"):
        assert len({gpus[name] for name in names if size in name}) == GPUS, gpus
    begun = time.monotonic()
    api.make(pod("urgent", ASKED, 50, priorityClassName="slices-high"))
    urgent = running("urgent", 60)
    seconds = time.monotonic() - begun
    until("the evicted pods are gone", lambda: all(phase(name) in (None, "Running") for name in names))
    stayed = [name for name in names if phase(name) == "Running"]
    evicted = set(names) - set(stayed)
    (gpu,) = {part["uuid"] for part in alloc(urgent)}
    assert {name for name in names if gpus[name] == gpu} & evicted, (gpus, evicted)
    assert len(evicted) <= 3, evicted
    check([urgent, *map(api.pod, stayed)])
    remove([*stayed, "urgent"])
    for name in PRIORITIES:
        kubectl("delete", "priorityclass", name)
    return f"the pod runs after {seconds:.1f} s; {len(evicted)} of {len(names)} pods of low priority are evicted"
