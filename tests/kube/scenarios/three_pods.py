"""Three pods on one GPU, as the guide starts them: each sees its own limits."""

from cluster import kubectl, until
from slices import all_run, alloc, check, nothing_left


def scenario(cluster):
    kubectl("apply", "-f", "examples/kubernetes/three-pods.yaml")
    pods = until("three pods run", lambda: all_run("app%3Dthree-on-one-gpu", 3), 90)
    check(pods)
    gpus = {part["uuid"] for pod in pods for part in alloc(pod)}
    assert len(gpus) == 1, f"they are on {gpus}"
    logs = kubectl("logs", "-l", "app=three-on-one-gpu").splitlines()
    assert len(logs) == 6, logs
    kubectl("delete", "-f", "examples/kubernetes/three-pods.yaml", "--grace-period=1")
    return f"3 pods on {gpus.pop()}, 4096 MiB and 30 % each; their files are gone after {nothing_left():.0f} s"
