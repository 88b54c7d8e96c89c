# SPDX-License-Identifier: Apache-2.0
"""Computes without a pause, and holds as much memory as the driver reports. Both change when the limits of its slice change.

The program knows nothing of gpuslice. Many programs ask the driver only once how much memory the device has, but this one
asks again and again. It takes blocks while some are free, and frees blocks while it holds more than there is. A signal ends it.
"""

import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from share import KERNEL, call, cuda, run, written  # noqa: E402

BLOCK = 256 << 20
OUT_OF_MEMORY = 2


def size():
    """Returns the free bytes and all bytes of the device."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def hold(blocks):
    """Takes or frees blocks until the program holds as many as there is memory for."""
    free, total = size()
    while len(blocks) * BLOCK > total:
        call("cuMemFree_v2", blocks.pop())
    for _ in range(free // BLOCK):
        block = ctypes.c_uint64()
        status = cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(BLOCK))
        if status == OUT_OF_MEMORY:
            return  # another process was faster
        if status:
            sys.exit(f"cuMemAlloc_v2 returned {status}")
        blocks.append(block)


def main():
    call("cuInit", 0)
    call("cuCtxSetCurrent", written("cuDevicePrimaryCtxRetain", 0))
    kernel = written("cuModuleGetFunction", written("cuModuleLoadData", KERNEL), b"spin_10ms")
    blocks = []
    while True:
        hold(blocks)
        run(kernel, 10)


main()
