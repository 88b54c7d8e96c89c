"""Every way to allocate device memory under a quota: its bytes, and its free."""

from ctypes import byref, c_size_t, c_uint64

from bench import MIB
from driver import UNTOUCHED, Refused


def linear(cuda, size):
    address = c_uint64(UNTOUCHED)
    refuse_unless(cuda, address, "cuMemAlloc_v2", byref(address), size)
    return size, lambda: cuda("cuMemFree_v2", address.value)


def pitched(cuda, size):
    """Allocates rows that are a little shorter than the pitch."""
    address, pitch, width = c_uint64(UNTOUCHED), c_size_t(), MIB - 100
    refuse_unless(cuda, address, "cuMemAllocPitch_v2", byref(address), byref(pitch), width, size // MIB, 16)
    return pitch.value * (size // MIB), lambda: cuda("cuMemFree_v2", address.value)


def physical(cuda, size):
    """Maps physical memory and releases the handle at once, so that only the mapping keeps the memory."""
    handle = c_uint64(UNTOUCHED)
    refuse_unless(cuda, handle, "cuMemCreate", byref(handle), size, byref(cuda.on_device()), 0)
    address = cuda.map(handle.value, size)
    cuda("cuMemRelease", handle.value)
    return size, lambda: cuda.unmap(address, size)


def ordered(cuda, size):
    stream, address = own_stream(cuda), c_uint64(UNTOUCHED)
    refuse_unless(cuda, address, "cuMemAllocAsync", byref(address), size, stream)
    return size, lambda: give_ordered(cuda, address.value, stream)


def pooled(cuda, size):
    stream, address = own_stream(cuda), c_uint64(UNTOUCHED)
    if not hasattr(cuda, "own_pool"):
        cuda.own_pool = cuda.new_pool()
    refuse_unless(cuda, address, "cuMemAllocFromPoolAsync", byref(address), size, cuda.own_pool, stream)
    return size, lambda: give_ordered(cuda, address.value, stream)


def own_stream(cuda):
    if not hasattr(cuda, "own_stream"):
        cuda.own_stream = cuda.stream()
    return cuda.own_stream


def give_ordered(cuda, address, stream):
    cuda("cuMemFreeAsync", address, stream)
    cuda("cuStreamSynchronize", stream)


def refuse_unless(cuda, output, call, *arguments):
    """Raises `Refused` unless the call succeeds. The exception says whether the output stayed untouched."""
    status = cuda.status(call, *arguments)
    if status:
        refusal = Refused(call, status)
        refusal.untouched = output.value == UNTOUCHED
        raise refusal


FAMILIES = {
    "cuMemAlloc": linear,
    "cuMemAllocPitch": pitched,
    "cuMemCreate": physical,
    "cuMemAllocAsync": ordered,
    "cuMemAllocFromPoolAsync": pooled,
}
