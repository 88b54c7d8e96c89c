"""Measures the accuracy and the cost of timing events, and the threads and captures in which they can be queried."""

import threading
import time
from ctypes import byref, c_float, c_int, c_uint64

from bench import Fact, main
from stats import median, spread
from watch import Watcher

DURATION = Fact(
    "two timing events around a kernel that waited in the queue are its duration, within 1 us or 1 %",
    "src/shim/src/driver_calls/events.rs; docs/internals/limiter.md, measure",
    "the library would have to take off what a pair adds (a constant of events.rs)",
)
IDLE_START = Fact(
    "after a pause, an event and a kernel on an idle stream start at the same point of their calls, within 5 us",
    "Batch::before_first in src/policy/src/compute/measuring/verdict.rs",
    "a slice would be charged too much or too little after each pause",
)
LONG_RUN = Fact(
    "two events around a run of 64 kernels are from the first's start to the last's end, within 1 %",
    "FULL in src/policy/src/compute/measuring/when_alone.rs",
    "runs would have to be bracketed kernel by kernel",
)
CLOCKS = Fact(
    "events run with the host's clock: apart by at most 50 us over the second for which a base event is used",
    "ClockOffset in src/policy/src/compute/measuring/event_clock.rs",
    "base events would have to be replaced more often",
)
OTHER_THREAD = Fact(
    "another thread may query, read and record events, with or without a context",
    "src/shim/src/compute/measuring/meter.rs",
    "the worker would have to hold the context of each event",
)
NO_WAIT = Fact(
    "asking whether an event has passed does not wait for the device",
    "src/shim/src/compute/measuring/meter.rs",
    "the worker would stall for as long as a kernel runs",
)
RELAXED = Fact(
    "in relaxed mode another thread may query events while a stream captures, and the capture ends well",
    "src/shim/src/compute/measuring/meter.rs; pools::pool_reserved in src/shim/src/driver_calls/pools.rs",
    "measuring would have to stop while anything captures",
)
COST = Fact(
    "a pair of events before and behind a run of 2 ms costs at most 1 % of throughput",
    "FULL in src/policy/src/compute/measuring/when_alone.rs",
    "runs would have to be longer",
)


def exactness():
    """Returns, by length in microseconds, the nanoseconds by which the time of two events exceeds that of the kernel: behind a
    long kernel, so that the host is ahead, and on an idle device."""
    watcher, told = Watcher([20, 500, 1000, 50_000]), {}
    first, last, lead = watcher.event(), watcher.event(), watcher.watching(500)
    for length, count in ((20, 100), (1000, 30), (50_000, 5)):
        launch = watcher.watching(length)
        for way in ("queued", "idle"):
            watcher.forget()
            events = []
            for _ in range(count):
                if way == "queued":
                    lead()
                watcher.record(first)
                launch()
                watcher.record(last)
                watcher.wait()
                events.append(watcher.between(first, last))
            kernels = watcher.kernels()[1::2] if way == "queued" else watcher.kernels()
            more = [event - (ran.ended - ran.begun) for event, ran in zip(events, kernels)]
            told[f"{length} us, {way}"] = spread(more, 0)
    return told


def idle_starts():
    """Returns the nanoseconds by which the time of two events around a kernel exceeds the kernel's duration and the time of its
    launch. The stream is idle before each event, and the host sleeps for 10 ms. Returns the durations of the calls, too."""
    watcher = Watcher([20])
    first, last, launch = watcher.event(), watcher.event(), watcher.watching(20)
    launch()
    watcher.wait()
    watcher.forget()
    lengths, records, launches = [], [], []
    for _ in range(100):
        time.sleep(0.01)
        began = time.perf_counter_ns()
        watcher.record(first)
        recorded = time.perf_counter_ns()
        launch()
        launches.append(time.perf_counter_ns() - recorded)
        records.append(recorded - began)
        watcher.record(last)
        watcher.wait()
        lengths.append(watcher.between(first, last))
    each = zip(lengths, launches, watcher.kernels())
    late = [length - launch - (ran.ended - ran.begun) for length, launch, ran in each]
    return {"beyond the launch": spread(late, 0), "record": spread(records, 0), "launch": spread(launches, 0)}


