"""Tests that the CUDA runtime starts under the library, despite its integrity check of the driver."""

import ctypes
import glob
import os
import site
import sys
from ctypes import byref, c_int, c_size_t, c_void_p

from bench import MIB, QUOTA, Fact, Skip, main
from driver import Cuda

STARTS = Fact(
    "the CUDA runtime's integrity check accepts a changed size, changed memory information and our entries",
    "src/shim/src/hooks/reports/report.rs, entry/lookup.rs",
    "what the runtime compares would have to be told unchanged to it",
)
SEES_QUOTA = Fact(
    "the runtime reports the quota and gets out-of-memory (2) beyond it",
    "src/shim/src/hooks/reports/report.rs, hooks/memory/linear.rs",
    "the runtime reaches the driver by a way that is not hooked",
)
LATE_END = Fact(
    "entries may be called from exit handlers, after the runtime has ended",
    "src/shim/src/entry/exports.rs",
    "programs would crash at their end",
)
HIDDEN = Fact(
    "no table of cuGetExportTable takes memory past the exported functions: the device loses what is charged, within 2 MiB",
    "cuGetExportTable is passed on",
    "its tables would have to be hooked too",
)
PLACES = ("nvidia/*/lib/libcudart.so.*", "nvidia/*/lib/x86_64/libcudart.so.*")


def runtimes():
    """Returns the runtimes on this machine: the loader's, the toolkit's, and those of frameworks."""
    folders = {*site.getsitepackages(), site.getusersitepackages(), *[path for path in sys.path if path]}
    found = [path for folder in sorted(folders) for place in PLACES for path in glob.glob(os.path.join(folder, place))]
    for root in ("/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/usr/lib/x86_64-linux-gnu"):
        found += glob.glob(f"{root}/libcudart.so.[0-9]*")
    by_file = {os.path.realpath(path): path for path in found}
    return sorted(by_file)


def start(runtime):
    """Returns the runtime's answers about the device, and about allocations up to and beyond the free bytes."""
    library = ctypes.CDLL(runtime)

    def status(call, *arguments):
        library[call].restype = c_int
        return library[call](*arguments)

    count, free, total, address = c_int(), c_size_t(), c_size_t(), c_void_p()
    told = {"count": [status("cudaGetDeviceCount", byref(count)), count.value], "started": status("cudaFree", None)}
    told["info"] = [status("cudaMemGetInfo", byref(free), byref(total)), free.value, total.value]
    told["piece"] = status("cudaMalloc", byref(address), c_size_t(64 * MIB))
    told["freed"] = status("cudaFree", address)
    left = c_size_t()
    status("cudaMemGetInfo", byref(left), byref(total))
    told["given back"] = left.value >= free.value
    told["beyond"] = status("cudaMalloc", byref(address), c_size_t(total.value + 1))
    return told


def through_runtime(runtime, size):
    """Returns the bytes that the device and the quota lost by an allocation of the runtime, in an existing context."""
    cuda, library, address = Cuda(), ctypes.CDLL(runtime), c_void_p()
    library.cudaFree(None)
    before, charged = cuda.free(), c_size_t(size)
    status = library.cudaMalloc(byref(address), charged)
    return {"status": status, "lost": before - cuda.free()}


def run(part):
    facts = (STARTS, SEES_QUOTA, LATE_END, HIDDEN)
    with part.about_facts("the CUDA runtime", *facts):
        if part.simulated:
            raise Skip("the CUDA runtime needs tables that only NVIDIA's driver has")
        found = runtimes()
        part.figure("runtimes", found)
        if not found:
            raise Skip("there is no libcudart on this machine")
        seen, ends = {}, {}
        for runtime in found[:4]:
            name = os.path.basename(runtime)
            bare, loaded = part.work("start", runtime=runtime), part.work("start", loaded=True, runtime=runtime)
            with part.start("start", limit=QUOTA, runtime=runtime) as worker:
                limited = worker.answer()
                ends[name] = worker.end()
            seen[name] = {"bare": bare, "loaded": loaded, "limited": limited}
        part.figure("what runtimes say", seen)
        usable = {name: ways for name, ways in seen.items() if ways["bare"]["started"] == 0}
        if not usable:
            raise Skip(f"none of {', '.join(seen)} starts, not even without the library")
        well = all(ways[how]["started"] == 0 and ways[how]["count"] == ways["bare"]["count"]
                   for ways in usable.values() for how in ("loaded", "limited"))  # fmt: skip
        part.fact(STARTS, well, {name: [ways[how]["started"] for how in ways] for name, ways in usable.items()})
        right = all(ways["limited"]["info"][2] == QUOTA and ways["limited"]["beyond"] == 2 for ways in usable.values())
        part.fact(SEES_QUOTA, right, {name: ways["limited"] for name, ways in usable.items()})
        part.fact(LATE_END, not any(ends[name] for name in usable), ends)
        size = 256 * MIB
        inside = part.work("through_runtime", limit=QUOTA, runtime=found[0], size=size)
        outside = part.work("through_runtime", runtime=found[0], size=size)
        hidden = abs(outside["lost"] - inside["lost"])
        part.fact(HIDDEN, inside["status"] == outside["status"] == 0 and hidden <= 2 * MIB, [inside, outside])


if __name__ == "__main__":
    main(__file__, run, start, through_runtime)
