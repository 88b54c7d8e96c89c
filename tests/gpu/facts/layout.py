"""Finds where pools and graphs place memory, and whether shared memory outlives its maker."""

import ctypes
import fcntl
import os
import struct
from ctypes import byref, c_char, c_int, c_size_t, c_uint64, c_void_p

from bench import MIB, Fact, main, tell, wait
from driver import (
    ON_DEVICE,
    PINNED,
    POOL_KEEPS_ALL,
    POOL_THRESHOLD,
    READ_WRITE,
    Access,
    AllocationProperties,
    Cuda,
    Location,
    Nvml,
    PoolProperties,
)

START = Fact(
    "a pool lays an allocation at the start of the first hole that it finds fitting",
    "src/policy/src/pool/holes.rs",
    "the model of holes ends at the first allocation that shows it; near the quota more is refused or trimmed",
)
HOLE_FIRST = Fact(
    "what a stream freed can be had again in it at once, without the pool growing",
    "src/policy/src/pool/holes.rs",
    "allocations near the quota would be refused that the driver could grant",
)
DESTROYED = Fact(
    "a destroyed pool with live allocations keeps just their bytes, rounded up to 32 MiB, until they are freed",
    "destroy and shrink in src/shim/src/hooks/memory/pool.rs",
    "a slice would be charged too little for pools that have ended",
)
EARLY_ADDRESS = Fact(
    "a graph's allocation has its address from when its node is made, and takes no memory before a launch or upload",
    "src/policy/src/sizes/graph.rs",
    "what an executable can need could not be counted when it is instantiated",
)
GRAPH_UNIT = Fact(
    "the device's graph counter grows in units of at most 32 MiB, and keeps what it has until it is trimmed",
    "GRAPH_UNIT in src/policy/src/sizes/graph.rs",
    "graphs could hold more than is charged",
)
SAME_HANDLE = Fact(
    "the handle of memory that is exported twice has the same bytes",
    "src/region/src/memory/shared_memory.rs, src/shim/src/hooks/memory/sharing.rs",
    "memory shared between processes would be charged twice",
)
MARKED = Fact(
    "a descriptor of exported memory can carry a lock of its open file, which fdinfo shows",
    "src/shim/src/memory/share_keys.rs",
    "no process inherits the charge of memory that is handed over by descriptor",
)
LIVES_ON = Fact(
    "memory of an exporter that was killed lives on in its importers",
    "src/shim/src/hooks/memory/sharing.rs, src/region/src/memory/shared_memory.rs",
    "an heir would be charged for memory that is gone, until it closes it",
)
GRAPH_RESERVED, POSIX_DESCRIPTOR, F_OFD_SETLK = 2, 1, 37


class AllocationNode(ctypes.Structure):
    """`CUDA_MEM_ALLOC_NODE_PARAMS`."""

    _fields_ = [
        ("pool", PoolProperties),
        ("access", c_void_p),
        ("accesses", c_size_t),
        ("size", c_size_t),
        ("address", c_uint64),
    ]


class Handle(ctypes.Structure):
    """`CUipcMemHandle`, which is passed by value."""

    _fields_ = [("bytes", c_char * 64)]


def holes():
    """Returns the offsets of allocations from the first one, and the bytes of the pool, in three situations."""
    cuda = Cuda()
    stream, pool = cuda.stream(), cuda.new_pool()
    cuda("cuMemPoolSetAttribute", pool, POOL_THRESHOLD, byref(POOL_KEEPS_ALL))

    def take(size):
        return cuda.value("cuMemAllocFromPoolAsync", size * MIB, pool, stream)

    blocks = [take(4) for _ in range(6)]
    held = cuda.of_pool(pool)
    first, second, third, fourth = blocks[0], blocks[1], blocks[2], blocks[3]
    cuda("cuMemFreeAsync", second, stream)
    again = take(4)
    told = {"after one": [again - first, second - first], "grew": [held, cuda.of_pool(pool)]}
    cuda("cuMemFreeAsync", again, stream)
    cuda("cuMemFreeAsync", fourth, stream)
    small = take(1)
    told["of two holes"] = [small - first, second - first, fourth - first]
    cuda("cuMemFreeAsync", third, stream)
    wide = take(8)
    told["joined"] = [wide - first, small + MIB - first]  # the rest of the first hole, and the two holes behind it
    told["grew at last"] = cuda.of_pool(pool) - held
    return told


def destroyed():
    """Returns the bytes that the device has lost: with a pool of 256 MiB, after most frees, after the pool's end, after all
    frees."""
    cuda = Cuda()
    stream, pool = cuda.stream(), cuda.new_pool()
    cuda("cuMemPoolSetAttribute", pool, POOL_THRESHOLD, byref(POOL_KEEPS_ALL))
    before = cuda.free()
    blocks = [cuda.value("cuMemAllocFromPoolAsync", 64 * MIB, pool, stream) for _ in range(4)]
    told = [before - cuda.free()]
    for block in blocks[1:]:
        cuda("cuMemFreeAsync", block, stream)
    cuda("cuStreamSynchronize", stream)
    told.append(before - cuda.free())
    cuda("cuMemPoolDestroy", pool)
    told.append(before - cuda.free())
    cuda("cuMemFreeAsync", blocks[0], stream)
    cuda("cuStreamSynchronize", stream)
    return [*told, before - cuda.free()]


