"""Tests that PyTorch's own workloads get their share: steps a second inside a slice, and the same steps without a limit."""

import importlib.util
import time

from bench import main, median, tell, wait
from shares import in_slice

LIMITS = (30, 70)
# Points by which the mean may be off, as for all short kernels.
ALLOWED = 1


def usable():
    """Runs one operation, which fails if PyTorch does not work."""
    import torch

    torch.ones(1, device="cuda").item()
    return {}


def products():
    """Runs matrix products, with as many kernels a second as possible."""
    import torch

    matrix = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    return lambda: torch.mm(matrix, matrix)


def convolutions():
    """Runs training steps of a small convolutional network."""
    import torch

    nn = torch.nn
    torch.backends.cudnn.benchmark = False  # all processes are to do the same
    layers, channels = [], 3
    for wide in (64, 128, 256):
        layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(), nn.MaxPool2d(2)]
        channels = wide
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 8 * 8, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images, labels = torch.randn(128, 3, 64, 64, device="cuda"), torch.arange(128, device="cuda") % 10

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def transformer():
    """Runs inference of a transformer, captured as a CUDA graph and replayed."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda().half().eval()
    tokens = torch.randn(8, 256, 512, device="cuda", dtype=torch.half)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.no_grad():
        with torch.cuda.stream(stream):
            for _ in range(3):
                model(tokens)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            model(tokens)
    return lambda kept=(model, tokens): graph.replay()  # the objects that it works on live as long


KINDS = {"matrix products": products, "convolution training": convolutions, "transformer as a CUDA graph": transformer}


def steps(kind):
    """Answers two numbers of seconds with the steps a second of the second period. The first period warms up."""
    import torch

    step = KINDS[kind]()
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    tell({"version": torch.__version__})
    while True:
        warm_up, seconds = map(float, wait().split())
        run_for(warm_up, step)
        tell({"a second": run_for(seconds, step)})


def run_for(seconds, step):
    """Returns the steps a second."""
    import torch

    # About 20 ms lie between waits, so that the queued work is little compared with the measured work.
    done, batch, start = 0, 1, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        for _ in range(batch):
            step()
        torch.cuda.synchronize()
        done += batch
        batch = min(max(1, round(0.02 * done / max(passed, 0.001))), 4 * batch)
    return done / (time.perf_counter() - start)


def measure(part, kind):
    bare = part.start("steps", kind=kind)
    slices = {limit: part.start("steps", kind=kind, **in_slice(part, limit, part.new_region())) for limit in LIMITS}
    whole = part.start("steps", kind=kind, **in_slice(part, 100, part.new_region(), GPU_MEM_LIMIT="64GiB"))
    workers = [bare, *slices.values(), whole]
    try:
        for worker in workers:
            worker.answer(150)
        rates = {worker: [] for worker in workers}
        for turn in range(3):
            for worker in workers if turn % 2 else workers[::-1]:
                # Before a slice is measured, its saved time is spent and NVML no longer reports the others.
                worker.go_on("0.3 1" if worker in (bare, whole) else "1 2")
                rates[worker].append(worker.answer()["a second"])
    finally:
        for worker in workers:
            worker.__exit__()
    full = median(rates[bare][1:])  # the first turn warms up
    seen = {limit: round(100 * median(rates[worker][1:]) / full, 2) for limit, worker in slices.items()}
    kept = round(median(rates[whole][1:]) / full, 4)
    part.figure(f"{kind}, percent of bare", {"steps a second": round(full, 1), **{f"{at} %": got for at, got in seen.items()}})
    part.figure(f"{kind}, throughput at 100 % to bare", kept)
    for limit, got in seen.items():
        part.check(f"{kind} at {limit} %: within {ALLOWED} points", abs(got - limit) <= ALLOWED, seen)


def run(part):
    if part.simulated:
        return part.skip("shares of PyTorch", "the CUDA runtime needs tables that only NVIDIA's driver has")
    if importlib.util.find_spec("torch") is None:
        return part.skip("shares of PyTorch", "python3 has no torch")
    if not part.usable("shares of PyTorch"):
        return None
    for kind in KINDS:
        with part.about(kind):
            measure(part, kind)
    return None


if __name__ == "__main__":
    main(__file__, run, usable, steps)
