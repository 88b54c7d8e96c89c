"""Measures two and four slices side by side on one GPU: shares, fairness, and the latency of requests beside training."""

import contextlib
import os
import time

from bench import main
from driver import Cuda
from shares import in_slice, side_by_side
from stamps import calibrate
from stats import jain, percentile
from workloads import busy, requests

# The shares of the slices, by name of the case. None means plain time slicing, without the library.
CASES = {
    "two, half each": (50, 50), "two, 30 and 70": (30, 70), "four, a quarter each": (25, 25, 25, 25),
    "four, 10 to 40": (10, 20, 30, 40), "two, plain": (None, None), "four, plain": (None,) * 4,
}  # fmt: skip
# Requests of 5 ms of kernels every 50 ms take a tenth of the device: two thirds of a share of 15 %.
EACH, PERIOD, SHARE = 5, 0.05, 15
MPS_ENABLED = 133  # CUdevice_attribute


def mps():
    """Returns whether clients of the driver use an MPS server here."""
    return {"on": bool(Cuda(context=False).attribute(MPS_ENABLED))}


def alone(part):
    """Returns variables that keep a program away from a running MPS server."""
    folder = os.path.join(part.scratch.name, "no-mps")
    os.makedirs(folder, exist_ok=True)
    return {"CUDA_MPS_PIPE_DIRECTORY": folder}


def settings(part, share, own, **more):
    """Returns the settings of a worker with a share, or without the library."""
    if share is None:
        return {"env": own}
    slice_ = in_slice(part, share, part.new_region(), **more)
    return {**slice_, "env": {**slice_["env"], **own}}


def divided(part, name, shares, step, own, figures):
    span = 1 if part.simulated else 10
    got = side_by_side(part, [settings(part, share, own) for share in shares], step, span)
    limits = [share or 100 / len(shares) for share in shares]
    fair = round(jain([percent / limit for percent, limit in zip(got, limits)]), 5)
    labels = [f"{number + 1}, {'no limit' if share is None else f'{share} %'}" for number, share in enumerate(shares)]
    figures[name] = {
        "percent": dict(zip(labels, (round(percent, 2) for percent in got))),
        "jain": fair,
        "sum": round(sum(got), 2),
    }
    part.figure("shares", figures)
    if shares[0] is None or part.simulated:
        return part.check(f"{name}: measured", all(percent > 0 for percent in got), figures[name])
    off = max(abs(percent - limit) for percent, limit in zip(got, limits))
    part.check(f"{name}: each is within 1 point of its share", off <= 1, figures[name])
    return part.check(f"{name}: Jain's index of share by limit is at least 0.99", fair >= 0.99, figures[name])


def beside_training(part, own, step, sharing, span):
    """Returns the milliseconds of requests, alone or beside a neighbour that trains, and the work of the neighbour."""
    neighbour, limited = {"none": (None, False), "plain": (None, True), "slices": (100 - SHARE, True)}[sharing]
    server = settings(part, SHARE if sharing == "slices" else None, own, **({"GPU_CORE_BURST": "latency"}))
    how = {"step": step, "seconds": span, "period": PERIOD, "kernels_each": EACH}
    with contextlib.ExitStack() as stack:
        trainer = None
        if limited:
            file = f"{part.bulk}/stamps-0"
            work = {"lengths": [200, 700, 2000], "how": "stream", "step": step, "seconds": span + 1, "file": file}
            trainer = stack.enter_context(part.start("busy", **settings(part, neighbour, own), **work))
            trainer.answer()
        requester = stack.enter_context(part.start("requests", **server, **how))
        requester.answer()
        if trainer:
            trainer.go_on()
            time.sleep(0.5)
        requester.go_on()
        taken = requester.answer(span + 60)["seconds"]
        rate = trainer.answer(span + 60)["a second"] if trainer else 0
    seen = {f"p{rank} ms": round(1000 * percentile(taken, rank), 3) for rank in (50, 99)}
    return {**seen, "requests": len(taken), "the neighbour's kernels a second": round(rate)}


def latency(part, ways, step):
    span, figures = 1 if part.simulated else 12, {}
    for name, sharing, own in ways:
        with part.about(f"requests, {name}"):
            figures[name] = beside_training(part, own, step, sharing, span)
            part.figure("latency", figures)
            part.check(f"requests, {name}: measured", figures[name]["requests"] > 0)
    if {"beside training, slices", "beside training, plain"} <= set(figures) and not part.simulated:
        ratio = figures["beside training, slices"]["p99 ms"] / figures["beside training, plain"]["p99 ms"]
        part.figure("p99 in slices to p99 of plain time slicing", round(ratio, 3))


def run(part):
    on = part.work("mps")["on"]
    own = alone(part) if on else {}
    step, figures = part.work("calibrate")["step"], {}
    cases = {name: CASES[name] for name in ("two, 30 and 70", "four, plain")} if part.simulated else CASES
    for name, shares in cases.items():
        with part.about(f"shares of {name}"):
            divided(part, name, shares, step, own, figures)
    ways = [("alone", "none", own), ("beside training, plain", "plain", own), ("beside training, slices", "slices", own)]
    if on:
        with part.about("shares under MPS"):
            divided(part, "two, plain under MPS", (None, None), step, {}, figures)
        ways.append(("beside training, plain under MPS", "plain", {}))
    else:
        part.skip("neighbours under MPS", "no MPS server runs, and the suite starts none")
    latency(part, ways[1:] if part.simulated else ways, step)


if __name__ == "__main__":
    main(__file__, run, mps, calibrate, busy, requests)
