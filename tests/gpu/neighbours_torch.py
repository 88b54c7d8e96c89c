"""Measures the latency of requests to a ResNet-50 beside another slice that trains one."""

import contextlib
import importlib.util
import time

import networks
from bench import main, tell, wait
from neighbours import alone, mps, settings
from stats import percentile

SHARE, SPAN, BATCH = 30, 12, 32


def usable():
    """Runs one operation, which fails if PyTorch does not work."""
    import torch

    torch.ones(1, device="cuda").item()
    return {}


def training():
    """Trains until it gets a line, and returns the steps a second."""
    import threading

    import torch

    step, over = networks.step(torch, "ResNet-50, training", batch=BATCH), threading.Event()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    tell({})
    wait()
    listener = threading.Thread(target=lambda: (wait(), over.set()), daemon=True)
    listener.start()
    count, began = 0, time.monotonic()
    while not over.is_set():
        step()
        torch.cuda.synchronize()
        count += 1
    return {"a second": round(count / (time.monotonic() - began), 2)}


def serving(span, period):
    """Serves requests of one image at a steady pace, or as fast as possible without a pace. Returns the time of each from its
    arrival."""
    import torch

    step = networks.step(torch, "ResNet-50, inference", batch=1)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    tell({})
    wait()
    taken, due = [], time.monotonic()
    last = due + span
    while due < last:
        time.sleep(max(0, due - time.monotonic()))
        step()
        torch.cuda.synchronize()
        taken.append(time.monotonic() - due)
        due = due + period if period else time.monotonic()
    return {"seconds": taken}


def measure(part, sharing, own, period):
    """Returns the milliseconds of requests alone, or beside training: plain or in slices."""
    slices = sharing == "slices"
    server = settings(part, SHARE if slices else None, own, GPU_CORE_BURST="latency")
    with contextlib.ExitStack() as stack:
        trainer = None
        if sharing != "none":
            trainer = stack.enter_context(part.start("training", **settings(part, 100 - SHARE if slices else None, own)))
            trainer.answer(120)
        worker = stack.enter_context(part.start("serving", span=SPAN if period else 2, period=period, **server))
        worker.answer(120)
        if trainer:
            trainer.go_on()
            time.sleep(1)
        worker.go_on()
        taken = worker.answer(SPAN + 60)["seconds"]
        if trainer:
            trainer.go_on()
        steps = trainer.answer()["a second"] if trainer else None
    seen = {f"p{rank} ms": round(1000 * percentile(taken, rank), 3) for rank in (50, 99)}
    return {**seen, "requests": len(taken), "training steps a second": steps}


def run(part):
    if part.simulated:
        return part.skip("ResNet-50 beside ResNet-50", "the CUDA runtime needs tables that only NVIDIA's driver has")
    if importlib.util.find_spec("torch") is None:
        return part.skip("ResNet-50 beside ResNet-50", "python3 has no torch")
    if not part.usable("ResNet-50 beside ResNet-50"):
        return None
    on = part.work("mps")["on"]
    own, figures = alone(part) if on else {}, {}
    with part.about("requests, how fast"):
        quick = measure(part, "none", own, 0)["p50 ms"] / 1000
        # The requests come at two thirds of the share: of the time that a request takes alone.
        period = quick / (SHARE / 100 * 2 / 3)
        ways = [("alone", "none", own), ("beside training, plain", "plain", own), ("beside training, slices", "slices", own)]
        for name, sharing, how in [*ways, *([("beside training, under MPS", "plain", {})] if on else [])]:
            with part.about(f"requests, {name}"):
                figures[name] = measure(part, sharing, how, period)
                part.figure("latency of ResNet-50", figures)
                part.check(f"requests, {name}: measured", figures[name]["requests"] > 0)
    if not on:
        part.skip("ResNet-50 beside ResNet-50 under MPS", "no MPS server runs, and the suite starts none")
    return None


if __name__ == "__main__":
    main(__file__, run, usable, mps, training, serving)