def resolution():
    """Returns the resolution of events and of the device's clock, in nanoseconds."""
    watcher, told = Watcher([1]), []
    first, last = watcher.event(), watcher.event()
    launch = watcher.watching(1)
    for number in range(300):
        launch.boxes[1] = 137 * number % 40_000
        watcher.record(first)
        launch()
        watcher.record(last)
        watcher.wait()
        told.append(round(watcher.between(first, last)))
    different = sorted(set(told))
    steps = [later - sooner for sooner, later in zip(different, different[1:]) if later - sooner > 4]
    bare = []
    for _ in range(100):
        watcher.record(first)
        watcher.record(last)
        watcher.wait()
        bare.append(watcher.between(first, last))
    watcher.launcher("ticks", watcher.ring + 64, 1000)()
    watcher.wait()
    clock = watcher.read(64, 1000)
    ticks = [later - sooner for sooner, later in zip(clock, clock[1:]) if later > sooner]
    return {"event step": min(steps, default=None), "nothing between": spread(bare, 0), "clock step": spread(ticks, 0)}


def run_of_kernels():
    watcher = Watcher([20, 10_000])
    first, last, launch = watcher.event(), watcher.event(), watcher.watching(20)
    watcher.watching(10_000)()  # so that the host is ahead
    watcher.wait()
    watcher.forget()
    lead = watcher.watching(10_000)
    lead()
    watcher.record(first)
    for _ in range(64):
        launch()
    watcher.record(last)
    event, kernels = (watcher.wait(), watcher.between(first, last))[1], watcher.kernels()[1:]
    return {"event": round(event), "kernels": kernels[-1].ended - kernels[0].begun, "count": len(kernels)}


def clocks():
    """Returns the microseconds by which two events at a distance of 1 s differ from the host's clock, read when each has
    passed."""
    watcher = Watcher([1])
    first, last = watcher.event(), watcher.event()

    def passed(event):
        watcher.record(event)
        while watcher.cuda.status("cuEventQuery", event):
            pass
        return time.monotonic_ns()

    passed(first)
    begun = passed(first)
    time.sleep(1)
    ended = passed(last)
    return {"us": round((watcher.between(first, last) - (ended - begun)) / 1000, 1)}


def in_thread(function):
    told = []
    thread = threading.Thread(target=lambda: told.append(function()))
    thread.start()
    thread.join()
    return told[0]


