"""Measures the overhead of a forwarded call, an allocation and a launch. Processes take turns: bare, loaded, limited."""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from ctypes import c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

from bench import MIB, QUOTA, Skip, main, median, tell, wait
from driver import Cuda, Refused

# Calls: the number of calls in a turn, and the nanoseconds that the library may add to one.
CALLS = {"forwarded": (200_000, 5), "alloc_free": (256, 300), "launches": (2048, 50)}
# The share does not bind: a turn of launches takes less than a slice saves up while the others have their turns.
WAYS = {
    "bare": {}, "loaded": {"loaded": True}, "inside a quota": {"limit": QUOTA},
    "inside a share": {"loaded": True, "env": {"GPU_CORE_PERCENT": "95"}},
}  # fmt: skip


def compiled(folder):
    """Returns the loops in C, or None if there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = os.path.join(folder, "loops.so")
    source = Path(__file__).with_name("loops.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, str(source)], check=True)
    return library


class InC:
    """Loops of `loops.c`."""

    def __init__(self, cuda, library):
        self.loops, self.cuda = ctypes.CDLL(library), cuda

    def loop(self, name, *arguments):
        function = self.loops[name]
        function.restype = c_int64
        spent = function(*arguments)
        if spent < 0:
            raise Refused(name, -spent)
        return spent

    def at(self, call):
        return ctypes.cast(self.cuda.object[call], c_void_p)

    def forwarded(self, count):
        return self.loop("forwarded", self.at("cuCtxGetDevice"), c_int(count))

    def alloc_free(self, count):
        return self.loop("alloc_free", self.at("cuMemAlloc_v2"), self.at("cuMemFree_v2"), c_size_t(MIB), c_int(count))

    def records(self, event, stream, count):
        calls = self.at("cuEventRecord"), self.at("cuStreamSynchronize")
        return self.loop("records", *calls, c_void_p(event), c_void_p(stream), c_int(count))

    def launches(self, count):
        kernel, stream = prepared(self.cuda)
        calls = self.at("cuLaunchKernel"), self.at("cuStreamSynchronize")
        return self.loop("launches", *calls, c_void_p(kernel), c_void_p(stream), c_int(count))


class InPython:
    """Loops through ctypes. The interpreter's own time is in each figure, but not in their difference."""

    def __init__(self, cuda):
        self.cuda = cuda

    def forwarded(self, count):
        device = ctypes.byref(c_int())
        return self.timed(count // 10, self.cuda.object.cuCtxGetDevice, device) * 10

    def alloc_free(self, count):
        address = ctypes.c_uint64()
        written, size = ctypes.byref(address), c_size_t(MIB)
        alloc, free = self.cuda.object.cuMemAlloc_v2, self.cuda.object.cuMemFree_v2
        return self.timed(count, lambda: alloc(written, size) or free(address))

    def launches(self, count):
        kernel, stream = (c_void_p(word) for word in prepared(self.cuda))
        shape, launch, total = [ctypes.c_uint(1)] * 6, self.cuda.object.cuLaunchKernel, 0
        for _ in range(count // 256):
            total += self.timed(256, launch, kernel, *shape, ctypes.c_uint(0), stream, None, None)
            self.cuda("cuStreamSynchronize", stream.value)
        return total

    def timed(self, count, function, *arguments):
        start = time.perf_counter_ns()
        for _ in range(count):
            status = function(*arguments)
            if status:
                raise Refused("a timed call", status)
        return time.perf_counter_ns() - start


def prepared(cuda):
    if not hasattr(cuda, "prepared"):
        cuda.prepared = cuda.empty_kernel(), cuda.stream()
    return cuda.prepared


def loop(library):
    """Answers each `CALL COUNT` with its nanoseconds."""
    cuda = Cuda()
    loops = InC(cuda, library) if library else InPython(cuda)
    cuda("cuMemFree_v2", cuda.value("cuMemAlloc_v2", MIB))
    tell({})
    while True:
        call, count = wait().split()
        try:
            tell({"ns": getattr(loops, call)(int(count))})
        except Refused as refused:
            tell({"status": refused.status, "call": refused.call})


def turns(workers, call, count, rounds):
    """Returns the nanoseconds of one call, by way and turn. The order changes from turn to turn."""
    times, ways = {way: [] for way in workers}, list(workers)
    for turn in range(rounds + 1):
        for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
            workers[way].go_on(f"{call} {count}")
            answer = workers[way].answer()
            if "status" in answer:
                raise Skip(f"{answer['call']} gives {answer['status']}")
            times[way].append(answer["ns"] / count)
    return {way: measured[1:] for way, measured in times.items()}  # the first turn warms up


def summary(times):
    seen = {"bare": {"ns": round(median(times["bare"]), 1)}}
    for way in list(WAYS)[1:]:
        added = sorted(mine - bare for mine, bare in zip(times[way], times["bare"]))
        ratio = median([mine / bare for mine, bare in zip(times[way], times["bare"])])
        quarter = len(added) // 4
        seen[way] = {
            "ns": round(median(times[way]), 1),
            "added": round(median(added), 1),
            "middle half": [round(added[quarter], 1), round(added[-1 - quarter], 1)],
            "ratio": round(ratio, 4),
        }
    return seen


def run(part):
    library = compiled(part.scratch.name)
    part.figure("loops", "C" if library else f"Python {sys.version.split()[0]} through ctypes")
    if library is None:
        part.skip("nanoseconds of single calls", "there is no cc; the figures contain the interpreter's time")
    workers = {way: part.start("loop", library=library, **how) for way, how in WAYS.items()}
    try:
        for worker in workers.values():
            worker.answer()
        for call, (count, most) in CALLS.items():
            with part.about(f"cost: {call}"):
                seen = summary(turns(workers, call, count, 4 if part.simulated else 40))
                part.figure(f"{call}, ns a call", seen)
                if part.simulated or library is None:
                    part.check(f"measured: {call}", True)
                    continue
                # A call misses its target only if three quarters of the turns miss it.
                for way in list(WAYS)[1:]:
                    part.check(f"{call}: at most {most} ns added, {way}", seen[way]["middle half"][0] <= most, seen[way])
    finally:
        for worker in workers.values():
            worker.__exit__()


if __name__ == "__main__":
    main(__file__, run, loop)