def graph_memory():
    """Returns the address of an allocation node of 10 MiB, and the graph counter at each step of its life."""
    cuda, steps = Cuda(), {}
    stream, graph = cuda.stream(), cuda.value("cuGraphCreate", 0)

    def counter(name, attribute=GRAPH_RESERVED):
        word = c_uint64()
        cuda("cuDeviceGetGraphMemAttribute", cuda.device, attribute, byref(word))
        steps[name] = word.value

    access = Access(Location(1, cuda.device), READ_WRITE)
    node = AllocationNode(PoolProperties(1, 0, Location(1, cuda.device)), ctypes.addressof(access), 1, 10 * MIB, 0)
    made, freed = c_void_p(), c_void_p()
    counter("before")
    cuda("cuGraphAddMemAllocNode", byref(made), graph, None, 0, byref(node))
    counter("node")
    cuda("cuGraphAddMemFreeNode", byref(freed), graph, byref(made), 1, node.address)
    executable = cuda.value("cuGraphInstantiateWithFlags", graph, 0)
    counter("instantiated")
    cuda("cuGraphUpload", executable, stream)
    cuda("cuStreamSynchronize", stream)
    counter("uploaded")
    cuda("cuGraphLaunch", executable, stream)
    cuda("cuStreamSynchronize", stream)
    counter("launched")
    cuda("cuGraphLaunch", executable, stream)
    cuda("cuStreamSynchronize", stream)
    counter("launched again")
    cuda("cuGraphExecDestroy", executable)
    counter("destroyed")
    cuda("cuDeviceGraphMemTrim", cuda.device)
    counter("trimmed")
    return {"address": node.address != 0, "steps": steps}


def descriptor():
    """Exports physical memory as a descriptor, and takes a read lock on one byte far behind its end."""
    cuda, place, number = Cuda(), 1 << 62 | 12345, c_int()
    size, kind = cuda.granule(), AllocationProperties(PINNED, POSIX_DESCRIPTOR, Location(ON_DEVICE, cuda.device))
    handle = cuda.value("cuMemCreate", size, byref(kind), 0)
    cuda("cuMemExportToShareableHandle", byref(number), handle, ctypes.c_int(POSIX_DESCRIPTOR), 0)
    lock, told = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, place, 1, 0), {}
    try:
        fcntl.fcntl(number.value, F_OFD_SETLK, lock)
        told["set"] = True
    except OSError as error:
        told["set"] = str(error)
    with open(f"/proc/self/fdinfo/{number.value}") as info:
        told["shown"] = any(str(place) in line for line in info if line.startswith("lock:"))
    os.close(number.value)
    cuda("cuMemRelease", handle)
    return told


def exporter(size):
    """Allocates memory, writes to it, and sends its handle twice."""
    cuda = Cuda()
    address, handles = cuda.value("cuMemAlloc_v2", size), []
    cuda("cuMemsetD8_v2", address, c_int(7), size)
    cuda("cuCtxSynchronize")
    for _ in range(2):
        handle = Handle()
        cuda("cuIpcGetMemHandle", byref(handle), address)
        handles.append(bytes(handle).hex())
    tell(handles)
    wait()
    return {}


def importer(handle, size):
    """Opens the memory, and reads it again after its maker has ended."""
    cuda = Cuda()
    nvml, address, word = Nvml(cuda.uuid()), c_uint64(), c_uint64()
    cuda("cuIpcOpenMemHandle_v2", byref(address), Handle.from_buffer_copy(bytes.fromhex(handle)), ctypes.c_uint(1))
    held = nvml.physical_free()
    tell({})
    wait()
    status = cuda.status("cuMemcpyDtoH_v2", byref(word), address.value + size - 8, 8)
    after = nvml.physical_free()
    cuda.status("cuIpcCloseMemHandle", address.value)
    return {"status": status, "intact": word.value == 0x0707070707070707, "free": [held, after, nvml.physical_free()]}


def run(part):
    with part.about_facts("holes", START, HOLE_FIRST):
        seen = part.work("holes")
        part.figure("offsets in a pool", seen)
        low = seen["of two holes"][0] == min(seen["of two holes"][1:])
        part.fact(START, low and seen["joined"][0] == seen["joined"][1], seen)
        part.fact(HOLE_FIRST, seen["after one"][0] == seen["after one"][1] and seen["grew"][0] == seen["grew"][1], seen)
    with part.about_facts("a destroyed pool", DESTROYED):
        full, freed, without, last = part.work("destroyed")
        seen = {"full": full, "freed": freed, "without the pool": without, "at last": last}
        part.fact(DESTROYED, 64 * MIB <= without <= 96 * MIB and last < 64 * MIB, seen)
    with part.about_facts("memory of graphs", EARLY_ADDRESS, GRAPH_UNIT):
        seen = part.work("graph_memory")
        steps = seen["steps"]
        part.figure("graph memory", seen)
        part.fact(EARLY_ADDRESS, seen["address"] and steps["instantiated"] == steps["before"], seen)
        grown, kept = steps["launched again"] - steps["before"], steps["destroyed"] == steps["launched again"]
        part.fact(GRAPH_UNIT, 10 * MIB <= grown <= 32 * MIB and kept and steps["trimmed"] == steps["before"], steps)
    with part.about_facts("a descriptor of memory", MARKED):
        seen = part.work("descriptor")
        part.fact(MARKED, seen == {"set": True, "shown": True}, seen)
    with part.about_facts("memory of a killed exporter", SAME_HANDLE, LIVES_ON):
        size = 64 * MIB
        with part.start("exporter", size=size) as maker:
            one, other = maker.answer()
            part.fact(SAME_HANDLE, one == other, one == other)
            with part.start("importer", handle=one, size=size) as user:
                user.answer()
                maker.kill()
                user.go_on()
                seen = user.answer()
        part.fact(LIVES_ON, seen["status"] == 0 and seen["intact"], seen)


if __name__ == "__main__":
    main(__file__, run, holes, destroyed, graph_memory, descriptor, exporter, importer)
