"""On a full node a pod waits until another one ends."""

import time

import api
from cluster import until
from slices import GPU_MIB, GPUS, check, phase, pod, remove, running, why_not


def scenario(cluster):
    for number in range(GPUS):
        command = f"grep GPU_ /run/gpuslice/conf/config; exec sleep {10000 if number else 12}"
        api.make(pod(f"full-{number}", GPU_MIB, 100, command, restartPolicy="Never"))
    check([running(f"full-{number}") for number in range(GPUS)])
    api.make(pod("waiting", GPU_MIB, 100))
    until("the reason is reported", lambda: "Insufficient gpuslice.dev" in why_not("waiting") or "have 16384 MiB" in why_not("waiting"))
    assert phase("waiting") == "Pending"
    until("the first one ends", lambda: phase("full-0") == "Succeeded", 60, 0.05)
    ended = time.monotonic()
    check([running("waiting", 10), api.pod("full-1"), api.pod("full-2")])
    by_end = time.monotonic() - ended
    api.make(pod("second", GPU_MIB, 100))
    until("it waits", lambda: "FailedScheduling" in why_not("second") or why_not("second"))
    api.delete("full-1", grace=1)
    deleted = time.monotonic()
    check([running("second", 10), api.pod("waiting"), api.pod("full-2")])
    by_delete = time.monotonic() - deleted
    remove(["full-0", "full-1", "full-2", "waiting", "second"])
    return f"the waiting pod runs {by_end:.1f} s after another has ended, and {by_delete:.1f} s after one is deleted"
