"""Finds how work on several GPUs hangs together: a graph with nodes on two devices, and ranks that wait for each other."""

import importlib.util
import os
import time
from ctypes import byref, c_uint, c_uint64, c_void_p

from bench import Fact, Skip, main, tell, wait
from driver import Cuda
from names import two, uuids
from shares import in_slice
from stats import median
from watch import Watcher

ENCLOSED = Fact(
    "two events on the stream of a graph enclose the graph's work on every device, within 5 %",
    "src/shim/src/hooks/work/graph.rs charges the device of that stream alone",
    "the work on the other devices would be charged to no device at all",
)
COUPLED = Fact(
    "two ranks that meet in each step, with 30 % of a GPU each, take at most three times as long as their share says",
    "src/policy/src/compute/coupling.rs",
    "each rank would pay for its waits, and would fall behind by more with each step",
)
# Milliseconds of the kernels of a graph on the two devices. The longer one is not on the device of the graph's stream.
OWN, OTHER = 10, 60
# Steps of the ranks, the milliseconds of each, and the share.
STEPS, STEP, SHARE = 60, 5, 30


class OnSecond(Watcher):
    """The second device with watching kernels."""

    def __init__(self, lengths):
        self.cuda = Cuda(number=1)
        self.load(lengths)


def spread_graph():
    """Returns the milliseconds between two events around a graph with a kernel on each of two devices, and those of the host."""
    near = Watcher([1000 * OWN])
    far = OnSecond([1000 * OTHER])
    cuda, graph = near.cuda, c_uint64()
    joined = far.event(timing=False)
    cuda("cuCtxSetCurrent", cuda.context)
    fork, first, last = near.event(timing=False), near.event(), near.event()
    cuda("cuStreamBeginCapture_v2", near.stream, 2)
    near.record(fork)
    near.watching(1000 * OWN)()
    cuda("cuCtxSetCurrent", far.cuda.context)
    cuda("cuStreamWaitEvent", far.stream, fork, 0)
    far.watching(1000 * OTHER)()
    far.record(joined)
    cuda("cuCtxSetCurrent", cuda.context)
    cuda("cuStreamWaitEvent", near.stream, joined, 0)
    cuda("cuStreamEndCapture", near.stream, byref(graph))
    executable = cuda.value("cuGraphInstantiateWithFlags", graph.value, 0)
    shown, took = [], []
    for _ in range(6):
        began = time.perf_counter()
        near.record(first)
        cuda("cuGraphLaunch", executable, near.stream)
        near.record(last)
        cuda("cuStreamSynchronize", near.stream)
        took.append(1000 * (time.perf_counter() - began))
        shown.append(near.between(first, last) / 1e6)
    return {"events, ms": round(median(shown[1:]), 2), "host, ms": round(median(took[1:]), 2)}


def encloses(seen):
    """Returns whether the time between the events is that of the longer kernel."""
    return abs(seen["events, ms"] / OTHER - 1) <= 0.05


def devices():
    return {"count": len(uuids())}


def needs_two(part):
    seen = part.work("devices", env=two(part))
    if seen["count"] < 2:
        raise Skip(f"it needs two GPUs, and CUDA shows {seen['count']}")


# ---- Ranks


def rank(number, meeting, products):
    """Runs steps that meet those of the other rank, and returns the milliseconds of a step. `products`: the matrix products of a
    step, or 0 for kernels of the simulated GPU."""
    step = collectives(number, meeting, products) if products else meeting_kernels(number)
    step()
    tell({})
    wait()
    began = time.monotonic()
    for _ in range(STEPS):
        step()
    return {"ms": round(1000 * (time.monotonic() - began) / STEPS, 2)}


def meeting_kernels(number):
    """Returns a step of the simulated GPU: a kernel of 5 ms, and one that ends when that of the other rank runs, too."""
    cuda = Cuda(number=number)
    names = f"rank_spin_{STEP}ms", "meet_spin_50us"
    entries = "".join(f".visible .entry {name}() {{ ret; }}\n" for name in names)
    module = cuda.value("cuModuleLoadData", f".version 7.0\n.target sm_75\n.address_size 64\n{entries}\0".encode())
    work, meet = (c_void_p(cuda.value("cuModuleGetFunction", module, name.encode())) for name in names)
    stream = cuda.stream()

    def step():
        # The columns of a meeting are the ranks. Two rows join the kernels of all processes.
        for function, shape in ((work, (1, 1, 1)), (meet, (2, 2, 1))):
            cuda("cuLaunchKernel", function, *map(c_uint, (*shape, 32, 1, 1, 0)), stream, None, None)
        cuda("cuStreamSynchronize", stream)

    return step


def collectives(number, meeting, products):
    """Returns a step of matrix products, and of a sum over both ranks by NCCL."""
    import torch
    import torch.distributed as ranks

    torch.cuda.set_device(number)
    ranks.init_process_group("nccl", init_method=f"file://{meeting}", rank=number, world_size=2)
    one, total = torch.ones(4096, 4096, device="cuda", dtype=torch.half), torch.ones(1 << 20, device="cuda")

    def step():
        for _ in range(products):
            torch.mm(one, one)
        ranks.all_reduce(total)
        torch.cuda.synchronize()

    return step


def products_of_a_step():
    """Returns the number of matrix products that take 5 ms."""
    import torch

    one, count = torch.ones(4096, 4096, device="cuda", dtype=torch.half), 1
    torch.mm(one, one)
    while True:
        torch.cuda.synchronize()
        began = time.monotonic()
        for _ in range(count):
            torch.mm(one, one)
        torch.cuda.synchronize()
        if time.monotonic() - began > 0.001 * STEP:
            return {"count": count}
        count *= 2


def pace(part, name, products, slices):
    """Returns the milliseconds of a step of each of two ranks, with the settings of each."""
    meeting, ranks = os.path.join(part.scratch.name, f"meeting-{name}"), []
    try:
        for number, settings in enumerate(slices):
            settings = {**settings, "env": {**settings.get("env", {}), **two(part)}}
            ranks.append(part.start("rank", number=number, meeting=meeting, products=products, **settings))
        for each in ranks:
            each.answer(60)
        for each in ranks:
            each.go_on()
        return [each.answer(60)["ms"] for each in ranks]
    finally:
        for each in ranks:
            each.__exit__()


def in_step(seen):
    """Returns whether the ranks of a slice take at most three times as long as their share says."""
    return max(seen["in a slice"]) <= 3 * max(seen["bare"]) * 100 / SHARE


def run(part):
    with part.about_facts("a graph on two devices", ENCLOSED):
        needs_two(part)
        seen = part.work("spread_graph", env=two(part))
        part.figure(f"a graph of {OWN} ms on one device and {OTHER} ms on the other", seen)
        part.fact(ENCLOSED, part.timely(encloses(seen)), seen)
    with part.about_facts("ranks that wait for each other", COUPLED):
        needs_two(part)
        if not part.simulated and importlib.util.find_spec("torch") is None:
            raise Skip("it needs PyTorch with NCCL: python3 -m pip install torch")
        products = 0 if part.simulated else part.work("products_of_a_step")["count"]
        bare = pace(part, "bare", products, [{}, {}])
        # One slice has a share of each GPU.
        slice_ = in_slice(part, SHARE, part.new_region())
        seen = {"bare": bare, "in a slice": pace(part, "limited", products, [slice_, slice_])}
        part.figure("ms of a step of two ranks", seen)
        part.fact(COUPLED, part.timely(in_step(seen)), seen)


if __name__ == "__main__":
    main(__file__, run, devices, spread_graph, products_of_a_step, rank)
