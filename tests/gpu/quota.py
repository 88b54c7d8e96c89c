"""Tests that every family of allocations gets exactly the quota, and that all reports show the quota."""

import shutil
import subprocess
from ctypes import byref, c_uint64

from bench import BLOCK, MIB, QUOTA, main, tell, wait
from driver import OUT_OF_MEMORY, Cuda, Nvml, Refused
from families import FAMILIES

PIECES = 8
# Bytes that the device may lose beyond the slice's charge: rounding, and memory that NVML counts late.
SLACK = 16 * MIB


def fill(family, piece):
    """Allocates pieces until one is refused, holds them while a witness looks, and frees all of them."""
    cuda, take = Cuda(), FAMILIES[family]
    take(cuda, piece)[1]()  # the first call sets things up before the count begins
    before, held, refusal = cuda.info(), [], None
    while len(held) < 4 * PIECES and refusal is None:
        try:
            held.append(take(cuda, piece))
        except Refused as refused:
            if refused.status == 801:
                raise
            refusal = refused
    full = cuda.info()
    taken = sum(size for size, _ in held)
    tell({})
    wait()
    for _, give in held:
        give()
    after = cuda.free()
    try:
        take(cuda, piece)[1]()
        again = True
    except Refused:
        again = False
    return {
        "before": before[0], "total": [cuda.size(), before[1], full[1]], "taken": taken, "pieces": len(held), "full": full[0],
        "status": refusal and refusal.status, "untouched": refusal and refusal.untouched, "after": after, "again": again,
    }  # fmt: skip


def to_the_byte():
    """Allocates all blocks of the quota. One more byte must be refused, because it needs a block."""
    cuda = Cuda()
    free = cuda.free()
    blocks, over = free // BLOCK * BLOCK, free % BLOCK
    too_much = cuda.status("cuMemAlloc_v2", byref(c_uint64()), blocks + 1)
    address = cuda.value("cuMemAlloc_v2", blocks)
    left = cuda.free() - over
    one_more = cuda.status("cuMemAlloc_v2", byref(c_uint64()), 1)
    cuda("cuMemFree_v2", address)
    return {"too_much": too_much, "left": left, "one_more": one_more, "after": cuda.free() == free}


def mixed():
    """Allocates one piece of each family, in as many rounds as fit."""
    cuda, held, status = Cuda(), [], None
    while status is None and len(held) < 1000:
        for take in FAMILIES.values():
            try:
                held.append(take(cuda, 64 * MIB))
            except Refused as refused:
                if refused.status == 801:
                    raise
                status = refused.status
                break
    taken, left = sum(size for size, _ in held), cuda.free()
    for _, give in held:
        give()
    return {"taken": taken, "left": left, "status": status}


def hold(size):
    """Allocates memory and holds it while others look."""
    cuda = Cuda()
    nvml = Nvml(cuda.uuid())
    tell({"uuid": cuda.uuid()})
    wait()
    address = cuda.value("cuMemAlloc_v2", size) if size else None
    tell({"info": cuda.info(), "nvml": nvml.memory(), "reserved": nvml.memory()["reserved"]})
    wait()
    if address:
        cuda("cuMemFree_v2", address)
    return {}


def watch(uuid):
    """Returns NVML's figures, in a process that does nothing else."""
    return Nvml(uuid).memory()


def witness():
    """Sends the device's used bytes by NVML, at each request."""
    nvml = Nvml(Cuda(context=False).uuid())
    tell({})
    while True:
        wait()
        tell(nvml.memory()["v2"][2])


def used(watcher):
    watcher.go_on()
    return watcher.answer()


