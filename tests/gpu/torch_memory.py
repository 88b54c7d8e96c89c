"""Tests that PyTorch's processes, loaders and graphs keep to one quota: multiprocessing, DataLoader, private pools, recovery."""

import importlib.util

from bench import GIB, MIB, main

QUOTA, PIECE = 4 * GIB, 256 * MIB
SEGMENTS = {"segments": "expandable_segments:False", "expandable segments": "expandable_segments:True"}


def usable():
    """Runs one operation, which fails if PyTorch does not work."""
    import torch

    torch.ones(1, device="cuda").item()
    return {}


def child_of_processes(given, answers):
    """Reads the shared tensor in a process of its own, and allocates the rest of the quota."""
    import torch

    tensor, held = given.get(), []
    told = {"sum": int(tensor.sum(dtype=torch.int64)), "total": torch.cuda.mem_get_info()[1]}
    try:
        while len(held) < 64:
            held.append(torch.zeros(PIECE, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        told["refused"] = True
    told["taken"] = len(held) * PIECE
    del tensor, held
    answers.put(told)


def processes():
    """Shares a tensor with a child, which then fills the quota."""
    import torch
    import torch.multiprocessing as processes

    spawn = processes.get_context("spawn")
    tensor = torch.full((PIECE * 4,), 3, dtype=torch.uint8, device="cuda")
    given, answers = spawn.Queue(), spawn.Queue()
    # The child is a daemon, so it ends with this process: otherwise it would keep the pipe of the answers open.
    child = spawn.Process(target=child_of_processes, args=(given, answers), daemon=True)
    child.start()
    given.put(tensor)
    told = answers.get(timeout=100)
    child.join(30)
    return {**told, "mine": tensor.numel(), "status": child.exitcode, "free": torch.cuda.mem_get_info()[0]}


class Numbers:
    """Data set in which each item is a row of its own number."""

    def __len__(self):
        return 256

    def __getitem__(self, number):
        import torch

        return torch.full((1024,), number, dtype=torch.float32)


def loader():
    """Returns a sum over batches that forked workers made, pinned and copied to the device."""
    import torch

    torch.ones(1, device="cuda")  # CUDA is up in the parent, and forked workers must leave it alone
    batches = torch.utils.data.DataLoader(Numbers(), batch_size=16, num_workers=2, pin_memory=True)
    total = torch.zeros((), dtype=torch.float64, device="cuda")
    for batch in batches:
        total += batch.to("cuda", non_blocking=True).double().sum()
    return {"sum": total.item()}


def private_pool():
    """Returns the bytes that a graph with a private pool keeps after its tensors have ended, and those that come back at its
    reset."""
    import torch

    start = torch.zeros(16 * MIB, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (start + 1).sum()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before, graph = torch.cuda.mem_get_info()[0], torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rows = [start + number for number in range(8)]
        total = sum(row.sum() for row in rows)
    del rows
    torch.cuda.empty_cache()
    kept = before - torch.cuda.mem_get_info()[0]
    graph.replay()
    torch.cuda.synchronize()
    value = total.item()
    del total
    graph.reset()
    del graph
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return {
        "value": value,
        "wanted": float(sum(range(8)) * 16 * MIB),
        "kept": kept,
        "left": before - torch.cuda.mem_get_info()[0],
    }


def capture_out_of_memory():
    """Checks that a capture beyond the quota is an out-of-memory error, and that the next one that fits works."""
    import torch

    torch.ones(1, device="cuda").add_(1)
    torch.cuda.synchronize()
    graph, said = torch.cuda.CUDAGraph(), None
    try:
        with torch.cuda.graph(graph):
            torch.zeros(2 * QUOTA, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        said = str(error)[:200]
    del graph
    torch.cuda.empty_cache()
    tensor, again = torch.zeros(1024, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(again):
        tensor += 1
    for _ in range(3):
        again.replay()
    torch.cuda.synchronize()
    return {"said": said, "sum": tensor.sum().item()}


def recovery():
    """Runs out of memory in the middle of training, many times. A smaller batch then trains, and no memory is lost."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    refused, losses, free = 0, [], []
    for size in (256, 1 << 19, 256, 1 << 19, 256, 1 << 19, 256):
        try:
            optimizer.zero_grad(set_to_none=True)
            loss = model(torch.randn(size, 4096, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        except torch.cuda.OutOfMemoryError:
            refused += 1
        loss = None
        torch.cuda.empty_cache()
        free.append(torch.cuda.mem_get_info()[0])
    return {"refused": refused, "trained": len(losses), "free": free}


def several_processes(part):
    with part.about("PyTorch, several processes"):
        env = {"PYTORCH_CUDA_ALLOC_CONF": SEGMENTS["segments"]}
        seen = part.work("processes", limit=QUOTA, patience=120, env=env)
        part.figure("several processes", seen)
        part.check("a shared tensor has its content", seen["sum"] == 3 * seen["mine"], seen)
        part.check("a child sees the same quota", seen["total"] == QUOTA, seen)
        part.check("parent and child together get no more than the quota", seen.get("refused")
                   and seen["mine"] + seen["taken"] <= QUOTA, seen)  # fmt: skip
        part.check("shared memory is paid for once", seen["mine"] + seen["taken"] >= QUOTA - 3 * GIB // 2, seen)
        part.check("the child ends with 0, and what it held is free", seen["status"] == 0 and seen["free"] >= seen["taken"], seen)


def run(part):
    if part.simulated:
        return part.skip("PyTorch's processes, loaders and graphs", "the CUDA runtime needs tables that only NVIDIA's driver has")
    if importlib.util.find_spec("torch") is None:
        return part.skip("PyTorch's processes, loaders and graphs", "python3 has no torch")
    if not part.usable("PyTorch's processes, loaders and graphs"):
        return None
    several_processes(part)
    with part.about("PyTorch, DataLoader"):
        bare, limited = part.work("loader", patience=90), part.work("loader", limit=QUOTA, patience=90)
        part.check("batches of DataLoader workers are the same inside a quota", bare == limited, bare, limited)
    for name, choice in SEGMENTS.items():
        env = {"PYTORCH_CUDA_ALLOC_CONF": choice}
        with part.about(f"PyTorch, private pools, {name}"):
            seen = part.work("private_pool", limit=QUOTA, patience=90, env=env)
            part.figure(f"private pool, {name}", seen)
            part.check(f"{name}: a graph with a private pool computes the same", seen["value"] == seen["wanted"], seen)
            part.check(f"{name}: a private pool is charged while its graph lives", seen["kept"] > 0, seen)
            part.check(f"{name}: and given back with it", seen["left"] <= 64 * MIB, seen)
        with part.about(f"PyTorch, out of memory, {name}"):
            seen = part.work("recovery", limit=QUOTA, patience=90, env=env)
            part.figure(f"recovery, {name}", seen)
            again = seen["free"][0] - seen["free"][-1] <= 64 * MIB
            part.check(
                f"{name}: training goes on behind an out-of-memory error", seen["refused"] == 3 and seen["trained"] == 4, seen
            )
            part.check(f"{name}: three such errors lose nothing", again, seen)
    with part.about("PyTorch, out of memory in a capture"):
        seen = part.work("capture_out_of_memory", limit=QUOTA, patience=90)
        part.check(
            "a capture beyond the quota is out of memory, and the next one works", seen["said"] and seen["sum"] == 3072, seen
        )
    return None


if __name__ == "__main__":
    main(__file__, run, usable, processes, loader, private_pool, capture_out_of_memory, recovery)
