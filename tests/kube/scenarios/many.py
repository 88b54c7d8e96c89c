"""36 pods that start together: each has the limits of its own annotation."""

import time

import api
from cluster import until
from slices import check, nothing_left, pod, remove

PODS = 36


def scenario(cluster):
    begun = time.monotonic()
    # All amounts differ, so a pod with another pod's limits is noticed.
    for number in range(PODS):
        api.make(pod(f"many-{number}", 1000 + number, 8))

    def started():
        found = api.pods(selector="app%3Dmany")
        assert not any(pod["status"]["phase"] == "Failed" for pod in found), found
        return all(pod["status"]["phase"] == "Running" for pod in found) and found

    pods = until("all pods run", started, 180)
    took = time.monotonic() - begun
    assert len(pods) == PODS
    given = check(pods)
    remove([pod["metadata"]["name"] for pod in pods])
    return f"{PODS} pods on {len(given)} GPUs run after {took:.1f} s, 0 mismatches; nothing is left after {nothing_left():.0f} s"
