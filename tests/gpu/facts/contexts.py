"""Measures the memory and the time of contexts, code, streams, events and limits, by free memory and by NVML."""

import time
from ctypes import byref, c_uint64

from bench import GIB, KIB, MIB, Fact, Skip, main
from driver import Cuda, Nvml
from machine import own_bytes
from watch import Watcher

AGREE = Fact(
    "free memory and NVML's figure of the process move by the same, within 4 MiB, for contexts, code and heaps",
    "src/shim/src/memory/measurement.rs, driver_calls/nvml/memory.rs",
    "what is measured beside busy neighbours would be wrong by the difference",
)
CURRENT = Fact(
    "both are current when the call returns: 0.3 s later they are the same",
    "src/shim/src/memory/measurement.rs, driver_calls/nvml/memory.rs",
    "a measured call would have to wait before it measures",
)
SMALL = Fact(
    "streams and events take no more than 32 MiB for 64 streams and 1000 events",
    "docs/reference/hooks.md: their calls are passed on",
    "calls that make streams would have to be measured",
)
LAUNCHES = Fact(
    "a launch of loaded code that needs no larger stack takes nothing",
    "docs/internals/memory-accounting.md: a launch is not looked at",
    "what launches take would stay uncharged until the next wait",
)
HEAP, STACK = 2, 0  # CUlimit


def steps(pause):
    """Returns the bytes of each step by free memory and by NVML's figures of the device and the process, and its milliseconds."""
    cuda = Cuda(context=False)
    nvml, watcher = Nvml(cuda.uuid()), cuda.value("cuCtxCreate_v2", 0, cuda.device)
    told, kept, popped = {}, [], c_uint64()
    fresh = object.__new__(Watcher)
    fresh.cuda = cuda

    def look():
        cuda("cuCtxPushCurrent_v2", watcher)
        free = cuda.free()
        cuda("cuCtxPopCurrent_v2", byref(popped))
        return {"free": -free, "used": nvml.memory()["v2"][2], "own": own_bytes(nvml)}

    def step(name, action):
        before, began = look(), time.perf_counter()
        action()
        took = 1000 * (time.perf_counter() - began)
        at_once = look()
        time.sleep(pause)
        later = look()
        told[name] = {key: at_once[key] - before[key] if before[key] is not None and at_once[key] is not None else None
                      for key in before}  # fmt: skip
        told[name].update({"ms": round(took, 2), "current": at_once == later})

    def context():
        cuda("cuCtxSetCurrent", cuda.value("cuDevicePrimaryCtxRetain", cuda.device))

    def launch():
        fresh.watching(1)()
        cuda("cuCtxSynchronize")

    step("context", context)
    step("code and a ring of 2.5 MiB", lambda: Watcher.load(fresh, [1]))
    step("first launch", launch)
    step("second launch", launch)
    step("64 streams", lambda: kept.extend(cuda.stream() for _ in range(64)))
    step("1000 events", lambda: kept.extend(cuda.value("cuEventCreate", 0) for _ in range(1000)))
    step("1 GiB", lambda: kept.append(cuda.value("cuMemAlloc_v2", GIB)))
    step("its end", lambda: cuda("cuMemFree_v2", kept.pop()))
    step("a heap of 256 MiB", lambda: cuda("cuCtxSetLimit", HEAP, 256 * MIB))
    step("a stack of 16 KiB, launch", lambda: (cuda("cuCtxSetLimit", STACK, 16 * KIB), launch()))
    return told


def run(part):
    with part.about_facts("what contexts and code take", AGREE, CURRENT, SMALL, LAUNCHES):
        seen = part.work("steps", pause=0.05 if part.simulated else 0.3)
        part.figure("steps", seen)
        small = seen["64 streams"]["free"] + seen["1000 events"]["free"]
        part.fact(SMALL, small <= 32 * MIB, small)
        part.fact(LAUNCHES, seen["second launch"]["free"] == 0, seen["second launch"])
        late = [name for name, cell in seen.items() if not cell["current"]]
        part.fact(CURRENT, part.timely(not late), late)
        measured = {name: seen[name] for name in ("context", "code and a ring of 2.5 MiB", "1 GiB", "a heap of 256 MiB")}
        if any(cell["own"] is None for cell in measured.values()):
            raise Skip("NVML does not know this process by its number")
        apart = {name: abs(cell["free"] - cell["own"]) for name, cell in measured.items()}
        part.fact(AGREE, all(difference <= 4 * MIB for difference in apart.values()), apart)


if __name__ == "__main__":
    main(__file__, run, steps)
