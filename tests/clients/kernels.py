"""numba-cuda: kernels through its real compiler and linker, device arrays, its error type on a refusal."""

import gc
import warnings

import numpy
from harness import MIB, claim, main
from numba import cuda
from numba.core.errors import NumbaWarning
from numba.cuda.cudadrv.driver import CudaAPIError

OUT_OF_MEMORY = 2
warnings.simplefilter("ignore", NumbaWarning)


@cuda.jit
def add(left, right, total):
    place = cuda.grid(1)
    if place < total.size:
        total[place] = left[place] + right[place]


@cuda.jit("void(float32[:], float32)")
def scale(values, factor):
    place = cuda.grid(1)
    if place < values.size:
        values[place] *= factor


def work():
    """Launches two kernels four times, one compiled on first use and one ahead of it, with events around them."""
    count = 1 << 16
    left = cuda.to_device(numpy.arange(count, dtype=numpy.float32))
    total = cuda.device_array_like(left)
    start, end = cuda.event(), cuda.event()
    line = cuda.stream()
    start.record(line)
    for _ in range(2):
        add[count // 256, 256, line](left, left, total)
        scale[count // 256, 256, line](total, numpy.float32(0.5))
    end.record(line)
    line.synchronize()
    claim("an event is not before an earlier one", cuda.event_elapsed_time(start, end) >= 0)
    return left.copy_to_host(), total.copy_to_host().shape


def take(size):
    return cuda.device_array(size, dtype=numpy.uint8)


def refused(size):
    try:
        take(size)
    except CudaAPIError as error:
        return int(error.code)
    return 0


def free_bytes():
    """Returns the driver's free bytes, after it has freed all memory that Python and numba keep for later."""
    gc.collect()
    context = cuda.current_context()
    context.memory_manager.deallocations.clear()
    return context.get_memory_info().free


def use():
    device = cuda.get_current_device()
    print("device", device.name, "compute", tuple(device.compute_capability), "multiprocessors", device.MULTIPROCESSOR_COUNT)
    print("size", cuda.current_context().get_memory_info().total)
    sent, shape = work()
    print("copied back the same:", bool((sent == numpy.arange(sent.size)).all()), shape)
    add_ptx = next(iter(add.inspect_asm().values()))
    print("compiled", add_ptx.count(".entry"), "kernel for", [line for line in add_ptx.splitlines() if ".target" in line])
    before = free_bytes()
    held = take(64 * MIB)
    print("an array takes", before - free_bytes())
    del held
    print("and keeps", before - free_bytes())
    print("beyond the device:", refused(1 << 46))


def obey(quota):
    info = cuda.current_context().get_memory_info()
    claim("the device is as large as the quota", info.total == quota, info)
    claim("free is within the quota", info.free <= quota, info)
    work()
    before = free_bytes()
    claim("beyond the quota is refused", refused(quota + 1) == OUT_OF_MEMORY)
    held = []
    while refused(32 * MIB) == 0:
        held.append(take(32 * MIB))
    claim("arrays fill the quota", before - free_bytes() >= len(held) * 32 * MIB > quota // 2, before, free_bytes())
    held.pop()
    claim("what was freed can be had again", refused(32 * MIB) == 0)
    held.clear()
    claim("what is freed comes back", free_bytes() == before, before, free_bytes())
    work()


main(use, obey)
