"""Measures the cost of a graph's launch, the time between events around it, and a launch of a graph that already runs."""

import time
from ctypes import byref, c_uint64

from bench import Fact, main
from stats import median
from watch import Watcher

AGAIN = Fact(
    "launches of one executable graph wait for each other, in whichever streams they are",
    "src/policy/src/sizes/graph.rs counts an executable's memory once; LONG_GRAPH in src/policy/src/compute/measuring/when_alone.rs",
    "an executable's memory would have to count for each stream that it is launched in",
)
ENCLOSED = Fact(
    "two events around a graph are from its first kernel's start to its last one's end, within 2 %",
    "LONG_GRAPH in src/policy/src/compute/measuring/when_alone.rs",
    "what graphs are charged would have to be corrected",
)
CHEAP = Fact(
    "launching a graph of 100 kernels takes at most 50 us of the host's time",
    "src/shim/src/compute/admission/gate.rs treats it as one launch",
    "credit would have to be taken in advance for long launches",
)
NODES, LENGTH = 100, 50


class Executable:
    """A captured graph of `nodes` kernels."""

    def __init__(self, watcher, nodes, length):
        launch, graph = watcher.watching(length), c_uint64()
        watcher.cuda("cuStreamBeginCapture_v2", watcher.stream, 2)
        began = time.perf_counter_ns()
        for _ in range(nodes):
            launch()
        self.captured = (time.perf_counter_ns() - began) / nodes
        watcher.cuda("cuStreamEndCapture", watcher.stream, byref(graph))
        began = time.perf_counter_ns()
        self.value = watcher.cuda.value("cuGraphInstantiateWithFlags", graph.value, 0)
        self.instantiated = time.perf_counter_ns() - began
        self.watcher = watcher

    def launch(self, stream=None):
        began = time.perf_counter_ns()
        self.watcher.cuda("cuGraphLaunch", self.value, stream or self.watcher.stream)
        return time.perf_counter_ns() - began


def one():
    """Returns figures of one graph of short kernels."""
    watcher = Watcher([LENGTH])
    graph = Executable(watcher, NODES, LENGTH)
    first, last, costs, shown, kept = watcher.event(), watcher.event(), [], [], []
    graph.launch()
    for _ in range(15):
        watcher.forget()
        watcher.record(first)
        costs.append(graph.launch())
        watcher.record(last)
        watcher.wait()
        shown.append(watcher.between(first, last))
        kernels = watcher.seen()[0]
        kept.append(kernels[-1].ended - kernels[0].begun if kernels else 0)
    return {
        "launch, us": round(median(costs) / 1000, 1), "event, us": round(median(shown) / 1000, 1),
        "kernels, us": round(median(kept) / 1000, 1), "a captured launch, ns": round(graph.captured),
        "instantiated, us": round(graph.instantiated / 1000, 1),
    }  # fmt: skip


def again():
    """Returns the milliseconds of a graph of 20 ms, of two launches of it in two streams, and of two graphs that are alike."""
    watcher = Watcher([2000])
    graph, twin, other = Executable(watcher, 10, 2000), Executable(watcher, 10, 2000), watcher.cuda.stream()

    def took(*launches):
        watcher.wait()
        began = time.perf_counter_ns()
        for launched, stream in launches:
            launched.launch(stream)
        watcher.wait()
        return (time.perf_counter_ns() - began) / 1e6

    for each in (graph, twin):
        took((each, None), (each, other))
    mine = watcher.stream
    return {
        "one": round(median([took((graph, mine)) for _ in range(5)]), 2),
        "the same twice": round(median([took((graph, mine), (graph, other)) for _ in range(5)]), 2),
        "two alike": round(median([took((graph, mine), (twin, other)) for _ in range(5)]), 2),
    }


def depth():
    """Returns the number of launches of a graph that return at once while a kernel of 300 ms runs."""
    watcher = Watcher([1, 300_000])
    graph = Executable(watcher, 20, 1)
    graph.launch()
    watcher.wait()
    watcher.watching(300_000)()
    for number in range(1000):
        if graph.launch() > 20_000_000:
            return number
    return 1000


def run(part):
    with part.about_facts("one graph", ENCLOSED, CHEAP):
        seen = part.work("one")
        part.figure("a graph of 100 kernels of 50 us", seen)
        close = abs(seen["event, us"] / seen["kernels, us"] - 1) <= 0.02 if seen["kernels, us"] else None
        part.fact(ENCLOSED, close, seen)
        part.fact(CHEAP, part.timely(seen["launch, us"] <= 50), seen)
    with part.about_facts("a graph that is launched while it runs", AGAIN):
        seen = part.work("again")
        part.figure("launched while it runs, ms", seen)
        part.fact(AGAIN, seen["the same twice"] >= 1.8 * seen["one"], seen)
    with part.about("launches of graphs until one blocks"):
        part.figure("launches of a graph until one blocks", part.work("depth"))


if __name__ == "__main__":
    main(__file__, run, one, again, depth)
