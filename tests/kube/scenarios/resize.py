"""A running pod gets other amounts by its annotation: the program measures them, the node shows them, and nobody gets them
without the right."""

import json
import os
import pathlib
import time
import urllib.request

import api
from cluster import kubectl, programs, until
from late_alloc import annotation
from slices import ALLOC, GPU_MIB, MIB, alloc, pod, remove, running, why_not, with_driver

RESIZE = "gpuslice.dev/resize"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
TENANT = "tenant"
# A context of the simulated GPU, and the piece that the program takes at a time.
CONTEXT, PIECE = 530, 256
# Figures of 40 kernels of 10 ms, on a machine that does other work: percent of the share.
LOW, HIGH = 75, 115


def wanted(mib, core):
    return json.dumps({"v": 1, "c": {"main": {"memMiB": mib, "core": core}}})


def measured():
    # The log also has lines of the library, about refused allocations.
    lines = [line for line in api.log("sized").splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def has(mib, core):
    """Returns the amounts that the program measures, if they are these."""
    found = measured()
    if found.get("total") != mib:
        return None
    fits = CONTEXT + found["granted"] <= mib < CONTEXT + found["granted"] + PIECE
    return found if fits and is_about(found["percent"], core) else None


def is_about(percent, share):
    return share * LOW <= percent * 100 <= share * HIGH


def on_node(uuid):
    """Returns the limits of the slice in the agent's metrics, MiB and percent, and the percent that it used over 10 s. Without
    series all are 0."""
    (agent,) = api.pods("gpuslice", "app.kubernetes.io%2Fname%3Dgpuslice-agent")
    with urllib.request.urlopen(f"http://{agent['status']['podIP']}:9454/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    # The program sees all GPUs of the node, and has a part of one.
    lines = [line for line in lines if 'pod="sized"' in line and f'uuid="{uuid}"' in line]
    value = {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in lines}
    names = ("memory_limit_bytes", "core_limit_ratio", "core_used_ratio")
    memory, core, used = (value.get(f"gpuslice_slice_{name}", 0) for name in names)
    return int(memory) // MIB, round(core * 100), round(used * 100)


def program():
    """Returns the process number of the program."""
    (pid,) = [pid for pid, words in programs("python3") if "/program/measure.py" in words]
    return pid


def in_container():
    """Returns the lines about limits that a new program of the container reads."""
    config = pathlib.Path(f"/proc/{program()}/root/run/gpuslice/conf/config").read_text()
    return sorted(line for line in config.splitlines() if line.startswith("GPU_"))


def becomes(mib, core):
    """Waits until the program, the node and the container's file have these amounts. Returns the seconds and the figures."""
    begun = time.monotonic()
    figures = until(f"the program has {mib} MiB and {core} %", lambda: has(mib, core), 60)
    took = time.monotonic() - begun
    (part,) = alloc(api.pod("sized"))

    def is_shown():
        *limits, used = on_node(part["uuid"])
        return limits == [mib, core] and is_about(used, core)

    until("the node shows them", is_shown, 60)
    assert (part["memMiB"], part["core"]) == (mib, core), part
    expected = [f"GPU_CORE_PERCENT={part['uuid']}={core}", f"GPU_MEM_LIMIT={part['uuid']}={mib * MIB}"]
    assert in_container() == expected, (in_container(), expected)
    return took, figures


def is_refused(name, value, by):
    try:
        api.annotate("sized", {name: value}, TENANT)
    except api.Refused as refused:
        assert by in str(refused), refused
        return
    raise AssertionError(f"a tenant may write {name}")


def rights(name, group, resource, *verbs):
    """Gives the tenant a right in the namespace."""
    metadata = {"name": name}
    rule = {"apiGroups": [group], "resources": [resource], "verbs": verbs}
    api.call("POST", f"{RBAC}/roles", {"metadata": metadata, "rules": [rule]})
    role, subject = ({"apiGroup": "rbac.authorization.k8s.io", **one} for one in (
        {"kind": "Role", "name": name}, {"kind": "User", "name": TENANT}))
    api.call("POST", f"{RBAC}/rolebindings", {"metadata": metadata, "roleRef": role, "subjects": [subject]})


def scenario(_):
    kubectl("create", "configmap", "measure", "--from-file=tests/kube/programs/measure.py", "--from-file=examples/python/share.py")
    rights("tenant-patches", "", "pods", "get", "patch")
    api.make(with_driver(pod("sized", 4096, 30, "exec python3 /program/measure.py"), "measure"))
    made = running("sized")
    _, before = becomes(4096, 30)
    # A tenant that may change its pods, and not their sizes.
    (part,) = alloc(made)
    forged = json.loads(annotation(made, part["uuid"], GPU_MIB, 100)) | {"gen": 2}
    is_refused(ALLOC, json.dumps(forged), "writes the annotation gpuslice.dev/alloc")
    is_refused(RESIZE, wanted(GPU_MIB, 100), "needs the verb resize")
    # A tenant that may change their sizes.
    rights("tenant-resizes", "gpuslice.dev", "slices", "resize")
    until("the right holds", lambda: api.annotate("sized", {RESIZE: wanted(8192, 60)}, TENANT))
    up, larger = becomes(8192, 60)
    api.annotate("sized", {RESIZE: wanted(GPU_MIB + 1, 60)}, TENANT)
    until("the reason is reported", lambda: f"{GPU_MIB + 1} MiB and 60 % are wanted" in why_not("sized"), 30)
    assert on_node(part["uuid"])[:2] == (8192, 60), on_node(part["uuid"])
    api.annotate("sized", {RESIZE: wanted(2048, 20)}, TENANT)
    down, smaller = becomes(2048, 20)
    # The next program of the container has the last amounts, not those that the pod requests.
    os.kill(program(), 9)
    until("it starts again", lambda: api.pod("sized")["status"]["containerStatuses"][0]["restartCount"] == 1)
    becomes(2048, 20)
    remove(["sized"])
    kubectl("delete", "configmap", "measure")
    for name in ("tenant-patches", "tenant-resizes"):
        kubectl("delete", "role,rolebinding", name)

    def tell(mib, core, figures):
        return f"{mib} MiB and {core} % ({figures['granted']} MiB granted, {figures['percent']} % measured)"

    return (
        f"from {tell(4096, 30, before)} to {tell(8192, 60, larger)} after {up:.1f} s, and to {tell(2048, 20, smaller)} after "
        f"{down:.1f} s, without a restart; more than the GPU has, and 2 writes of a tenant without the right, are refused"
    )
