"""What a slice does while its share is measured: tasks of `shares`, one process each."""

import array
import random
import time
from ctypes import c_uint64, c_void_p

from bench import tell, wait
from stamps import Kernels, must

# By name: how many processes, the lengths of the kernels in microseconds, the longest piece that cannot be stopped in
# milliseconds, and how they are launched.
WORKLOADS = {
    "20 us, asynchronous": (1, [20], 0.02, "stream"),
    "1.5 ms, few blocks": (1, [1500], 1.5, "stream"),
    "10 us to 2 ms, mixed": (1, [10, 50, 200, 700, 2000], 2, "stream"),
    "50 ms, waits for each": (1, [50_000], 50, "one by one"),
    "150 ms, waits for each": (1, [150_000], 150, "one by one"),
    "graph of 8 ms": (1, [1000], 8, "graph"),
    "cooperative, 500 us": (1, [500], 0.5, "cuLaunchCooperativeKernel"),
    "cuLaunchKernelEx, 200 us": (1, [200], 0.2, "cuLaunchKernelEx"),
    "8 streams, 500 us": (1, [500], 0.5, "streams"),
    "2 processes, 200 us": (2, [200], 0.2, "stream"),
    "8 processes, 200 us": (8, [200], 0.2, "stream"),
}
GRAPH_NODES, STREAMS = 8, 8


def launches(kernels, lengths, how):
    """Launches to be called in turn, and the streams that they go to."""
    cuda = kernels.cuda
    streams = [cuda.stream() for _ in range(STREAMS if how == "streams" else 1)]
    if how == "graph":
        executable = kernels.graph(streams[0], lengths * GRAPH_NODES)
        call, graph, stream = cuda.object.cuGraphLaunch, c_uint64(executable), c_void_p(streams[0])
        return [lambda: call(graph, stream)], streams
    way = how if how.startswith("cuLaunch") else "cuLaunchKernel"
    return [kernels.prepared(length, stream, way) for stream in streams for length in lengths], streams


def busy(lengths, how, step, seconds, file):
    """Launches for so long without a pause, then leaves its stamps in a file."""
    kernels = Kernels(lengths, step)
    ready, streams = launches(kernels, lengths, how)
    chance = random.Random(1)
    tell({})
    wait()
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(1 if how == "one by one" else 16):
            must(chance.choice(ready)() if len(ready) > 1 else ready[0]())
            count += 1
            if how == "one by one":
                kernels.cuda("cuStreamSynchronize", streams[0])
    leave(kernels, file)
    tell({"launches": count})


def leave(kernels, file):
    with open(file, "wb") as out:
        array.array("Q", [word for pair in kernels.stamps() for word in pair]).tofile(out)


def requests(step, seconds, period, kernels_each):
    """Requests of 1 ms kernels that come at a steady pace; how long each took from its coming to its end."""
    kernels = Kernels([1000], step)
    stream = kernels.cuda.stream()
    launch = kernels.prepared(1000, stream)
    tell({})
    wait()
    taken, due = [], time.monotonic()
    last = due + seconds
    while due < last:
        time.sleep(max(0, due - time.monotonic()))
        for _ in range(kernels_each):
            must(launch())
        kernels.cuda("cuStreamSynchronize", stream)
        taken.append(time.monotonic() - due)
        due += period
    tell({"seconds": taken})


def turns(step):
    """Kernels of 20 us a second, in turns."""
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
