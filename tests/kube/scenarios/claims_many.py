"""36 pods with claims start together: each has the limits of its own claim. A claim that fits nowhere waits for another one."""

import time

import api
import claims
from cluster import until
from slices import GPU_MIB, all_run, nothing_left, phase, running

PODS = 36


def scenario(cluster):
    begun = time.monotonic()
    names = [f"claimed-{number}" for number in range(PODS)]
    # All amounts differ, so a pod with another pod's limits is noticed.
    for number, name in enumerate(names):
        claims.make(name, 1000 + number, 8)
    pods = until("all pods run", lambda: all_run("app%3Dclaimed", PODS), 180)
    took = time.monotonic() - begun
    given = claims.check(pods)
    claims.make("whole", GPU_MIB // 2, 50)
    until("the reason is reported", lambda: any("claim" in event for event in api.events("whole")))
    assert phase("whole") == "Pending"
    claims.remove(names[: PODS // 2])
    ended = time.monotonic()
    claims.check([running("whole")])
    later = time.monotonic() - ended
    claims.remove([*names[PODS // 2 :], "whole"])
    return (
        f"{PODS} pods on {len(given)} GPUs run after {took:.1f} s, 0 mismatches; a waiting one runs {later:.1f} s after others are "
        f"gone; nothing is left after {nothing_left():.0f} s"
    )
