# SPDX-License-Identifier: Apache-2.0
"""A Python program that calls the CUDA driver through ctypes, and the quota that it sees.

The program knows nothing of gpuslice. It copies numbers to the device and back, fills the device until the driver says that
it is full, frees a part, and goes on. It needs only Python 3 and the driver.
"""

import ctypes
import sys

MIB = 1 << 20
PIECES = 8
OUT_OF_MEMORY = 2

cuda = ctypes.CDLL("libcuda.so.1")


def name_of(status):
    name = ctypes.c_char_p()
    cuda.cuGetErrorName(status, ctypes.byref(name))
    return (name.value or b"unknown status").decode()


def call(function, *arguments):
    status = getattr(cuda, function)(*arguments)
    if status:
        sys.exit(f"{function}: {name_of(status)}")


def memory():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def free_mib():
    return memory()[0] // MIB


def take(size):
    """Allocates a piece, and returns its address, or None if the device is full."""
    address = ctypes.c_uint64()
    status = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    if status == OUT_OF_MEMORY:
        return None
    if status:
        sys.exit(f"cuMemAlloc_v2: {name_of(status)}")
    return address


def copy():
    sent, received = (ctypes.c_uint32 * 1024)(*range(1024)), (ctypes.c_uint32 * 1024)()
    address, size = take(ctypes.sizeof(sent)), ctypes.c_size_t(ctypes.sizeof(sent))
    call("cuMemcpyHtoD_v2", address, sent, size)
    call("cuMemcpyDtoH_v2", received, address, size)
    call("cuMemFree_v2", address)
    print("1024 numbers there and back:", "the same" if list(sent) == list(received) else "different")


def main():
    device, context, size = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuDeviceTotalMem_v2", ctypes.byref(size), device)
    print(f"device 0: {size.value // MIB} MiB, {free_mib()} MiB free")

    copy()
    piece = size.value // PIECES
    pieces = list(iter(lambda: take(piece), None))
    print(f"{len(pieces)} pieces of {piece // MIB} MiB granted, then CUDA_ERROR_OUT_OF_MEMORY")
    print(f"{free_mib()} MiB free")

    call("cuMemFree_v2", pieces.pop())
    print(f"one piece freed: {free_mib()} MiB free")
    pieces.append(take(piece))
    print(f"one more piece granted: {free_mib()} MiB free")

    for address in pieces:
        call("cuMemFree_v2", address)
    print(f"all freed: {free_mib()} MiB free")
    call("cuDevicePrimaryCtxRelease_v2", device)


main()
