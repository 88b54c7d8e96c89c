"""Workloads of a slice while its share is measured: tasks of `shares`, one process each."""

import array
import collections
import random
import time
from ctypes import c_uint64, c_void_p

from bench import tell, wait
from stamps import Kernels, must

Workload = collections.namedtuple("Workload", ["programs", "longest"])
# Workloads by name. For each program of the slice: the lengths of its kernels in microseconds, and the way of launching. Then the
# longest piece that cannot be stopped, in milliseconds.
WORKLOADS = {
    "20 us, asynchronous": Workload([([20], "stream")], 0.02),
    "20 us, waits for each": Workload([([20], "one by one")], 0.02),
    "1.5 ms, few blocks": Workload([([1500], "stream")], 1.5),
    "10 us to 2 ms, mixed": Workload([([10, 50, 200, 700, 2000], "stream")], 2),
    "50 ms, waits for each": Workload([([50_000], "one by one")], 50),
    "150 ms, waits for each": Workload([([150_000], "one by one")], 150),
    "graph of 8 ms": Workload([([1000], "graph")], 8),
    "cooperative, 500 us": Workload([([500], "cuLaunchCooperativeKernel")], 0.5),
    "cuLaunchKernelEx, 200 us": Workload([([200], "cuLaunchKernelEx")], 0.2),
    "8 streams, 500 us": Workload([([500], "streams")], 0.5),
    "2 processes, 200 us": Workload([([200], "stream")] * 2, 0.2),
    "8 processes, 200 us": Workload([([200], "stream")] * 8, 0.2),
    "long beside short": Workload([([10_000], "stream"), ([20], "stream"), ([300], "one by one")], 10),
    "bursty beside steady": Workload([([1000], "bursts"), ([20], "stream")], 1),
}
# Launches of a burst. The program waits for all of them at its end.
BURST = 10
GRAPH_NODES, STREAMS = 8, 8


def launches(kernels, lengths, how):
    """Returns the launches to call in turn, and their streams."""
    cuda = kernels.cuda
    streams = [cuda.stream() for _ in range(STREAMS if how == "streams" else 1)]
    if how == "graph":
        executable = kernels.graph(streams[0], lengths * GRAPH_NODES)
        call, graph, stream = cuda.object.cuGraphLaunch, c_uint64(executable), c_void_p(streams[0])
        return [lambda: call(graph, stream)], streams
    way = how if how.startswith("cuLaunch") else "cuLaunchKernel"
    return [kernels.prepared(length, stream, way) for stream in streams for length in lengths], streams


def busy(lengths, how, step, seconds, file):
    """Launches for `seconds` without a pause, then writes its stamps to a file."""
    kernels = Kernels(lengths, step)
    ready, streams = launches(kernels, lengths, how)
    chance, together = random.Random(1), {"one by one": 1, "bursts": BURST}.get(how, 16)
    tell({})
    wait()
    count, start = 0, time.monotonic()
    end = start + seconds
    while time.monotonic() < end:
        for _ in range(together):
            must(chance.choice(ready)() if len(ready) > 1 else ready[0]())
        count += together
        if how in ("one by one", "bursts"):
            kernels.cuda("cuStreamSynchronize", streams[0])
    kernels.cuda("cuCtxSynchronize")
    taken = time.monotonic() - start
    leave(kernels, file)
    tell({"launches": count, "a second": count / taken})


def leave(kernels, file):
    with open(file, "wb") as out:
        array.array("Q", [word for pair in kernels.stamps() for word in pair]).tofile(out)


def requests(step, seconds, period, kernels_each):
    """Serves requests of 1 ms kernels at a steady pace. Answers the time of each from its arrival to its end."""
    kernels = Kernels([1000], step)
    stream = kernels.cuda.stream()
    launch = kernels.prepared(1000, stream)

    def request():
        for _ in range(kernels_each):
            must(launch())
        kernels.cuda("cuStreamSynchronize", stream)

    for _ in range(5):
        request()  # the cost of a kernel is not known at first
    tell({})
    wait()
    taken, due = [], time.monotonic()
    last = due + seconds
    while due < last:
        time.sleep(max(0, due - time.monotonic()))
        request()
        taken.append(time.monotonic() - due)
        due += period
    tell({"seconds": taken})


def turns(step):
    """Answers each number of seconds with the kernels of 20 us a second."""
    kernels = Kernels([20], step)
    stream = kernels.cuda.stream()
    launch = kernels.prepared(20, stream)
    tell({})
    while True:
        seconds = float(wait())
        count, start = 0, time.monotonic()
        while time.monotonic() - start < seconds:
            for _ in range(200):
                must(launch())
            kernels.cuda("cuStreamSynchronize", stream)
            count += 200
        tell({"a second": count / (time.monotonic() - start)})
