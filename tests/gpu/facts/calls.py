"""Measures the cost of the driver's calls that the library makes beside a program's own calls."""

import ctypes
import time
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

from bench import MIB, Fact, main
from driver import Refused
from stats import percentile
from watch import Watcher

PAIR = Fact(
    "recording two timing events takes at most 2 us of the host's time",
    "FULL in src/policy/src/compute/measuring/when_alone.rs; docs/guide/gpu-time.md, what it costs",
    "runs of small kernels would have to be longer to stay below 1 %",
)
QUERY = Fact(
    "asking whether an event has passed takes at most 2 us",
    "src/shim/src/compute/measuring/meter.rs asks each millisecond",
    "the worker would cost more of a processor than 1 %",
)
COUNTER = Fact(
    "reading a pool's counter takes at most 2 us",
    "reconcile in src/policy/src/pool/calls.rs",
    "stream-ordered allocation would cost more than its 300 ns",
)


def samples(function, arguments, count):
    clock, told = time.perf_counter_ns, []
    for _ in range(count):
        start = clock()
        function(*arguments)
        told.append(clock() - start)
    return told


def costs():
    """Returns median and 99th percentile of each call in nanoseconds, less the time of an empty call through ctypes."""
    watcher, told = Watcher([1, 60_000]), {}
    cuda, one, two, untimed = watcher.cuda, watcher.event(), watcher.event(), watcher.event(False)
    idle = ctypes.CDLL(None).abs
    pool, word = cuda.value("cuDeviceGetDefaultMemPool", cuda.device), c_uint64()

    def cost(name, call, *arguments, count=2000, at_a_time=500, statuses=(0, 600)):
        function = cuda.object[call]
        status = function(*arguments)
        if status not in statuses:
            raise Refused(call, status)
        base = percentile(samples(idle, (c_int(0), *[c_uint64(0)] * (len(arguments) - 1)), 1000), 50)
        taken = []
        while len(taken) < count:
            taken += samples(function, arguments, min(at_a_time, count))
            if at_a_time <= 500:
                watcher.wait()
        told[name] = {"ns": round(percentile(taken, 50) - base), "p99": round(percentile(taken, 99) - base)}

    stream, first, second = c_void_p(watcher.stream), c_void_p(one), c_void_p(two)
    shape = [c_uint(word) for word in (1, 1, 1, 32, 1, 1, 0)]
    cost("cuLaunchKernel", "cuLaunchKernel", watcher.functions["nothing"], *shape, stream, None, None, at_a_time=200)
    cost("cuEventRecord", "cuEventRecord", first, stream)
    watcher.record(two)
    watcher.wait()
    cost("cuEventRecord, no timing", "cuEventRecord", c_void_p(untimed), stream)
    cost("cuEventQuery, passed", "cuEventQuery", first)
    cost("cuEventElapsedTime", "cuEventElapsedTime", byref(c_float()), first, second)
    cost("cuStreamIsCapturing", "cuStreamIsCapturing", stream, byref(c_int()))
    cost("cuStreamQuery", "cuStreamQuery", stream)
    cost("cuCtxGetDevice", "cuCtxGetDevice", byref(c_int()))
    cost("cuMemGetInfo", "cuMemGetInfo_v2", byref(c_size_t()), byref(c_size_t()), count=400)
    cost("cuMemPoolGetAttribute", "cuMemPoolGetAttribute", c_void_p(pool), c_int(5), byref(word))
    watcher.watching(60_000)()
    watcher.record(one)
    cost("cuEventQuery, pending", "cuEventQuery", first, count=1000, at_a_time=1000)
    watcher.wait()
    told["cuMemAlloc and cuMemFree of 1 MiB"] = allocation(cuda)
    return told


def allocation(cuda, count=300):
    address, taken = c_uint64(), []
    for _ in range(count):
        start = time.perf_counter_ns()
        cuda("cuMemAlloc_v2", byref(address), MIB)
        cuda("cuMemFree_v2", address.value)
        taken.append(time.perf_counter_ns() - start)
    return {"ns": round(percentile(taken, 50)), "p99": round(percentile(taken, 99))}


def run(part):
    with part.about_facts("costs", PAIR, QUERY, COUNTER):
        seen = part.work("costs")
        part.figure("ns a call", seen)
        for fact, worth in (
            (PAIR, 2 * seen["cuEventRecord"]["ns"]), (QUERY, seen["cuEventQuery, pending"]["ns"]),
            (COUNTER, seen["cuMemPoolGetAttribute"]["ns"]),
        ):  # fmt: skip
            part.fact(fact, part.timely(worth <= 2000), f"{worth} ns")


if __name__ == "__main__":
    main(__file__, run, costs)