def filled(part, family, watcher):
    """Returns the answer of a worker that fills its quota, and the bytes that the device lost meanwhile."""
    before = used(watcher)
    with part.start("fill", limit=QUOTA, family=family, piece=QUOTA // PIECES) as worker:
        worker.answer()
        lost = used(watcher) - before
        worker.go_on()
        return {**worker.answer(), "lost": lost}


def families(part):
    with part.start("witness") as watcher:
        watcher.answer()
        each_family(part, watcher)
    together(part)


def each_family(part, watcher):
    for family in FAMILIES:
        with part.about(f"{family}: a quota"):
            seen = filled(part, family, watcher)
            part.figure(family, seen)
            within = seen["taken"] - SLACK <= seen["lost"] <= QUOTA + SLACK
            part.check(
                f"{family}: by NVML's own figure the device lost what was granted and no more than the quota", within, seen
            )
            part.check(f"{family}: the size is the quota, whoever is asked", seen["total"] == [QUOTA] * 3, seen["total"])
            part.check(f"{family}: more than the quota is refused with 2", seen["status"] == OUT_OF_MEMORY, seen["status"])
            part.check(f"{family}: a refused call leaves its output", seen["untouched"])
            part.check(f"{family}: no more than the quota is granted", seen["taken"] <= QUOTA, seen)
            # The context's part of the quota is gone before. Each piece may be rounded up.
            fits = seen["full"] < QUOTA // PIECES or seen["before"] - seen["taken"] < QUOTA // PIECES
            most = seen["before"] // (QUOTA // PIECES)
            part.check(f"{family}: what fits is granted", fits and seen["pieces"] >= max(1, most - 1), seen)
            part.check(f"{family}: what is given back can be had again", seen["after"] == seen["before"] and seen["again"], seen)


def together(part):
    with part.about("all families together"):
        seen = part.work("mixed", limit=QUOTA)
        part.figure("mixed", seen)
        within = seen["taken"] <= QUOTA and seen["status"] == OUT_OF_MEMORY
        part.check("all families together get no more than the quota", within, seen)
        part.check("all families together get what fits", seen["left"] < 128 * MIB, seen)
    with part.about("the last block"):
        seen = part.work("to_the_byte", limit=QUOTA)
        wanted = {"too_much": OUT_OF_MEMORY, "left": 0, "one_more": OUT_OF_MEMORY, "after": True}
        part.check("the quota is kept to the block", seen == wanted, seen)


def reports(part):
    """Compares reports inside a quota with NVML outside it."""
    size = QUOTA // 4
    with part.about("figures of NVML"), part.start("hold", limit=QUOTA, size=size) as holder:
        uuid = holder.answer()["uuid"]
        before = part.work("watch", uuid=uuid)
        holder.go_on()
        inside = holder.answer()
        outside = part.work("watch", uuid=uuid)
        holder.go_on()
        part.figure("inside", inside)
        part.figure("outside", {"before": before, "holding": outside})
        for form in ("v1", "v2"):
            total, free, used = inside["nvml"][form]
            part.check(f"NVML {form}: the size is the quota", total == QUOTA, total)
            part.check(f"NVML {form}: free is what CUDA says", free == inside["info"][0], free, inside["info"])
            part.check(f"NVML {form}: used and free make the whole", used + free == total and used >= size, total, free, used)
        part.check("free is never more than the device has", inside["info"][0] <= outside["v2"][1], inside["info"], outside)
        taken = outside["v2"][2] - before["v2"][2]
        part.check("the device lost what was charged, within 2 MiB", abs(taken - size) <= 2 * MIB, taken, size)
        part.check("NVML outside the slice shows the whole device", outside["v2"][0] > QUOTA, outside)


def smi(part):
    """Checks that nvidia-smi inside the slice shows the quota and the usage of the slice."""
    program = shutil.which("nvidia-smi")
    if part.simulated or program is None:
        reason = "runs with tests/clients on the simulated GPU" if part.simulated else "nvidia-smi is not in PATH"
        return part.skip("nvidia-smi", reason)
    region, size = part.new_region(), QUOTA // 2
    query = [program, "--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits", "--id=0"]
    with part.about("nvidia-smi"), part.start("hold", limit=QUOTA, region=region, size=size) as holder:
        holder.answer()
        holder.go_on()
        holder.answer()
        environment = part.environment(limit=QUOTA, region=region)
        shown = subprocess.run(query, env=environment, capture_output=True, text=True, timeout=60, check=False)
        part.figure("nvidia-smi", shown.stdout.strip())
        total, used, free = (int(word) for word in shown.stdout.split(","))
        part.check("nvidia-smi shows the quota", total == QUOTA // MIB, shown.stdout, shown.stderr)
        part.check("nvidia-smi shows what the slice holds", used >= size // MIB and used + free == total, shown.stdout)
    return None


def run(part):
    families(part)
    reports(part)
    smi(part)


if __name__ == "__main__":
    main(__file__, run, fill, to_the_byte, mixed, hold, watch, witness)
