"""Finds how pools and `cuMemAlloc` share a device that is full. The part takes all of the device's memory for a moment."""

import time
from ctypes import byref, c_uint64

from bench import GIB, MIB, Fact, Skip, main
from driver import OUT_OF_MEMORY, POOL_KEEPS_ALL, POOL_THRESHOLD, SUCCESS, Cuda, Nvml

OWN = Fact(
    "on a full device a pool makes a larger allocation from unused pieces of its own",
    "begin in src/policy/src/pool/calls.rs trims the pool",
    "a slice would grant allocations that a full device refuses",
)
OTHERS = Fact(
    "on a full device a pool that grows gets unused memory of other pools",
    "src/simgpu/src/process/pools.rs; begin in src/policy/src/pool/calls.rs trims no other pool",
    "the simulated GPU would have to refuse it, as a full slice does",
)
LINEAR = Fact(
    "on a full device cuMemAlloc is refused, although pools have unused memory",
    "src/shim/src/memory/reclaim.rs trims no pool",
    "a slice would refuse allocations that a full device grants",
)
# Pieces of a pool, the larger allocation, and the bytes that other programs may hold.
PIECE, LARGER, OTHER_PROGRAMS = 64 * MIB, 192 * MIB, 256 * MIB
INTEGRATED = 18  # CUdevice_attribute


def wait_for_an_idle_device(cuda, patience=5):
    """Waits until the device has the memory of earlier workers back. If it does not get it, other programs hold it."""
    nvml, end = Nvml(cuda.uuid()), time.monotonic() + patience
    while nvml.memory()["v2"][2] > OTHER_PROGRAMS:
        if time.monotonic() > end:
            raise Skip("other programs use the GPU, and this part takes all of its memory")
        time.sleep(0.05)


def fill(cuda):
    """Allocates until not even 2 MiB are left."""
    size, address = 8 * GIB, c_uint64()
    while size >= 2 * MIB:
        if cuda.status("cuMemAlloc_v2", byref(address), size):
            size //= 2


def full():
    """Returns the status of allocations on a full device: of `cuMemAlloc`, of a pool with unused pieces, and of a pool without
    any. Also returns the counter of the pool with unused pieces before and after each."""
    cuda = Cuda(context=False)
    if cuda.attribute(INTEGRATED):
        raise Skip("the device's memory is the host's, and this part takes all of it")
    wait_for_an_idle_device(cuda)
    cuda("cuCtxSetCurrent", cuda.value("cuDevicePrimaryCtxRetain", cuda.device))
    stream, address, told = cuda.stream(), c_uint64(), {}
    pool, other = cuda.new_pool(), cuda.new_pool()
    for each in (pool, other):
        cuda("cuMemPoolSetAttribute", each, POOL_THRESHOLD, byref(POOL_KEEPS_ALL))
    pieces = [cuda.value("cuMemAllocFromPoolAsync", PIECE, pool, stream) for _ in range(8)]
    # Used pieces lie between the unused ones, so that no unused place is large enough.
    for piece in pieces[::2]:
        cuda("cuMemFreeAsync", piece, stream)
    cuda("cuStreamSynchronize", stream)

    def ask(name, call, *arguments):
        fill(cuda)
        before = cuda.of_pool(pool)
        status = cuda.status(call, byref(address), *arguments)
        told[name] = {"status": status, "pool": [before, cuda.of_pool(pool)]}
        return status

    if ask("cuMemAlloc", "cuMemAlloc_v2", LARGER) == SUCCESS:
        return told  # it may have taken the pieces
    if ask("its own pool", "cuMemAllocFromPoolAsync", LARGER, pool, stream) == SUCCESS:
        cuda("cuMemFreeAsync", address.value, stream)
        cuda("cuStreamSynchronize", stream)
    ask("another pool", "cuMemAllocFromPoolAsync", LARGER // 2, other, stream)
    return told


def verdicts(seen):
    """Returns whether each fact is true. None: it was not seen."""

    def granted(name):
        status = seen.get(name, {}).get("status")
        return {SUCCESS: True, OUT_OF_MEMORY: False}.get(status)

    linear = granted("cuMemAlloc")
    return {LINEAR: None if linear is None else not linear, OWN: granted("its own pool"), OTHERS: granted("another pool")}


def run(part):
    with part.about_facts("a full device", LINEAR, OWN, OTHERS):
        seen = part.work("full")
        part.figure("a full device", seen)
        for fact, truth in verdicts(seen).items():
            part.fact(fact, truth, seen)


if __name__ == "__main__":
    main(__file__, run, full)
