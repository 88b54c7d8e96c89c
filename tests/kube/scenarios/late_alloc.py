"""A pod without a placement waits, and starts when it gets its annotation."""

import json
import time

import api
from cluster import until
from slices import ALLOC, check, pod, remove, running, why_not


def gpus():
    inventory = api.call("GET", "/api/v1/nodes/node1")["metadata"]["annotations"]["gpuslice.dev/inventory"]
    return [gpu["uuid"] for gpu in json.loads(inventory)["gpus"]]


def annotation(pod, uuid, mib, core, node="node1"):
    parts = {"main": [{"uuid": uuid, "memMiB": mib, "core": core}]}
    return json.dumps({"v": 1, "uid": pod["metadata"]["uid"], "node": node, "gen": 1, "at": "", "c": parts})


def scenario(cluster):
    made = api.make(pod("late", 2048, 20, nodeName="node1"))
    until("an event says why it waits", lambda: "has not placed it" in why_not("late"), 30)
    assert api.pod("late")["status"]["phase"] == "Pending"
    patched = time.monotonic()
    api.annotate("late", {ALLOC: annotation(made, gpus()[0], 2048, 20)}, api.EXTENDER)
    check([running("late")])
    took = time.monotonic() - patched
    remove(["late"])
    return f"it waits with the reason in its events, and runs {took:.1f} s after the patch"
