"""The agent is upgraded under a running pod, while others come: none fails, the running one keeps its library and limits, later
ones have the new library."""

import os
import pathlib
import subprocess
import time

import api
from cluster import BIN, RUN, kubectl, programs, until
from slices import check, phase, pod, remove, running

COMING = 12
SHOW = "grep GPU_ /run/gpuslice/conf/config; exec sleep "


def mapped(marker):
    """Returns the inode of the preload library in the process that has this word in its command line."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words, maps = (folder / "cmdline").read_text().split("\0"), (folder / "maps").read_text()
        except OSError:
            continue
        if words[:2] == ["sleep", marker]:
            return next(line.split()[4] for line in maps.splitlines() if "libgpuslice.so" in line)
    raise AssertionError(f"no process of {marker} has the library")


def scenario(cluster):
    api.make(pod("old", 2048, 20, SHOW + "7770001"))
    check([running("old")])
    before = mapped("7770001")
    kubectl("set", "image", "--namespace=gpuslice", "daemonset/gpuslice-agent", "agent=localhost/with-gpuslice:2")
    words = ["rollout", "status", "--namespace=gpuslice", "--timeout=90s", "daemonset/gpuslice-agent"]
    begun = time.monotonic()
    with subprocess.Popen([f"{BIN}/kubectl", f"--kubeconfig={RUN}/kubeconfig", *words], stdout=subprocess.DEVNULL) as rollout:
        # Pods come all the time, so that some meet each step of the upgrade.
        for number in range(COMING):
            api.make(pod(f"coming-{number}", 1000 + number, 5))
            time.sleep(0.5)
        assert rollout.wait() == 0
    took = time.monotonic() - begun
    coming = [running(f"coming-{number}") for number in range(COMING)]
    check([*coming, api.pod("old")])
    assert phase("old") == "Running" and mapped("7770001") == before
    api.make(pod("new", 4096, 40, SHOW + "7770002"))
    check([running("new"), *coming, api.pod("old")])
    after = mapped("7770002")
    assert after != before, "the new pod has the old library"
    # The container of the old pod starts again, under the new agent.
    (pid,) = [pid for pid, words in programs("sleep") if "7770001" in words]
    os.kill(pid, 9)
    until("it starts again", lambda: any("7770001" in words for found, words in programs("sleep") if found != pid))
    check([running("old")])
    assert mapped("7770001") == after, "it starts again with the old library"
    remove(["old", "new", *(f"coming-{number}" for number in range(COMING))])
    return f"upgraded in {took:.1f} s while {COMING} pods came: 0 failed; the running pod kept its library and limits until it started again"
