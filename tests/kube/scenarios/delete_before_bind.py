"""A pod that is deleted after the extender's patch and before its binding keeps nothing."""

import api
from cluster import until
from gate import Gate
from slices import GPU_MIB, GPUS, alloc, check, nothing_left, pod, remove, running

ROUNDS = 5


def scenario(cluster):
    had = []

    def gone(name):
        found = api.pod(name)
        if name.startswith("cut") and found:
            had.append(alloc(found))
            api.delete(name, grace=0)

    with Gate(gone):
        # The apiserver asks a new gate after some time.
        for number in range(ROUNDS):
            api.make(pod(f"cut-{number}", GPU_MIB, 100))
            until("it is gone", lambda: not api.pod(f"cut-{number}"), 30)
    assert len(had) == ROUNDS and all(had), f"annotations before the binding: {had}"
    for number in range(GPUS):
        api.make(pod(f"after-{number}", GPU_MIB, 100))
    check([running(f"after-{number}", 20) for number in range(GPUS)])
    remove([f"after-{number}" for number in range(GPUS)])
    return f"{ROUNDS} pods deleted with their annotation before they were bound; the whole node is free afterwards, and nothing is left after {nothing_left():.0f} s"
