"""Finds where managed memory, and memory of the host that a GPU reaches, is counted. It runs only if the run allows it."""

import ctypes
from ctypes import c_char, c_int

from bench import MIB, Fact, Skip, main
from driver import ON_DEVICE, Cuda, Location, Nvml, Refused
from machine import own_bytes

POOL = Fact(
    "the counter of a managed pool has memory that is on the host, or that nothing has touched yet",
    "payer in src/shim/src/hooks/memory/pool.rs charges the counter to a device",
    "a managed pool would be charged less than it can take",
)
UNCOUNTED = Fact(
    "managed memory on a device is not in NVML's bytes of the process",
    "src/shim/src/memory/managed_bytes.rs: the library charges it by its own count",
    "contexts and code would be charged with managed memory where they are measured by NVML",
)
PAGEABLE = Fact(
    "advice about pageable memory, and prefetches of it, take no device memory where the GPU reaches it",
    "src/shim/src/hooks/memory/managed.rs passes them on",
    "a slice could take memory of the device without a charge",
)
MANAGED, GLOBAL = 2, 1  # CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_ATTACH_GLOBAL
ON_HOST, PREFER = 2, 3  # CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ADVISE_SET_PREFERRED_LOCATION
REACHES_PAGEABLE, REACHES_MANAGED = 88, 89  # CUdevice_attribute
SIZE = 256 * MIB


def prefetch(cuda, address, size, stream, kind=ON_DEVICE):
    place = Location(kind, cuda.device if kind == ON_DEVICE else 0)
    cuda("cuMemPrefetchAsync_v2", address, size, place, ctypes.c_uint(0), stream)
    cuda("cuStreamSynchronize", stream)


def pool(size):
    """Returns the counter of a managed pool and the bytes that the device has lost, by the place of the pool's only block."""
    cuda, told = Cuda(), {}
    try:
        made = cuda.new_pool(MANAGED)
    except Refused as refused:
        raise Skip(f"the driver makes no managed pool: {refused}") from None
    stream, before = cuda.stream(), cuda.free()
    block = cuda.value("cuMemAllocFromPoolAsync", size, made, stream)

    def look(name):
        cuda("cuStreamSynchronize", stream)
        told[name] = {"counter": cuda.of_pool(made), "lost": before - cuda.free()}

    look("untouched")
    for name, kind in (("on the device", ON_DEVICE), ("on the host", ON_HOST)):
        prefetch(cuda, block, size, stream, kind)
        look(name)
    return told


def counted(seen, size):
    """Returns whether the counter has the block at each of its places."""
    return all(each["counter"] >= size for each in seen.values())


def allocated(size):
    """Returns the bytes that the device loses, and those by which NVML's figure of this process grows, by managed memory that is
    prefetched to the device."""
    cuda = Cuda()
    nvml, stream = Nvml(cuda.uuid()), cuda.stream()
    if not cuda.attribute(REACHES_MANAGED):
        raise Skip("the device cannot share managed memory with the host")
    free, own = cuda.free(), own_bytes(nvml)
    prefetch(cuda, cuda.value("cuMemAllocManaged", size, GLOBAL), size, stream)
    then = own_bytes(nvml)
    return {"lost": free - cuda.free(), "own": None if own is None or then is None else then - own}


def uncounted(seen, size):
    """Returns whether UNCOUNTED is true. None: NVML does not know the process, or the memory did not come to the device."""
    if seen["own"] is None or seen["lost"] < size // 2:
        return None
    return seen["own"] < size // 2


def pageable(size):
    """Returns the bytes that the device loses by advice about pageable memory, and by a prefetch of it."""
    cuda, told = Cuda(), {}
    if not cuda.attribute(REACHES_PAGEABLE):
        raise Skip("the GPU does not reach pageable memory")
    stream, host = cuda.stream(), (c_char * size)()
    address, place = ctypes.addressof(host), Location(ON_DEVICE, cuda.device)
    ctypes.memset(address, 1, size)
    for name, call in (
        ("advice", lambda: cuda("cuMemAdvise_v2", address, size, c_int(PREFER), place)),
        ("prefetch", lambda: prefetch(cuda, address, size, stream)),
    ):
        before = cuda.free()
        call()
        told[name] = before - cuda.free()
    return told


def stays(seen, size):
    """Returns whether pageable memory stays on the host."""
    return all(lost < size // 2 for lost in seen.values())


def run(part):
    with part.about_facts("a managed pool", POOL):
        part.needs_managed()
        seen = part.work("pool", size=SIZE)
        part.figure("a managed pool", seen)
        part.fact(POOL, counted(seen, SIZE), seen)
    with part.about_facts("managed memory in NVML's bytes", UNCOUNTED):
        part.needs_managed()
        seen = part.work("allocated", size=SIZE)
        part.figure("managed memory on the device", seen)
        part.fact(UNCOUNTED, uncounted(seen, SIZE), seen)
    with part.about_facts("pageable memory", PAGEABLE):
        part.needs_managed()
        seen = part.work("pageable", size=SIZE)
        part.figure("bytes that pageable memory takes", seen)
        part.fact(PAGEABLE, stays(seen, SIZE), seen)


if __name__ == "__main__":
    main(__file__, run, pool, allocated, pageable)
