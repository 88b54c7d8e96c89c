"""The agent is upgraded under a running pod: that one keeps its library and limits, the next one has the new library."""

import os
import pathlib

import api
from cluster import kubectl, programs, until
from slices import check, pod, remove, running


def mapped(marker):
    """The inode of the preload library in the process that has this word in its command line."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if marker in (folder / "cmdline").read_text() and "libgpuslice.so" in (maps := (folder / "maps").read_text()):
                line = next(line for line in maps.splitlines() if "libgpuslice.so" in line)
                return line.split()[4]
        except OSError:
            continue
    raise AssertionError(f"no process of {marker} has the library")


def scenario(cluster):
    show = "grep GPU_ /run/gpuslice/conf/config; exec sleep "
    api.make(pod("old", 2048, 20, show + "7770001"))
    check([running("old")])
    before = mapped("7770001")
    kubectl("set", "image", "--namespace=gpuslice", "daemonset/gpuslice-agent", "agent=localhost/with-gpuslice:2")
    kubectl("rollout", "status", "--namespace=gpuslice", "--timeout=90s", "daemonset/gpuslice-agent")
    api.make(pod("new", 4096, 40, show + "7770002"))
    check([running("new"), api.pod("old")])
    assert mapped("7770001") == before
    after = mapped("7770002")
    assert after != before, "the new pod has the old library"
    # The container of the old pod starts again, under the new agent.
    (pid,) = [pid for pid, words in programs("sleep") if "7770001" in words]
    os.kill(pid, 9)
    until("it starts again", lambda: any("7770001" in words for found, words in programs("sleep") if found != pid), 60)
    check([running("old")])
    restarts = api.pod("old")["status"]["containerStatuses"][0]["restartCount"]
    assert mapped("7770001") == after, "it starts again with the old library"
    remove(["old", "new"])
    kubectl("set", "image", "--namespace=gpuslice", "daemonset/gpuslice-agent", "agent=localhost/with-gpuslice:1")
    kubectl("rollout", "status", "--namespace=gpuslice", "--timeout=90s", "daemonset/gpuslice-agent")
    return f"the old pod kept its library, the new one has the new one; the old one's container started again ({restarts}) with the same limits"
