"""Describes the machine, and compares the names of devices and processes of the driver, NVML and the kernel."""

import ctypes
import json
import os
import shutil
from ctypes import byref, c_int, c_uint, c_uint64

from bench import GIB, Fact, Skip, main, tell, wait
from driver import Cuda, Nvml, Refused
from workspace import die_with

PIDS = Fact(
    "NVML calls a process by a number that the process knows itself by (NSpid)",
    "src/shim/src/driver_calls/nvml/utilization.rs",
    "GPU_CORE_METER=nvml would not know the process, and a program would be shown nobody's use",
)
BYTES = Fact(
    "where NVML lists a process by a number of its own, its bytes are that process's: at least the 1 GiB that it took",
    "src/shim/src/driver_calls/nvml/memory.rs",
    "contexts and code would be charged with what another process holds, or with nothing",
)
OUTSIDE = Fact(
    "outside of a namespace of process numbers, NVML lists a process inside by its number outside, with its bytes",
    "src/agent/src/memory_answers.rs",
    "the agent could not tell a process in a container the memory that it holds",
)
UUIDS = Fact(
    "NVML finds the device by the UUID that CUDA gives",
    "src/shim/src/driver_calls/nvml/devices.rs",
    "limits by UUID would have to be matched by PCI address",
)
NO_CONTEXT = Fact(
    "cuInit, cuDeviceGet and NVML's memory information make no context",
    "src/shim/src/process.rs joins at cuInit",
    "joining a slice would cost memory of the device",
)
FORKED = Fact(
    "after cuInit in a parent a forked child may not use CUDA, and the parent goes on",
    "src/shim/src/process.rs",
    "a forked child would need a context's charge of its own",
)
# The host's namespace of process numbers
HOST = "pid:[4026531836]"
# Flags of unshare(2).
NEW_PIDS, NEW_USER = 0x20000000, 0x10000000
# CUdevice_attribute
ATTRIBUTES = {
    "multiprocessors": 16, "compute mode": 20, "concurrent kernels": 31, "major": 75, "minor": 76, "compute preemption": 90,
    "virtual memory": 102, "pools": 115, "MPS": 133,
}  # fmt: skip


class Listed(ctypes.Structure):
    """`nvmlProcessInfo_t`."""

    _fields_ = [("pid", c_uint), ("used", c_uint64), ("instance", c_uint), ("compute", c_uint)]


def own_numbers():
    with open("/proc/self/status") as file:
        line = [line for line in file if line.startswith("NSpid:")]
    return [int(word) for word in line[0].split()[1:]] if line else [os.getpid()]


def listed(nvml, call="nvmlDeviceGetComputeRunningProcesses_v3"):
    """Returns NVML's bytes of each process."""
    count, there = c_uint(256), (Listed * 256)()
    nvml(call, nvml.device, byref(count), there)
    return {process.pid: process.used for process in there[: count.value]}


def own_bytes(nvml):
    """Returns NVML's bytes of this process, or None if NVML does not list it by one of its own numbers."""
    own = own_numbers()
    return next((used for pid, used in listed(nvml).items() if pid in own), None)


def number(nvml, call):
    return nvml.value(call, kind=c_uint) if call.startswith("nvmlSystem") else read(nvml, call)


def read(nvml, call):
    word = c_uint()
    nvml(call, nvml.device, byref(word))
    return word.value


def described():
    """Returns facts about the machine for readers of the measurement."""
    cuda = Cuda(context=False)
    nvml, told = Nvml(cuda.uuid()), {}

    def ask(name, question):
        try:
            told[name] = question()
        except (Refused, AttributeError, OSError) as refusal:
            told[name] = str(refusal)

    for name, attribute in ATTRIBUTES.items():
        ask(name, lambda attribute=attribute: cuda.attribute(attribute))
    for call in ("PersistenceMode", "ComputeMode", "AccountingMode", "Architecture"):
        ask(call, lambda call=call: read(nvml, f"nvmlDeviceGet{call}"))
    mig, later = c_uint(), c_uint()
    ask("MIG", lambda: (nvml("nvmlDeviceGetMigMode", nvml.device, byref(mig), byref(later)), mig.value)[1])
    for name, path in (("driver", "/proc/driver/nvidia/version"), ("first process", "/proc/1/comm")):
        ask(name, lambda path=path: open(path).read().splitlines()[0])
    ask("namespace", lambda: os.readlink("/proc/self/ns/pid"))
    told["numbers of a process"] = len(own_numbers())
    told["MPS in the environment"] = any(name.startswith("CUDA_MPS") for name in os.environ)
    told["compiler"] = shutil.which("cc") or "none"
    ask("others on the device", lambda: len(listed(nvml)))
    return told


def known():
    """Sends the numbers by which NVML lists this process."""
    cuda = Cuda(context=False)
    nvml = Nvml(cuda.uuid())
    before = listed(nvml)
    flags, active = c_uint(), c_int()
    cuda("cuDevicePrimaryCtxGetState", cuda.device, byref(flags), byref(active))
    context = cuda.value("cuDevicePrimaryCtxRetain", cuda.device)
    cuda("cuCtxSetCurrent", context)
    cuda.value("cuMemAlloc_v2", 1 << 20)
    now = listed(nvml)
    tell({"own": own_numbers(), "listed": [pid for pid in now if pid not in before], "early": active.value})
    wait()
    return {}


