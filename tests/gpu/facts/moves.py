"""Finds when memory outside pools leaves a device, and whether copies and imports take any."""

import ctypes
from ctypes import byref, c_char, c_int, c_uint, c_uint64, c_void_p

from bench import MIB, Fact, main
from driver import Cuda, Nvml
from layout import Handle, exporter
from machine import own_bytes
from watch import Watcher

HELD = Fact(
    "memory of cuMemAlloc that a program frees in a stream stays on the device until the stream reaches the free",
    "src/shim/src/memory/free_in_stream.rs",
    "a request would wait for memory that is free",
)
BACK = Fact(
    "the device has it back when a host function behind the free runs",
    "src/shim/src/memory/free_in_stream.rs ends the charge in that function",
    "a slice could pass its quota until the device has it back",
)
COPIES = Fact(
    "copies from and to pageable memory, and fills, take no memory of the device",
    "src/shim/src/hooks/work/host_copies.rs looks at their time alone",
    "copies would have to be measured",
)
IMPORTS = Fact(
    "memory that a process opens by the handle of another process takes nothing more of the device",
    "src/shim/src/hooks/memory/sharing.rs",
    "an importer would have to be charged",
)
UNCOUNTED = Fact(
    "NVML's bytes of a process do not grow by memory that it opens",
    "found in src/shim/src/memory/nvml_baseline.rs takes no more than free memory shows, where a process imports",
    "nothing: the library allows for both; SIMGPU_NVML_IMPORTS=1 would be the usual case",
)
NOT_READY, LENGTH, SIZE, PAGEABLE = 600, 400_000, 256 * MIB, 88
# Page tables may take this much.
LITTLE = 2 * MIB


def in_stream(size):
    """Returns the device's free memory around a free in a stream: before, while a kernel of 400 ms runs in front of it, in a host
    function behind it, and at the end."""
    watcher, told = Watcher([LENGTH]), {}
    cuda = watcher.cuda
    nvml = Nvml(cuda.uuid())
    address = cuda.value("cuMemAlloc_v2", size)
    told["before"] = nvml.physical_free()

    # A host function may not call CUDA. NVML is another library.
    @ctypes.CFUNCTYPE(None, c_void_p)
    def behind(_):
        told["in the host function"] = nvml.physical_free()

    watcher.watching(LENGTH)()
    cuda("cuMemFreeAsync", address, watcher.stream)
    cuda("cuLaunchHostFunc", watcher.stream, behind, None)
    told["during the kernel"] = nvml.physical_free()
    told["the kernel ran on"] = cuda.status("cuStreamQuery", watcher.stream) == NOT_READY
    cuda("cuStreamSynchronize", watcher.stream)
    told["at the end"] = nvml.physical_free()
    return told


def verdicts_in_stream(seen, size):
    """Returns whether HELD and BACK are true. None: it was not seen."""
    early, then = (seen[name] - seen["before"] for name in ("during the kernel", "in the host function"))
    held = early < size // 2 if seen["the kernel ran on"] else None
    return {HELD: held, BACK: then >= size - LITTLE if seen["at the end"] - seen["before"] >= size - LITTLE else None}


def copies(size):
    """Returns the bytes that the device loses by each kind of copy, and whether it reaches pageable memory."""
    cuda, told = Cuda(), {}
    stream, host, other = cuda.stream(), (c_char * size)(), (c_char * size)()
    one, two = (cuda.value("cuMemAlloc_v2", size) for _ in range(2))
    calls = {
        "to the device": lambda: cuda("cuMemcpyHtoD_v2", one, host, size),
        "from the device": lambda: cuda("cuMemcpyDtoH_v2", host, one, size),
        "to the device, in a stream": lambda: cuda("cuMemcpyHtoDAsync_v2", one, host, size, stream),
        "from the device, in a stream": lambda: cuda("cuMemcpyDtoHAsync_v2", host, one, size, stream),
        "by addresses alone": lambda: cuda("cuMemcpy", one, ctypes.addressof(host), size),
        "on the host": lambda: cuda("cuMemcpy", ctypes.addressof(other), ctypes.addressof(host), size),
        "on the device": lambda: cuda("cuMemcpyDtoD_v2", two, one, size),
        "a fill": lambda: cuda("cuMemsetD8_v2", one, c_int(1), size),
    }
    for name, call in calls.items():
        before = cuda.free()
        call()
        cuda("cuCtxSynchronize")
        told[name] = before - cuda.free()
    return {"bytes": told, "reaches pageable memory": cuda.attribute(PAGEABLE)}


def takes_nothing(seen):
    return all(lost <= 0 for lost in seen["bytes"].values())


def opener(handle):
    """Opens memory of another process. Returns the bytes that the device loses, and those by which NVML's figure of this process
    grows."""
    cuda = Cuda()
    nvml, address, word = Nvml(cuda.uuid()), c_uint64(), c_uint64()

    def look():
        return cuda.free(), own_bytes(nvml)

    free, own = look()
    cuda("cuIpcOpenMemHandle_v2", byref(address), Handle.from_buffer_copy(bytes.fromhex(handle)), c_uint(1))
    cuda("cuMemcpyDtoH_v2", byref(word), address.value, 8)
    free_then, own_then = look()
    cuda("cuIpcCloseMemHandle", address.value)
    return {"lost": free - free_then, "own": None if own is None or own_then is None else own_then - own}


def verdicts_of_opened(seen, size):
    """Returns whether IMPORTS and UNCOUNTED are true. None: NVML does not list the process by a number of its own."""
    return {IMPORTS: seen["lost"] <= LITTLE, UNCOUNTED: None if seen["own"] is None else seen["own"] < size // 2}


def run(part):
    with part.about_facts("a free in a stream", HELD, BACK):
        seen = part.work("in_stream", size=SIZE)
        part.figure("free memory around a free in a stream", seen)
        for fact, truth in verdicts_in_stream(seen, SIZE).items():
            part.fact(fact, truth, seen)
    with part.about_facts("copies", COPIES):
        seen = part.work("copies", size=64 * MIB)
        part.figure("bytes that copies take", seen)
        part.fact(COPIES, takes_nothing(seen), seen)
    with part.about_facts("memory of another process", IMPORTS, UNCOUNTED):
        with part.start("exporter", size=SIZE) as maker:
            seen = part.work("opener", handle=maker.answer()[0])
        part.figure("bytes of opened memory", seen)
        for fact, truth in verdicts_of_opened(seen, SIZE).items():
            part.fact(fact, truth, seen)


if __name__ == "__main__":
    main(__file__, run, in_stream, copies, exporter, opener)
