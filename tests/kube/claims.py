"""Pods with resource claims, and checks of them."""

import api
import slices
from cluster import helm, kubectl, until
from slices import GPU_MIB, GPUS, IMAGE, MIB, SHOW

RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
UNITS = {"Ki": 1 << 10, "Mi": MIB, "Gi": 1 << 30}
# Sums that the device plugin writes to the node's status.
SUMS = ("gpuslice.dev/memory-mib", "gpuslice.dev/core-percent")


def install():
    """Installs gpuslice as the guide says for claims, in place of the device plugin if that is there."""
    kubectl("label", "node", "node1", "gpuslice.dev/gpu=true", "--overwrite")
    helm("uninstall", "gpuslice", "--namespace", "gpuslice", "--ignore-not-found", "--wait")
    kubectl("apply", "-k", "tests/kube/dra")
    until("the node has a device for each GPU", lambda: len(devices()) == GPUS, 90)
    until("the sums of the device plugin are gone", lambda: not any(name in capacity() for name in SUMS), 30)


def capacity():
    return api.call("GET", "/api/v1/nodes/node1")["status"]["capacity"]


def devices():
    """Returns the GPUs' UUIDs by the names of their devices."""
    found = api.call("GET", f"{RESOURCES}/resourceslices")["items"]
    ours = [one["spec"] for one in found if one["spec"]["driver"] == "gpuslice.dev" and one["spec"].get("nodeName") == "node1"]
    return {device["name"]: of_driver(device["attributes"], "uuid")["string"] for one in ours for device in one["devices"]}


def of_driver(values, name):
    """Returns a value whose name may be qualified by the driver's."""
    return values[name] if name in values else values[f"gpuslice.dev/{name}"]


def number(quantity):
    """Returns the number of a quantity."""
    return int(quantity[:-2]) * UNITS[quantity[-2:]] if quantity[-2:] in UNITS else int(quantity)


def request(mib, cores):
    """Returns the specification of a claim of one GPU's part."""
    part = {"memory": f"{mib}Mi", "cores": str(cores)}
    wanted = {"deviceClassName": "gpuslice.dev", "capacity": {"requests": part}}
    return {"devices": {"requests": [{"name": "gpu", "exactly": wanted}]}}


def with_claim(reference, app, command=SHOW):
    """Returns the labels and the specification of a pod whose container has a claim."""
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", command], "resources": {"claims": [{"name": "slice"}]}}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "resourceClaims": [{"name": "slice", **reference}],
        "containers": [container],
    }
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


def make(name, mib, cores):
    """Makes a claim, and a pod of the same name that has it."""
    metadata = {"name": name}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": request(mib, cores)}
    api.call("POST", CLAIMS, claim)
    pod = with_claim({"resourceClaimName": name}, name.rstrip("0123456789-"))
    pod["metadata"]["name"] = name
    api.make({"apiVersion": "v1", "kind": "Pod", **pod})


def remove(names):
    """Ends pods and their claims, and waits until the pods are gone."""
    slices.remove(names)
    for name in names:
        api.call("DELETE", f"{CLAIMS}/{name}")


def parts(pod):
    """Returns the UUID, the bytes and the percent of each GPU that the pod's claims have."""
    # A kubelet that starts removes the devices of its node, and the agent writes them again within its interval.
    known = until("the node has a device for each GPU", lambda: len(found := devices()) == GPUS and found, 30)
    # Claims that the cluster has made from a template, or those that the pod names.
    named = pod["status"].get("resourceClaimStatuses") or pod["spec"]["resourceClaims"]
    claims = [api.call("GET", f"{CLAIMS}/{one['resourceClaimName']}") for one in named]
    results = [result for claim in claims for result in claim["status"]["allocation"]["devices"]["results"]]
    return [(known[result["device"]], *consumed(result)) for result in results]


def consumed(result):
    values = result["consumedCapacity"]
    return number(of_driver(values, "memory")), number(of_driver(values, "cores"))


def check(pods):
    """Checks that each pod prints the limits of its claim, and that no GPU is overcommitted. Returns the amounts that each GPU has given."""
    given, wrong = {}, {}
    for pod in pods:
        name, own = pod["metadata"]["name"], parts(pod)
        memory = ",".join(f"{uuid}={size}" for uuid, size, _ in own)
        core = ",".join(f"{uuid}={percent}" for uuid, _, percent in own if percent)
        expected = [f"GPU_MEM_LIMIT={memory}", f"GPU_CORE_PERCENT={core}"]
        printed = until(f"{name} prints its limits", lambda: api.log(name).splitlines()[-2:], 20)
        if sorted(printed) != sorted(expected):
            wrong[name] = (printed, expected)
        for uuid, size, percent in own:
            sum_of_sizes, sum_of_percents = given.get(uuid, (0, 0))
            given[uuid] = (sum_of_sizes + size, sum_of_percents + percent)
    assert not wrong, f"other limits than in the claim: {wrong}"
    for uuid, (memory, core) in given.items():
        assert memory <= GPU_MIB * MIB and core <= 100, f"{uuid} has given away {memory} bytes and {core} %"
    return given
