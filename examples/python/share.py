# SPDX-License-Identifier: Apache-2.0
"""A Python program that lets the GPU compute without a pause, and the time that this takes.

The program knows nothing of gpuslice. It launches kernels through the CUDA driver, waits for them, and prints how long they
took. With GPU_CORE_PERCENT=25 they take four times as long. The program needs only Python 3 and the driver.
"""

import ctypes
import sys
import time

LAUNCHES, WARM_UP = 60, 2

# Each step depends on the one before, and all take about 10 ms on most devices. The simulated GPU
# takes the duration from the name.
KERNEL = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry spin_10ms(.param .u64 sink)
{
    .reg .pred %again, %never;
    .reg .b32 %left;
    .reg .b64 %mix, %sink;
    ld.param.u64 %sink, [sink];
    mov.u64 %mix, %clock64;
    mov.u32 %left, 1000000;
STEP:
    mad.lo.u64 %mix, %mix, 6364136223846793005, 1442695040888963407;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %again, %left, 0;
    @%again bra STEP;
    setp.eq.u64 %never, %mix, %sink;
    @%never trap;
    ret;
}
\0"""

cuda = ctypes.CDLL("libcuda.so.1")


def call(function, *arguments):
    status = getattr(cuda, function)(*arguments)
    if status:
        sys.exit(f"{function} returned {status}")


def written(function, *arguments):
    """Calls a function, and returns the pointer that it writes to its first argument."""
    pointer = ctypes.c_void_p()
    call(function, ctypes.byref(pointer), *arguments)
    return pointer


def run(kernel, launches):
    """Launches a kernel so many times, and returns how many seconds the kernels take."""
    sink = ctypes.c_uint64(0)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(sink))
    started = time.monotonic()
    for _ in range(launches):
        call("cuLaunchKernel", kernel, 4, 1, 1, 64, 1, 1, 0, None, parameters, None)
    call("cuCtxSynchronize")
    return time.monotonic() - started


def main():
    call("cuInit", 0)
    call("cuCtxSetCurrent", written("cuDevicePrimaryCtxRetain", 0))
    kernel = written("cuModuleGetFunction", written("cuModuleLoadData", KERNEL), b"spin_10ms")
    run(kernel, WARM_UP)
    print(f"{LAUNCHES} kernels took {run(kernel, LAUNCHES):.2f} s")


if __name__ == "__main__":
    main()