def other_thread():
    """Returns statuses of calls in a thread with a context and in one without, and the time of a query of a pending event."""
    watcher = Watcher([50_000])
    cuda, first, last = watcher.cuda, watcher.event(), watcher.event()
    watcher.record(first)
    watcher.watching(50_000)()
    watcher.record(last)
    length = c_float()
    calls = {
        "query": lambda: cuda.status("cuEventQuery", last),
        "synchronize": lambda: cuda.status("cuEventSynchronize", last),
        "elapsed": lambda: cuda.status("cuEventElapsedTime", byref(length), first, last),
        "record": lambda: cuda.status("cuEventRecord", last, watcher.stream),
    }

    def all_of_them(context):
        if context:
            cuda("cuCtxSetCurrent", cuda.context)
        return {name: call() for name, call in calls.items()}

    def pending():
        began = time.perf_counter_ns()
        status = cuda.status("cuEventQuery", last)
        return [status, (time.perf_counter_ns() - began) // 1000]

    return {
        "pending, us": in_thread(pending),
        "with": in_thread(lambda: all_of_them(True)),
        "without": in_thread(lambda: all_of_them(False)),
    }


def capture():
    """Returns, by capture mode and call, its status in another thread in relaxed mode, and the status of the capture's end."""
    watcher, told = Watcher([1]), {}
    cuda, done, other = watcher.cuda, watcher.event(), watcher.cuda.stream()
    watcher.record(done, other)
    watcher.wait()
    pool = cuda.value("cuDeviceGetDefaultMemPool", cuda.device)
    word, launch = c_uint64(), watcher.nothing()
    calls = {
        "cuEventQuery": lambda: cuda.status("cuEventQuery", done),
        "cuEventElapsedTime": lambda: cuda.status("cuEventElapsedTime", byref(c_float()), done, done),
        "cuEventRecord": lambda: cuda.status("cuEventRecord", watcher.event(), other),
        "cuMemGetInfo": lambda: cuda.status("cuMemGetInfo_v2", byref(word), byref(c_uint64())),
        "cuMemPoolGetAttribute": lambda: cuda.status("cuMemPoolGetAttribute", pool, 5, byref(word)),
    }

    def relaxed(call):
        cuda("cuCtxSetCurrent", cuda.context)
        mode = c_int(2)
        cuda("cuThreadExchangeStreamCaptureMode", byref(mode))
        status = call()
        cuda("cuThreadExchangeStreamCaptureMode", byref(mode))
        return status

    for mode, name in enumerate(("global", "of a thread", "relaxed")):
        for call, function in calls.items():
            graph = c_uint64()
            cuda("cuStreamBeginCapture_v2", watcher.stream, mode)
            launch()
            status = in_thread(lambda function=function: relaxed(function))
            end = cuda.status("cuStreamEndCapture", watcher.stream, byref(graph))
            told[f"{call}, {name}"] = [status, end]
            if graph.value:
                cuda("cuGraphDestroy", graph.value)
    return told


def cost():
    """Returns the nanoseconds of a kernel of 20 us behind a long one, without events, and with a pair around each hundred (2
    ms)."""
    watcher = Watcher([20, 20_000])
    pairs = [(watcher.event(), watcher.event()) for _ in range(4)]
    launch, lead, told = watcher.watching(20), watcher.watching(20_000), {"without": [], "with": []}
    for turn in range(10):
        for way in ("without", "with") if turn % 2 else ("with", "without"):
            watcher.forget()
            lead()
            for first, last in pairs:
                if way == "with":
                    watcher.record(first)
                for _ in range(100):
                    launch()
                if way == "with":
                    watcher.record(last)
            kernels = watcher.kernels()[1:]
            told[way].append((kernels[-1].ended - kernels[0].begun) / len(kernels))
    ratios = [other / mine for mine, other in zip(told["with"], told["without"])]
    return {**{way: round(median(lengths), 1) for way, lengths in told.items()}, "ratio": round(median(ratios), 5)}


def starts_alike(seen):
    """Returns whether the time between event and kernel is that of the launch, within 5 us."""
    return abs(seen["beyond the launch"]["median"]) <= 5000


def run(part):
    with part.about_facts("resolution"):
        part.figure("resolution, ns", part.work("resolution"))
        part.check("measured: resolution of events", True)
    with part.about_facts("duration", DURATION):
        seen = part.work("exactness")
        most = {"20 us, queued": 1000, "1000 us, queued": 10_000, "50000 us, queued": 500_000}
        right = all(abs(seen[cell]["median"]) <= allowed for cell, allowed in most.items())
        part.fact(DURATION, right, seen)
    with part.about_facts("starts on an idle stream", IDLE_START):
        seen = part.work("idle_starts")
        part.fact(IDLE_START, starts_alike(seen), seen)
    with part.about_facts("a run of kernels", LONG_RUN):
        seen = part.work("run_of_kernels")
        part.fact(LONG_RUN, abs(seen["event"] / seen["kernels"] - 1) <= 0.01, seen)
    with part.about_facts("clocks", CLOCKS):
        seen = part.work("clocks")
        part.fact(CLOCKS, part.timely(abs(seen["us"]) <= 50), seen)
    with part.about_facts("another thread", OTHER_THREAD, NO_WAIT):
        seen = part.work("other_thread")
        without = {name: seen["without"][name] for name in ("query", "elapsed")}
        asked = [*seen["with"].values(), *without.values()]
        part.fact(OTHER_THREAD, all(status in (0, 600) for status in asked), seen)
        status, took = seen["pending, us"]
        part.fact(NO_WAIT, part.timely(took < 5000) if status == 600 else None, seen["pending, us"])
    with part.about_facts("capture", RELAXED):
        seen = part.work("capture")
        part.fact(
            RELAXED, all(pair == [0, 0] for pair in seen.values()), {name: pair for name, pair in seen.items() if any(pair)}
        )
    with part.about_facts("cost", COST):
        seen = part.work("cost")
        part.fact(COST, seen["ratio"] >= 0.99, seen)


if __name__ == "__main__":
    main(__file__, run, exactness, idle_starts, resolution, run_of_kernels, clocks, other_thread, capture, cost)
