"""Tests that unmodified PyTorch keeps to a quota, with each of its allocators, and computes the same as without the library."""

import importlib.util

from bench import GIB, MIB, main, tell, wait

QUOTA, PIECE = 4 * GIB, 256 * MIB
# Bytes of the quota that PyTorch and the libraries under it may take beside its tensors.
OWN = 1 * GIB
ALLOCATORS = {
    "the default allocator": "expandable_segments:False",
    "expandable segments": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
}


def usable():
    """Runs one operation, which fails if PyTorch does not work."""
    import torch

    torch.ones(1, device="cuda").item()
    return {}


def reported():
    """Returns free and total bytes by PyTorch, and by its description of the device."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return {
        "version": torch.__version__,
        "free": free,
        "total": total,
        "described": torch.cuda.get_device_properties(0).total_memory,
    }


def fill():
    """Allocates tensors until PyTorch reports out of memory, frees them, and allocates again."""
    import torch

    def take():
        return torch.full((PIECE,), 7, dtype=torch.uint8, device="cuda")

    held, error = [], None
    while error is None and len(held) < 64:
        try:
            held.append(take())
        except torch.cuda.OutOfMemoryError as raised:
            error = str(raised)
        except RuntimeError as raised:
            return {"taken": len(held) * PIECE, "error": None, "other": f"{type(raised).__name__}: {raised}"[:400]}
    intact = all(bool((tensor == 7).all()) for tensor in held[:1])
    taken, left = len(held) * PIECE, torch.cuda.mem_get_info()[0]
    del held
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    emptied = torch.cuda.mem_get_info()[0]
    again = [take() for _ in range(taken // PIECE // 2)]
    sums = sum(int(tensor[0]) for tensor in again)
    return {"taken": taken, "left": left, "error": error, "emptied": emptied, "again": sums == 7 * len(again), "intact": intact}


def train():
    """Runs a few steps of a small network. Each of its operations is deterministic."""
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    layers = torch.nn
    model = layers.Sequential(
        layers.Conv2d(3, 16, 3),
        layers.ReLU(),
        layers.Flatten(),
        layers.Linear(16 * 30 * 30, 64),
        layers.GELU(),
        layers.Linear(64, 10),
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.randn(32, 3, 32, 32, device="cuda"), torch.arange(32, device="cuda") % 10
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    weights = sum(parameter.double().sum() for parameter in model.parameters()).item().hex()
    return {"losses": losses, "weights": weights}


def replay():
    """Captures a graph of the same work and replays it."""
    import torch

    torch.manual_seed(1)
    matrix, output = torch.randn(256, 256, device="cuda"), torch.empty(256, 256, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.mm(matrix, matrix, out=output)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inner = torch.mm(matrix, matrix)
        output.copy_(inner + 1)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    return {"sum": output.double().sum().item().hex()}


def speed():
    """Returns matrix products a second, in turns of half a second."""
    import time

    import torch

    matrix = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    tell({})
    while True:
        wait()
        torch.mm(matrix, matrix)
        torch.cuda.synchronize()
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < 0.5:
            for _ in range(50):
                torch.mm(matrix, matrix)
            torch.cuda.synchronize()
            done += 50
        tell({"a second": done / (time.perf_counter() - start)})


def fills(part):
    for name, choice in ALLOCATORS.items():
        with part.about(f"PyTorch, {name}"):
            seen = part.work("fill", limit=QUOTA, patience=120, env={"PYTORCH_CUDA_ALLOC_CONF": choice})
            part.figure(f"fill with {name}", seen)
            part.check(f"{name}: full is torch.cuda.OutOfMemoryError", bool(seen["error"]), seen)
            part.check(f"{name}: no more than the quota is granted", seen["taken"] <= QUOTA, seen)
            part.check(f"{name}: what fits is granted", seen["taken"] >= QUOTA - OWN, seen)
            if seen["error"]:
                part.check(f"{name}: del and empty_cache give it back", seen["emptied"] >= QUOTA - OWN and seen["again"], seen)
                part.check(f"{name}: what was granted is intact", seen["intact"], seen)


def same(part, task, what):
    with part.about(f"PyTorch, {what}"):
        fixed = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        bare, loaded, limited = part.three_ways(task, limit=QUOTA, patience=120, env=fixed)
        part.check(f"{what} gives the same, loaded", loaded == bare, loaded, bare)
        part.check(f"{what} gives the same, inside a quota", limited == bare, limited, bare)


def throughput(part):
    ways = {"bare": {}, "loaded": {"loaded": True}, "inside a quota": {"limit": QUOTA}}
    workers = {way: part.start("speed", **how) for way, how in ways.items()}
    seen = {way: [] for way in ways}
    try:
        for worker in workers.values():
            worker.answer(120)
        for _ in range(4):
            for way, worker in workers.items():
                worker.go_on()
                seen[way].append(round(worker.answer()["a second"]))
    finally:
        for worker in workers.values():
            worker.__exit__()
    part.figure("matrix products a second", seen)
    best = {way: max(values) for way, values in seen.items()}
    for way in ("loaded", "inside a quota"):
        part.check(f"throughput is at least 97 % of bare, {way}", best[way] >= 0.97 * best["bare"], seen)


def run(part):
    if part.simulated:
        return part.skip("PyTorch", "the CUDA runtime needs tables that only NVIDIA's driver has")
    if importlib.util.find_spec("torch") is None:
        return part.skip("PyTorch", "python3 has no torch")
    if not part.usable("PyTorch"):
        return None
    with part.about("PyTorch's figures"):
        seen = part.work("reported", limit=QUOTA, patience=120)
        part.figure("reported", seen)
        part.check("torch.cuda.mem_get_info shows the quota", seen["total"] == QUOTA and seen["free"] <= QUOTA, seen)
        part.check("the device's properties show the quota", seen["described"] == QUOTA, seen)
    fills(part)
    same(part, "train", "a training step")
    same(part, "replay", "a graph")
    with part.about("PyTorch, throughput"):
        throughput(part)
    return None


if __name__ == "__main__":
    main(__file__, run, usable, reported, fill, train, replay, speed)
