"""cuda-bindings: the driver API through cuGetProcAddress, every family of allocation, a module, streams and events."""

from contextlib import contextmanager

from cuda.bindings import driver as cuda
from harness import MIB, claim, main

SIZE = 64 * MIB
OUT_OF_MEMORY = cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
PTX = b"""
.version 7.5
.target sm_75
.address_size 64
.visible .entry spin_250us() { ret; }
\0"""


class Refused(Exception):
    """A status that is not success."""

    def __init__(self, status):
        super().__init__(status.name)
        self.status = status


def ok(answer):
    status, *values = answer
    if status != cuda.CUresult.CUDA_SUCCESS:
        raise Refused(status)
    return values[0] if len(values) == 1 else values


def status_of(call, *arguments):
    try:
        call(*arguments)
    except Refused as refusal:
        return refusal.status
    return cuda.CUresult.CUDA_SUCCESS


def linear(size):
    pointer = ok(cuda.cuMemAlloc(size))
    return lambda: ok(cuda.cuMemFree(pointer))


def pitched(size):
    """Allocates rows of one byte, so that nearly all of the memory is pitch."""
    pointer, pitch = ok(cuda.cuMemAllocPitch(1, size // 512, 4))
    claim("a pitch is at least the width", pitch >= 1)
    return lambda: ok(cuda.cuMemFree(pointer))


def managed(size):
    pointer = ok(cuda.cuMemAllocManaged(size, cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
    return lambda: ok(cuda.cuMemFree(pointer))


def on_device():
    location = cuda.CUmemLocation()
    location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = 0
    return location


def virtual(size):
    properties = cuda.CUmemAllocationProp()
    properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = on_device()
    minimum = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granule = ok(cuda.cuMemGetAllocationGranularity(properties, minimum))
    size = -(-size // granule) * granule
    handle = ok(cuda.cuMemCreate(size, properties, 0))
    address = ok(cuda.cuMemAddressReserve(size, 0, 0, 0))
    ok(cuda.cuMemMap(address, size, 0, handle, 0))
    access = cuda.CUmemAccessDesc()
    access.location = on_device()
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cuda.cuMemSetAccess(address, size, [access], 1))
    held = free_bytes()
    ok(cuda.cuMemRelease(handle))
    claim("a released handle keeps its memory while it is mapped", free_bytes() == held)

    def release():
        ok(cuda.cuMemUnmap(address, size))
        ok(cuda.cuMemAddressFree(address, size))

    return release


@contextmanager
def stream():
    handle = ok(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
    try:
        yield handle
    finally:
        ok(cuda.cuStreamDestroy(handle))


def free_async(pointer):
    with stream() as line:
        ok(cuda.cuMemFreeAsync(pointer, line))
        ok(cuda.cuStreamSynchronize(line))


def ordered(size):
    with stream() as line:
        pointer = ok(cuda.cuMemAllocAsync(size, line))
        ok(cuda.cuStreamSynchronize(line))
    return lambda: free_async(pointer)


def pooled(size):
    properties = cuda.CUmemPoolProps()
    properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = on_device()
    pool = ok(cuda.cuMemPoolCreate(properties))
    try:
        with stream() as line:
            pointer = ok(cuda.cuMemAllocFromPoolAsync(size, pool, line))
            ok(cuda.cuStreamSynchronize(line))
    except Refused:
        ok(cuda.cuMemPoolDestroy(pool))
        raise

    def release():
        free_async(pointer)
        ok(cuda.cuMemPoolTrimTo(pool, 0))
        ok(cuda.cuMemPoolDestroy(pool))

    return release


def array(size):
    shape = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Width, shape.Height, shape.Depth = 4096, max(1, size // 4096 // 4 // 64), 64
    shape.Format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
    shape.NumChannels = 1
    handle = ok(cuda.cuArray3DCreate(shape))
    return lambda: ok(cuda.cuArrayDestroy(handle))


FAMILIES = {
    "cuMemAlloc": linear,
    "cuMemAllocPitch": pitched,
    "cuMemAllocManaged": managed,
    "cuMemCreate": virtual,
    "cuMemAllocAsync": ordered,
    "cuMemAllocFromPoolAsync": pooled,
    "cuArray3DCreate": array,
}


def free_bytes():
    return ok(cuda.cuMemGetInfo())[0]


def launch():
    module = ok(cuda.cuModuleLoadData(PTX))
    function = ok(cuda.cuModuleGetFunction(module, b"spin_250us"))
    start, end = (ok(cuda.cuEventCreate(0)) for _ in range(2))
    with stream() as line:
        ok(cuda.cuEventRecord(start, line))
        for _ in range(4):
            ok(cuda.cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, line, 0, 0))
        ok(cuda.cuEventRecord(end, line))
        ok(cuda.cuStreamSynchronize(line))
        ok(cuda.cuEventSynchronize(end))
        claim("an event is not before an earlier one", ok(cuda.cuEventElapsedTime(start, end)) >= 0)
    for event in (start, end):
        ok(cuda.cuEventDestroy(event))
    ok(cuda.cuModuleUnload(module))


def copy():
    sent, received = bytes(range(256)) * 16, bytearray(4096)
    pointer = ok(cuda.cuMemAlloc(len(sent)))
    ok(cuda.cuMemsetD8(pointer, 0, len(sent)))
    ok(cuda.cuMemcpyHtoD(pointer, sent, len(sent)))
    ok(cuda.cuMemcpyDtoH(received, pointer, len(sent)))
    ok(cuda.cuMemFree(pointer))
    return bytes(received) == sent


@contextmanager
def context():
    ok(cuda.cuInit(0))
    device = ok(cuda.cuDeviceGet(0))
    ok(cuda.cuCtxSetCurrent(ok(cuda.cuDevicePrimaryCtxRetain(device))))
    yield device
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuDevicePrimaryCtxRelease(device))


def use():
    print("before cuInit:", status_of(lambda: ok(cuda.cuDeviceGetCount())).name)
    with context() as device:
        print("driver", ok(cuda.cuDriverGetVersion()), "devices", ok(cuda.cuDeviceGetCount()))
        print("name", ok(cuda.cuDeviceGetName(64, device)).split(b"\0")[0])
        print("size", ok(cuda.cuDeviceTotalMem(device)), "info", ok(cuda.cuMemGetInfo()))
        for name, allocate in FAMILIES.items():
            before = free_bytes()
            release = allocate(SIZE)
            during = free_bytes()
            release()
            print(name, "takes", before - during, "keeps", before - free_bytes())
            print(name, "beyond the device:", status_of(lambda take: take(1 << 50)(), allocate).name)
        print("nothing:", status_of(linear, 0).name, "unknown:", status_of(lambda: ok(cuda.cuMemFree(12345))).name)
        launch()
        print("copied back the same:", copy())
        second = ok(cuda.cuCtxCreate(None, 0, device))
        print("a second context sees", ok(cuda.cuMemGetInfo()))
        ok(cuda.cuCtxDestroy(second))


def obey(quota):
    with context() as device:
        claim("the device is as large as the quota", ok(cuda.cuDeviceTotalMem(device)) == quota)
        claim("so says cuMemGetInfo", ok(cuda.cuMemGetInfo())[1] == quota, ok(cuda.cuMemGetInfo()))
        claim("free is within the quota", free_bytes() <= quota)
        for name, allocate in FAMILIES.items():
            before = free_bytes()
            refused = status_of(allocate, quota + 2 * MIB)
            claim(f"{name}: beyond the quota is refused", refused == OUT_OF_MEMORY, refused)
            claim(f"{name}: a refusal takes nothing", free_bytes() == before, before, free_bytes())
            release = allocate(SIZE)
            claim(f"{name}: what fits is granted and counted", before - free_bytes() >= SIZE, before, free_bytes())
            release()
            claim(f"{name}: what is freed comes back", free_bytes() == before, before, free_bytes())
        fill()
        launch()
        copy()


def fill():
    before = free_bytes()
    held = [linear(MIB * 32) for _ in range(before // (32 * MIB))]
    rest = free_bytes()
    claim("filled to the last granule", rest < 32 * MIB, rest)
    refused = status_of(linear, 32 * MIB)
    claim("a full slice refuses", refused == OUT_OF_MEMORY, refused)
    held.pop()()
    held.append(linear(32 * MIB))
    claim("what was freed can be had again", free_bytes() == rest, rest, free_bytes())
    for release in held:
        release()
    claim("an emptied slice is empty", free_bytes() == before, before, free_bytes())


main(use, obey)
