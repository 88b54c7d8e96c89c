"""Measures the throughput that a limit of 100 costs: launches, graphs, allocations and networks, bare and in a slice in turn."""

import gc
import importlib.util
import time
from ctypes import byref, c_uint64, c_void_p

import networks
from bench import MIB, Skip, main, seconds, tell, wait
from stamps import Kernels, calibrate, must
from stats import median, ratio

# Least part of the throughput without the library, at the upper end of the interval: below it the loss is beyond doubt.
WANTED = 0.995
# Seconds that one network may take. No network begins later than this before the end of the part.
CELL = 45


def launches(kernels, stream):
    """Launches 64 kernels of 20 us."""
    launch = kernels.prepared(20, stream)
    return lambda: [must(launch()) for _ in range(64)]


def long_launches(kernels, stream):
    """Launches 4 kernels of 1 ms."""
    launch = kernels.prepared(1000, stream)
    return lambda: [must(launch()) for _ in range(4)]


def graphs(kernels, stream):
    """Launches 4 graphs of 20 kernels of 20 us."""
    call, graph, line = kernels.cuda.object.cuGraphLaunch, c_uint64(kernels.graph(stream, [20] * 20)), c_void_p(stream)
    return lambda: [must(call(graph, line)) for _ in range(4)]


def allocations(kernels, stream):
    """Allocates 1 MiB, runs a kernel and frees the memory, in the stream's order, 8 times."""
    launch, address = kernels.prepared(20, stream), c_uint64()

    def step():
        for _ in range(8):
            kernels.cuda("cuMemAllocAsync", byref(address), MIB, stream)
            must(launch())
            kernels.cuda("cuMemFreeAsync", address.value, stream)

    return step


DRIVER = {"kernels of 20 us": launches, "kernels of 1 ms": long_launches, "graphs": graphs, "allocations": allocations}


def driver(step):
    """Answers `CELL` when it is ready, and then each number of seconds with steps a second, by the driver's calls alone."""
    kernels = Kernels([20, 1000], step)
    stream = kernels.cuda.stream()
    serve(lambda cell: DRIVER[cell](kernels, stream), lambda: kernels.cuda("cuStreamSynchronize", stream), lambda: None)


def networks_of_torch():
    """Answers like `driver`, with networks of PyTorch."""
    import torch

    torch.backends.cudnn.benchmark = False  # the same algorithms in all processes

    def build(cell):
        once = networks.step(torch, cell)
        for _ in range(3):
            once()
        torch.cuda.synchronize()
        return once

    def drop():
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    serve(build, torch.cuda.synchronize, drop)


def serve(build, finish, drop):
    tell({})
    step = None
    while True:
        word = wait()
        if not word[:1].isdigit():
            step = None
            drop()
            try:
                step = build(word)
                tell({})
            except RuntimeError as error:  # out of memory, among others
                tell({"trouble": f"{type(error).__name__}: {error}"[:300]})
            continue
        count, began, span = 0, time.perf_counter(), float(word)
        while time.perf_counter() - began < span:
            step()
            count += 1
            if count % 4 == 0:
                finish()
        finish()
        tell({"a second": count / (time.perf_counter() - began)})


def measure(part, workers, cell, rounds, span):
    """Returns the steps a second of each way, in turns with changing order. The first round warms up."""
    for worker in workers.values():
        worker.go_on(cell)
        trouble = worker.answer(90).get("trouble")
        if trouble:
            raise Skip(trouble)
    rates, ways = {way: [] for way in workers}, list(workers)
    for number in range(rounds + 1):
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            workers[way].go_on(str(span))
            rates[way].append(workers[way].answer(span + 60)["a second"])
    return {way: measured[1:] for way, measured in rates.items()}


def all_cells(part, task, cells, figures, **arguments):
    rounds, span = (3, 0.1) if part.simulated else (14, 0.35)
    # Two workers without the library show how much of a difference is the machine's own.
    inside = {"loaded": True, "env": {"GPU_CORE_PERCENT": "100", "GPU_MEM_LIMIT": "90%"}}
    workers = {way: part.start(task, **how, **arguments) for way, how in (("bare", {}), ("bare again", {}), ("inside", inside))}
    try:
        for worker in workers.values():
            worker.answer(120)
        for cell in cells:
            if seconds() > part.end - (10 if part.simulated else CELL):
                part.skip(cell, "there was no time left")
                continue
            with part.about(cell):
                rates = measure(part, workers, cell, rounds, span)
                seen = ratio(rates["inside"], rates["bare"])
                noise = ratio(rates["bare again"], rates["bare"])
                figures[cell] = {**seen, "bare against bare": noise, "steps a second": round(median(rates["bare"]), 2)}
                part.figure("throughput to bare", figures)
                claim = f"{cell}: at 100 % at most 0.5 % of throughput is lost"
                if part.simulated:
                    part.check(f"{cell}: measured", seen["median"] > 0)
                else:
                    part.check(claim, seen["high"] >= WANTED, figures[cell])
    finally:
        for worker in workers.values():
            worker.__exit__()


def usable():
    """Runs one operation, which fails if PyTorch does not work."""
    import torch

    torch.ones(1, device="cuda").item()
    return {}


def run(part):
    figures = {}
    with part.about("launches, graphs, allocations"):
        all_cells(part, "driver", DRIVER, figures, step=part.work("calibrate")["step"])
    if part.simulated:
        return part.skip("networks of PyTorch", "the CUDA runtime needs tables that only NVIDIA's driver has")
    if importlib.util.find_spec("torch") is None:
        return part.skip("networks of PyTorch", "python3 has no torch")
    if part.usable("networks of PyTorch"):
        with part.about("networks of PyTorch"):
            all_cells(part, "networks_of_torch", networks.CELLS, figures)
    return None


if __name__ == "__main__":
    main(__file__, run, usable, calibrate, driver, networks_of_torch)
