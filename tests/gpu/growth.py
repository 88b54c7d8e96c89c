"""Measures the memory that the driver really takes and gives back, without the library, and compares it with the assumptions."""

from ctypes import byref, c_size_t, c_uint64, c_ulonglong

from bench import KIB, MIB, Fact, main
from driver import POOL_RESERVED, POOL_THRESHOLD, Cuda

# Assumed bounds: the most by which a pool grows, and the size to which a row is rounded up at most.
GROWTH, PITCH_GUESS = 32 * MIB, 512

ROWS = Fact(
    "no row of pitched memory is longer than its width rounded up to 512",
    "PITCH_GUESS in src/shim/src/hooks/memory/linear.rs",
    "an allocation near the quota is made and undone; the guess would be larger",
)
GROWS = Fact(
    "a pool grows by no more than the request rounded up to 32 MiB",
    "POOL_GROWTH in src/policy/src/pool/holes.rs",
    "a slice could pass its quota by the difference until the next reservation",
)
EMPTIES = Fact(
    "a pool with threshold 0 gives back everything at a wait",
    "src/shim/src/hooks/memory/pool.rs",
    "what it keeps would have to be trimmed before a refusal",
)
MOMENTS = Fact(
    "pools give memory back only at the waits that the library watches",
    "src/shim/src/hooks/work/sync.rs, hooks/memory/pool.rs, hooks/code/context.rs",
    "what they gave back elsewhere stays charged until the next such call",
)
COUNTED = Fact(
    "a pool's counter is what the device lost to it, within 2 MiB, when the allocating call returns",
    "reconcile in src/policy/src/pool/calls.rs",
    "pools would have to be measured by free memory",
)
PHYSICAL = Fact(
    "physical memory costs its size, no multiple of the granule is refused, and a mapping keeps what was released",
    "src/shim/src/hooks/memory/physical.rs",
    "charges of mapped memory would have to follow its mappings otherwise",
)
HANDLES = Fact(
    "a retained handle has the same value, and a value is not used again while its memory is mapped",
    "AllocationTable in src/shim/src/memory/physical.rs allows for both",
    "nothing: the tables would meet the other case",
)
ENDS = Fact(
    "a context that ends gives back what cuMemAlloc took and leaves mapped memory to cuMemUnmap",
    "end in src/shim/src/hooks/code/context.rs",
    "ends of contexts would have to follow mappings too",
)
SAME_CONTEXT = Fact(
    "free memory falls at once when a context is made, by 64 MiB to 1 GiB",
    "src/shim/src/memory/measurement.rs, driver_calls/nvml/memory.rs; an estimate by the number of multiprocessors where nothing can be measured",
    "what a context counts as where NVML is missing would be another figure",
)


