"""A ResourceQuota counts the memory and the time of slices: it refuses the pod that exceeds one, and admits it after another pod is
deleted."""

import time

import api
from cluster import kubectl, until
from slices import check, pod, remove, running

TEAM = "team-a"
QUOTA = f"/api/v1/namespaces/{TEAM}/resourcequotas/gpuslice"
MEMORY, CORE = "requests.gpuslice.dev/memory-mib", "requests.gpuslice.dev/core-percent"


def used():
    status = api.call("GET", QUOTA)["status"].get("used", {})
    return status.get(MEMORY), status.get(CORE)


def refused(wanted, resource):
    """Checks that the quota refuses a pod because of a resource, and returns the numbers that it tells."""
    try:
        api.make(wanted, TEAM)
    except api.Refused as why:
        name = wanted["metadata"]["name"]
        assert why.status == 403 and "exceeded quota: gpuslice" in str(why) and f"{resource}=" in str(why), (name, why)
        return
    raise AssertionError(f"{wanted['metadata']['name']} is admitted")


def scenario(_):
    kubectl("create", "namespace", TEAM)
    # 4 slices, 32768 MiB and 200 %.
    kubectl("apply", "-f", "examples/kubernetes/quota.yaml")
    until("the quota counts", lambda: used() == ("0", "0"), 30)
    api.make(pod("first", 16000, 100), TEAM)
    api.make(pod("beside", 12000, 60), TEAM)
    check([running(name, namespace=TEAM) for name in ("first", "beside")])
    # 28000 MiB and 160 % are used. Each of the next two exceeds one amount alone.
    much, long = pod("second", 8000, 10), pod("third", 1000, 50)
    refused(much, MEMORY)
    refused(long, CORE)
    begun = time.monotonic()
    remove(["first"], TEAM)

    def admitted():
        api.make(much, TEAM)
        return True

    until("the quota admits it", admitted, 30)
    check([running("second", namespace=TEAM), api.pod("beside", TEAM)])
    took = time.monotonic() - begun
    api.make(long, TEAM)
    running("third", namespace=TEAM)
    assert used() == ("21k", "120"), used()
    remove(["second", "third", "beside"], TEAM)
    until("nothing is used", lambda: used() == ("0", "0"), 30)
    kubectl("delete", "namespace", TEAM)
    return f"of 28000 MiB and 160 % used, 8000 MiB and 50 % more refused by the quota with the resource; admitted and running {took:.1f} s after a pod is deleted"
