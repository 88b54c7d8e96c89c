"""Finds the order of launches around an event, and the driver's answers to events and handles of other contexts."""

import ctypes
from ctypes import byref, c_char, c_float, c_int, c_uint, c_uint64, c_void_p

from bench import Broken, Fact, Skip, main, words
from driver import SUCCESS, Cuda
from stats import median
from watch import Watcher, text

IN_ORDER = Fact(
    "of two launches with programmatic dependent launch, the second waits for the first if an event stands between them",
    "src/policy/src/compute/measuring/batch.rs",
    "work of two batches would run at the same time, and would be charged twice",
)
GREEN = Fact(
    "events of a green context can be recorded in streams of its primary context, and the other way round",
    "src/shim/src/driver_calls/events.rs",
    "launches there would be charged by estimates, and events would be kept for each of the two",
)
CHECKED = Fact(
    "the driver refuses the handle of a context that has ended in cuCtxGetApiVersion",
    "context_is_alive in src/shim/src/driver_calls/contexts.rs",
    "the library would have to count the uses of each context itself",
)
LENGTH = 20_000
MAJOR = 75  # CUdevice_attribute
PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute`: its value is a union of 64 bytes."""

    _fields_ = [("kind", c_int), ("pad", c_char * 4), ("value", c_int), ("rest", c_char * 60)]


class LaunchConfiguration(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = [("shape", c_uint * 6), ("shared", c_uint), ("stream", c_void_p), ("attributes", c_void_p), ("count", c_uint)]


def early():
    """Returns a module with a watching kernel that lets the next launch begin at once. Devices from 9.0 on can do that."""
    whole = text([f"early_spin_{LENGTH}us"]).decode()
    head = "    mov.u64 %begun, %globaltimer;\n"
    whole = whole.replace(".version 7.0\n.target sm_75", ".version 7.8\n.target sm_90")
    return whole.replace(head, f"    griddepcontrol.launch_dependents;\n{head}", 1).encode()


def pairs():
    """Returns the milliseconds of two kernels of 20 ms in a stream, with and without the attribute, and with an event between."""
    watcher = Watcher([1])
    cuda = watcher.cuda
    if cuda.attribute(MAJOR) < 9:
        raise Skip("programmatic dependent launch needs a device of 9.0 or later")
    module = cuda.value("cuModuleLoadData", early())
    function = c_void_p(cuda.value("cuModuleGetFunction", module, f"early_spin_{LENGTH}us".encode()))
    boxes = (c_uint64 * 2)(watcher.ring, 1000 * LENGTH)
    places = (c_void_p * 2)(*[ctypes.addressof(boxes) + 8 * at for at in range(2)])
    attribute = LaunchAttribute(PROGRAMMATIC, b"", 1, b"")
    first, between, last = (watcher.event() for _ in range(3))

    def launch(programmatic):
        configuration = LaunchConfiguration((c_uint * 6)(1, 1, 1, 1, 1, 1), 0, watcher.stream, ctypes.addressof(attribute),
                                            int(programmatic))  # fmt: skip
        cuda("cuLaunchKernelEx", byref(configuration), function, places, None)

    def took(programmatic, with_event):
        watcher.record(first)
        launch(programmatic)
        if with_event:
            watcher.record(between)
        launch(programmatic)
        watcher.record(last)
        watcher.wait()
        return watcher.between(first, last) / 1e6

    launch(False)
    watcher.wait()
    ways = {"plain": (False, False), "programmatic": (True, False), "programmatic, with an event": (True, True)}
    return {name: round(median([took(*way) for _ in range(5)]), 2) for name, way in ways.items()}


def in_order(seen):
    """Returns whether the event keeps the order. None: launches do not overlap even without an event."""
    one = seen["plain"] / 2
    return seen["programmatic, with an event"] >= 1.8 * one if seen["programmatic"] <= 1.5 * one else None


def green():
    """Returns the statuses of events of the primary and of a green context in streams of both."""
    cuda = Cuda()
    # `CUdevResource` has 144 bytes. NVIDIA changes its fields, so they are only handed on.
    whole, group, rest, count = (c_char * 144)(), (c_char * 144)(), (c_char * 144)(), c_uint(1)
    cuda("cuDeviceGetDevResource", cuda.device, whole, 1)
    cuda("cuDevSmResourceSplitByCount", group, byref(count), whole, rest, 0, 8)
    made = cuda.value("cuGreenCtxCreate", cuda.value("cuDevResourceGenerateDesc", group, 1), cuda.device, 1)
    contexts = {"primary": cuda.context, "green": cuda.value("cuCtxFromGreenCtx", made)}
    events, streams, told, length = {}, {}, {}, c_float()
    for name, context in contexts.items():
        cuda("cuCtxSetCurrent", context)
        events[name] = [cuda.value("cuEventCreate", 0) for _ in range(2)]
        streams[name] = cuda.stream()
    for current, context in contexts.items():
        cuda("cuCtxSetCurrent", context)
        for owner, (first, last) in events.items():
            for place, stream in streams.items():
                statuses = [cuda.status("cuEventRecord", event, stream) for event in (first, last)]
                statuses.append(cuda.status("cuStreamSynchronize", stream))
                statuses.append(cuda.status("cuEventElapsedTime", byref(length), first, last))
                told[f"of {owner}, in a stream of {place}, while {current} is current"] = statuses
    return told


def ended():
    """Returns the statuses of `cuCtxGetApiVersion` for a context while it exists and after its end."""
    cuda, told, version = Cuda(), {}, c_uint()
    for how in ("cuCtxDestroy_v2", "cuCtxDetach"):
        context = cuda.value("cuCtxCreate_v2", 0, cuda.device)
        asked = [cuda.status("cuCtxGetApiVersion", context, byref(version))]
        cuda(how, context)
        asked.append(cuda.status("cuCtxGetApiVersion", context, byref(version)))
        told[how] = asked
    return told


def checked(seen):
    return all(alive == SUCCESS and after != SUCCESS for alive, after in seen.values())


def run(part):
    with part.about_facts("programmatic dependent launch", IN_ORDER):
        seen = part.work("pairs")
        part.figure("ms of two kernels of 20 ms", seen)
        truth = in_order(seen)
        part.fact(IN_ORDER, truth, f"even without an event they do not overlap: {words(seen)}" if truth is None else seen)
    with part.about_facts("events of green contexts", GREEN):
        seen = part.work("green")
        part.figure("events of green contexts: statuses", seen)
        failed = {name: statuses for name, statuses in seen.items() if any(statuses)}
        part.fact(GREEN, not failed, failed)
    with part.about_facts("a context that has ended", CHECKED):
        try:
            seen = part.work("ended")
            part.fact(CHECKED, checked(seen), seen)
        except Broken as why:
            if "ended with -" not in str(why):
                raise
            part.fact(CHECKED, False, str(why))  # a signal: the driver has used the handle without a check


if __name__ == "__main__":
    main(__file__, run, pairs, green, ended)
