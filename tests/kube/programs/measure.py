"""Measures again and again how much memory and time a container gets, and prints a line of JSON each time. It knows nothing of
gpuslice."""

import ctypes
import json

import share

MIB = 1 << 20
PIECE = 256 * MIB
OUT_OF_MEMORY = 2
# So many kernels of 10 ms outlast the burst with which a share begins.
LAUNCHES = 40


def total():
    size = ctypes.c_size_t()
    share.call("cuDeviceTotalMem_v2", ctypes.byref(size), 0)
    return size.value // MIB


def granted():
    """Takes memory until it is refused, gives it back, and returns its MiB."""
    pieces = []
    while True:
        address = ctypes.c_uint64()
        status = share.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(PIECE))
        if status == OUT_OF_MEMORY:
            break
        assert status == 0, status
        pieces.append(address)
    for address in pieces:
        share.call("cuMemFree_v2", address)
    return len(pieces) * PIECE // MIB


def main():
    share.call("cuInit", 0)
    share.call("cuCtxSetCurrent", share.written("cuDevicePrimaryCtxRetain", 0))
    kernel = share.written("cuModuleGetFunction", share.written("cuModuleLoadData", share.KERNEL), b"spin_10ms")
    while True:
        percent = round(LAUNCHES / share.run(kernel, LAUNCHES))
        print(json.dumps({"total": total(), "granted": granted(), "percent": percent}), flush=True)


main()