def took(size):
    """Allocates `size` bytes, and returns NVML's numbers and bytes of this process."""
    cuda = Cuda()
    nvml = Nvml(cuda.uuid())
    cuda.value("cuMemAlloc_v2", size)
    own, there = own_numbers(), listed(nvml)
    found = {pid: used for pid, used in there.items() if pid in own}
    return {"own": own, "listed": found, "others": len(there), "uuid": cuda.uuid()}


def inside(size):
    """Runs `took` in a namespace of process numbers of its own, as in a container. Then adds the bytes that NVML outside of the
    namespace lists for the process."""
    outside = lister()  # before the pipes, whose ends it would keep open
    (reading, writing), (ended, end) = os.pipe(), os.pipe()
    enter_namespace()
    child = os.fork()
    if child == 0:
        try:
            told = {**took(size), "number": os.getpid()}
        except Exception as error:  # the parent reports any error
            told = {"error": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(told).encode())
        os.close(writing)
        os.close(end)
        os.read(ended, 1)  # the parent has asked NVML, or has ended
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = json.loads(answer.read() or "{}")
    if "uuid" in told:
        told["outside"] = outside(told["uuid"], child)
    os.close(end)
    os.waitpid(child, 0)
    if "number" not in told:
        raise Skip(f"no CUDA in a namespace of its own: {told.get('error', 'the process ended')}")
    return told


def lister():
    """Returns a function that tells the bytes that NVML outside of a later namespace lists for a process.

    A child asks NVML. A process that has made a namespace for its children can start no threads, and NVML may start some."""
    (asking, ask), (answering, answer) = os.pipe(), os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        try:
            die_with(parent)
            os.close(ask)
            uuid, _, pid = os.read(asking, 100).decode().partition(" ")
            os.write(answer, json.dumps(listed(Nvml(uuid)).get(int(pid))).encode())
        finally:
            os._exit(0)
    os.close(asking)
    os.close(answer)

    def outside(uuid, pid):
        os.write(ask, f"{uuid} {pid}".encode())
        return json.loads(os.read(answering, 100) or "null")

    return outside


def enter_namespace():
    """Makes a namespace of process numbers. The next child is its first process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_PIDS) and libc.unshare(NEW_USER | NEW_PIDS):
        raise Skip(f"no namespace of process numbers can be made: {os.strerror(ctypes.get_errno())}")


def right_bytes(seen, size):
    """Returns whether the bytes are the process's, or None if NVML lists it by no number of its own."""
    return all(used >= size for used in seen["listed"].values()) if seen["listed"] else None


def forked():
    """Returns the statuses of cuInit and of a context in a child that was forked after cuInit, and of an allocation in the
    parent."""
    cuda = Cuda()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        context = c_uint64()
        statuses = [cuda.status("cuInit", 0), cuda.status("cuDevicePrimaryCtxRetain", byref(context), cuda.device)]
        os.write(writing, " ".join(map(str, statuses)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return {
        "child": [int(word) for word in os.read(reading, 100).split()],
        "parent": cuda.status("cuMemAlloc_v2", byref(c_uint64()), 1),
    }


def run(part):
    with part.about("the machine"):
        seen = part.work("described")
        part.figure("machine", seen)
        busy = seen.get("others on the device")
        if isinstance(busy, int) and busy > 0:
            part.skip("a GPU that no other process uses", f"{busy} other processes: figures are theirs too")
    with part.about_facts("numbers of processes", UUIDS, NO_CONTEXT, PIDS):
        with part.start("known") as worker:
            seen = worker.answer()
        part.fact(UUIDS, True, "found")
        part.fact(NO_CONTEXT, not seen["early"], seen["early"])
        if not seen["listed"]:
            raise Skip("NVML lists no new process once it has a context")
        part.fact(PIDS, any(pid in seen["own"] for pid in seen["listed"]), seen)

    with part.about_facts("bytes of a process", BYTES, OUTSIDE):
        seen = {"here": part.work("took", size=GIB)}
        with part.about("bytes of a process in a namespace of its own"):
            seen["in a namespace of its own"] = part.work("inside", size=GIB)
            outside = seen["in a namespace of its own"]["outside"]
            is_host = os.readlink("/proc/self/ns/pid") == HOST
            part.fact(OUTSIDE, (outside or 0) >= GIB if is_host else None, outside if is_host else "not on the host")
        part.figure("bytes after 1 GiB", seen)
        right = [right_bytes(each, GIB) for each in seen.values()]
        part.fact(BYTES, None if all(each is None for each in right) else False not in right, seen)

    with part.about_facts("a forked child", FORKED):
        seen = part.work("forked")
        part.fact(FORKED, any(seen["child"]) and seen["parent"] == 0, seen)


if __name__ == "__main__":
    main(__file__, run, described, known, took, inside, forked)