def up(size, unit):
    return -(-size // unit) * unit


def growth(steps):
    return [after - before for before, after in zip(steps, steps[1:])]


def linear():
    """Returns, by size, the bytes that the device loses at the first allocation and by all of them. Also returns the bytes
    that it does not get back."""
    cuda, seen = Cuda(), {}
    for size in (256, 64 * KIB, MIB, 2 * MIB, 2 * MIB + 1, 3 * MIB, 32 * MIB, 33 * MIB):
        before, count, held = cuda.free(), min(256, 512 * MIB // size), []
        held.append(cuda.value("cuMemAlloc_v2", size))
        first = before - cuda.free()
        held += [cuda.value("cuMemAlloc_v2", size) for _ in range(count - 1)]
        together = before - cuda.free()
        for address in held:
            cuda("cuMemFree_v2", address)
        seen[size] = {"first": first, "count": count, "together": together, "kept": before - cuda.free()}
    return seen


def pitches():
    """Returns widths, element sizes and pitches."""
    cuda, seen = Cuda(), []
    for width in (1, 100, 512, 513, 1000, 4100, 65537, MIB - 100):
        for element in (4, 8, 16):
            address, pitch = c_uint64(), c_size_t()
            cuda("cuMemAllocPitch_v2", byref(address), byref(pitch), width, 4, element)
            seen.append([width, element, pitch.value])
            cuda("cuMemFree_v2", address.value)
    return seen


def pools(own):
    """Returns, by size, the bytes of the pool after each of four allocations, and after all frees and a wait."""
    cuda, seen = Cuda(), {}
    stream = cuda.stream()
    pool = cuda.new_pool() if own else cuda.value("cuDeviceGetDefaultMemPool", cuda.device)
    for size in (1, 64 * KIB, MIB, 16 * MIB, 31 * MIB, 32 * MIB, 33 * MIB, 48 * MIB, 100 * MIB, 256 * MIB):
        cuda("cuMemPoolTrimTo", pool, 0)
        held, steps = [], [cuda.of_pool(pool)]
        for _ in range(4):
            held.append(cuda.value("cuMemAllocFromPoolAsync", size, pool, stream))
            steps.append(cuda.of_pool(pool))
        for address in held:
            cuda("cuMemFreeAsync", address, stream)
        cuda("cuStreamSynchronize", stream)
        seen[size] = {"steps": steps, "kept": cuda.of_pool(pool)}
    return seen


def counters():
    """Returns the bytes that the device lost and the counter of the pool, step by step."""
    cuda, seen = Cuda(), []
    stream, pool, before, held = cuda.stream(), cuda.new_pool(), cuda.free(), []
    for size in (MIB, 40 * MIB, 100 * MIB):
        held.append(cuda.value("cuMemAllocFromPoolAsync", size, pool, stream))
        seen.append([before - cuda.free(), cuda.of_pool(pool)])
    for address in held:
        cuda("cuMemFreeAsync", address, stream)
    cuda("cuStreamSynchronize", stream)
    return [*seen, [before - cuda.free(), cuda.of_pool(pool)]]


def moments():
    """Returns the bytes of a pool before and after each call that may make it give memory back."""
    cuda, seen = Cuda(), {}
    stream, event = cuda.stream(), cuda.value("cuEventCreate", 2)
    pool, other = cuda.new_pool(), cuda.value("cuMemAlloc_v2", MIB)
    host = (c_uint64 * 16)()

    def until_done(call, what):
        for _ in range(1_000_000):
            if cuda.status(call, what) == 0:
                return

    calls = {
        "nothing": lambda: None,
        "cuStreamSynchronize": lambda: cuda("cuStreamSynchronize", stream),
        "cuCtxSynchronize": lambda: cuda("cuCtxSynchronize"),
        "cuEventSynchronize": lambda: cuda("cuEventSynchronize", event),
        "cuStreamQuery": lambda: until_done("cuStreamQuery", stream),
        "cuEventQuery": lambda: until_done("cuEventQuery", event),
        "cuMemcpyDtoH": lambda: cuda("cuMemcpyDtoH_v2", host, other, 128),
        "cuMemAlloc and cuMemFree": lambda: cuda("cuMemFree_v2", cuda.value("cuMemAlloc_v2", 64 * MIB)),
        "cuMemGetInfo": cuda.info,
        "cuStreamDestroy": lambda: cuda("cuStreamDestroy_v2", stream_of["own"]),
    }
    stream_of = {}
    for name, call in calls.items():
        stream_of["own"] = line = cuda.stream() if name == "cuStreamDestroy" else stream
        address = cuda.value("cuMemAllocFromPoolAsync", 64 * MIB, pool, line)
        cuda("cuStreamSynchronize", line)
        cuda("cuMemFreeAsync", address, line)
        cuda("cuEventRecord", event, line)
        before = cuda.of_pool(pool)
        call()
        seen[name] = [before, cuda.of_pool(pool)]
        cuda("cuCtxSynchronize")
        cuda("cuMemPoolTrimTo", pool, 0)
    cuda("cuMemPoolSetAttribute", pool, POOL_THRESHOLD, byref(c_ulonglong((1 << 64) - 1)))
    cuda("cuMemFreeAsync", cuda.value("cuMemAllocFromPoolAsync", 64 * MIB, pool, stream), stream)
    cuda("cuStreamSynchronize", stream)
    seen["cuStreamSynchronize below the threshold"] = [64 * MIB, cuda.of_pool(pool)]
    return seen


def handles():
    """Returns handles of physical memory. Their values tell whether a table by handle is possible."""
    cuda = Cuda()
    size = up(64 * MIB, cuda.granule())
    before = cuda.free()
    first = cuda.value("cuMemCreate", size, byref(cuda.on_device()), 0)
    created = before - cuda.free()
    address = cuda.map(first, size)
    again = cuda.value("cuMemRetainAllocationHandle", address)
    for handle in (first, again):
        cuda("cuMemRelease", handle)
    released = before - cuda.free()
    second = cuda.value("cuMemCreate", size, byref(cuda.on_device()), 0)
    cuda("cuMemRelease", second)
    cuda.unmap(address, size)
    odd = cuda.status("cuMemCreate", byref(c_uint64()), cuda.granule() + 1, byref(cuda.on_device()), 0)
    return {
        "granule": cuda.granule(),
        "size": size,
        "created": created,
        "released, still mapped": released,
        "unmapped": before - cuda.free(),
        "retained handle has the same value": first == again,
        "value used again while mapped": first == second,
        "odd size": odd,
    }


def contexts():
    """Returns the bytes of contexts, and the memory that is left after a context ends. A second context reads free memory."""
    cuda = Cuda(context=False)
    watcher = cuda.value("cuCtxCreate_v2", 0, cuda.device)
    size, seen = up(128 * MIB, cuda.granule()), {}

    def free():
        cuda("cuCtxSetCurrent", watcher)
        return cuda.free()

    def life_of(make, end):
        """Returns, by moment, the bytes that the device has lost since before the context was made."""
        before, lost = free(), {}
        context = make()
        lost["context"] = before - free()
        cuda("cuCtxSetCurrent", context)
        stream, pool = cuda.stream(), cuda.new_pool()
        cuda.value("cuMemAlloc_v2", size)
        handle = cuda.value("cuMemCreate", size, byref(cuda.on_device()), 0)
        address = cuda.map(handle, size)
        cuda("cuMemRelease", handle)
        cuda.value("cuMemAllocFromPoolAsync", size, pool, stream)
        cuda("cuStreamSynchronize", stream)
        lost["context, linear, mapped and pooled memory"] = before - free()
        end(context)
        lost["after the end"] = before - free()
        word = c_ulonglong()
        asked = cuda.status("cuMemPoolGetAttribute", pool, POOL_RESERVED, byref(word))
        lost["pool"] = {"asked": asked, "reserved": word.value, "destroyed": cuda.status("cuMemPoolDestroy", pool)}
        lost["after the pool's end"] = before - free()
        lost["unmap"] = cuda.status("cuMemUnmap", address, size)
        lost["after unmapping"] = before - free()
        return lost

    seen["cuCtxDestroy"] = life_of(
        lambda: cuda.value("cuCtxCreate_v2", 0, cuda.device),
        lambda context: cuda("cuCtxDestroy_v2", context),
    )
    seen["cuDevicePrimaryCtxReset"] = life_of(
        lambda: cuda.value("cuDevicePrimaryCtxRetain", cuda.device),
        lambda _: cuda("cuDevicePrimaryCtxReset_v2", cuda.device),
    )
    return {"size": size, **seen}


def setup():
    """Returns the bytes of the first module and of a larger heap."""
    cuda = Cuda()
    before = cuda.free()
    cuda.empty_kernel()
    module = before - cuda.free()
    before = cuda.free()
    cuda("cuCtxSetLimit", 2, 512 * MIB)
    return {"first module": module, "heap of 512 MiB": before - cuda.free()}


def run(part):
    for task in ("linear", "setup"):
        with part.about(f"what is taken: {task}"):
            part.figure(task, part.work(task))
            part.check(f"measured: {task}", True)
    with part.about_facts("pitch", ROWS):
        seen = part.work("pitches")
        part.figure("pitches: width, element, pitch", seen)
        wide = [row for row in seen if row[2] > up(row[0], PITCH_GUESS)]
        part.fact(ROWS, not wide, wide)
    with part.about_facts("growth of pools", GROWS, EMPTIES):
        large, kept = {}, {}
        for own in (False, True):
            name = "a pool of its own" if own else "the default pool"
            seen = part.work("pools", own=own)
            part.figure(f"growth of {name}", seen)
            steps = [(int(size), grown) for size, held in seen.items() for grown in growth(held["steps"])]
            large[name] = [(size, grown) for size, grown in steps if grown > up(size, GROWTH)]
            kept[name] = {size: held["kept"] for size, held in seen.items() if held["kept"]}
        part.fact(GROWS, not any(large.values()), large)
        part.fact(EMPTIES, not any(kept.values()), kept)
    with part.about_facts("counters of pools", COUNTED):
        seen = part.work("counters")
        part.fact(COUNTED, all(abs(lost - held) <= 2 * MIB for lost, held in seen), seen)
    with part.about_facts("when pools give memory back", MOMENTS):
        seen = part.work("moments")
        part.figure("moments: held before, after", seen)
        watched = ("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize")
        other = {name: held for name, held in seen.items() if name not in watched and held[1] < held[0]}
        part.fact(MOMENTS, not other, other)
    with part.about_facts("handles of physical memory", PHYSICAL, HANDLES):
        seen = part.work("handles")
        part.figure("handles", seen)
        kept = seen["released, still mapped"] == seen["size"] and seen["unmapped"] == 0
        part.fact(PHYSICAL, seen["created"] == seen["size"] and kept and seen["odd size"] == 1, seen)
        part.fact(HANDLES, seen["retained handle has the same value"] and not seen["value used again while mapped"], seen)
    with part.about_facts("contexts", ENDS, SAME_CONTEXT):
        seen = part.work("contexts")
        part.figure("contexts", seen)
        ended, size = [seen["cuCtxDestroy"], seen["cuDevicePrimaryCtxReset"]], seen["size"]
        part.fact(ENDS, all(lost["unmap"] == 0 and lost["after the pool's end"] - lost["after unmapping"] == size
                            and lost["after unmapping"] < size for lost in ended), seen)  # fmt: skip
        part.fact(SAME_CONTEXT, all(64 * MIB <= lost["context"] <= 1024 * MIB for lost in ended),
                  [lost["context"] for lost in ended])  # fmt: skip


if __name__ == "__main__":
    main(__file__, run, linear, pitches, pools, counters, moments, handles, contexts, setup)
