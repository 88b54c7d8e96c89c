"""Tests that unmodified CuPy keeps to a quota, with its own pool and the driver's, and computes the same as without the
library."""

import importlib.util

from bench import GIB, MIB, main

QUOTA, PIECE, OWN = 4 * GIB, 256 * MIB, 1 * GIB


def usable():
    """Runs one operation, which fails if CuPy does not work."""
    import cupy

    cupy.ones(1).sum().item()
    return {}


def fill(ordered):
    """Allocates arrays until CuPy reports out of memory, frees them, and allocates again."""
    import cupy

    pool = cupy.cuda.MemoryAsyncPool() if ordered else cupy.get_default_memory_pool()
    cupy.cuda.set_allocator(pool.malloc)

    def take():
        return cupy.full(PIECE, 7, dtype=cupy.uint8)

    held, error = [], None
    while error is None and len(held) < 64:
        try:
            held.append(take())
        except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as raised:
            error = f"{type(raised).__name__}: {raised}"
    taken, info = len(held) * PIECE, cupy.cuda.runtime.memGetInfo()
    del held
    cupy.cuda.Device().synchronize()
    pool.free_all_blocks()
    emptied = cupy.cuda.runtime.memGetInfo()[0]
    again = [take() for _ in range(taken // PIECE // 2)]
    right = all(int(array[0]) == 7 for array in again)
    return {"version": cupy.__version__, "taken": taken, "error": error, "info": info, "emptied": emptied, "again": right}


def compute():
    """Computes element by element and as a product."""
    import cupy

    values = cupy.arange(1 << 16, dtype=cupy.float32).reshape(256, 256) / (1 << 16)
    return {"product": float((values @ values).sum()).hex(), "sine": float(cupy.sin(values).sum()).hex()}


def run(part):
    if part.simulated:
        return part.skip("CuPy", "the CUDA runtime needs tables that only NVIDIA's driver has")
    if importlib.util.find_spec("cupy") is None:
        return part.skip("CuPy", "python3 has no cupy")
    if not part.usable("CuPy"):
        return None
    for name, ordered in (("its own pool", False), ("the driver's pool", True)):
        with part.about(f"CuPy, {name}"):
            seen = part.work("fill", limit=QUOTA, ordered=ordered)
            part.figure(f"fill with {name}", seen)
            out_of_memory = ("OutOfMemoryError", "cudaErrorMemoryAllocation")
            part.check(f"{name}: full is out of memory", any(word in (seen["error"] or "") for word in out_of_memory), seen)
            part.check(f"{name}: no more than the quota is granted", seen["taken"] <= QUOTA, seen)
            part.check(f"{name}: what fits is granted", seen["taken"] >= QUOTA - OWN, seen)
            part.check(f"{name}: the size is the quota", seen["info"][1] == QUOTA, seen)
            part.check(f"{name}: what was deleted can be had again", seen["again"] and seen["emptied"] >= QUOTA - OWN, seen)
    with part.about("CuPy, a computation"):
        bare, loaded, limited = part.three_ways("compute", limit=QUOTA)
        part.check("a computation gives the same, loaded", loaded == bare, loaded, bare)
        part.check("a computation gives the same, inside a quota", limited == bare, limited, bare)
    return None


if __name__ == "__main__":
    main(__file__, run, usable, fill, compute)
