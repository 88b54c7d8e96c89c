"""Tests that the processes of a slice share one quota, and that the memory of a killed process comes back."""

from ctypes import byref, c_uint64

from bench import BLOCK, MIB, QUOTA, main, seconds, tell, wait
from driver import OUT_OF_MEMORY, SUCCESS, Cuda


def member():
    """Obeys commands: `take BYTES` answers the status, `give` frees the last piece, `look` answers the free bytes."""
    cuda, held = Cuda(), []
    tell({"free": cuda.free()})
    while True:
        word, _, size = wait().partition(" ")
        if word == "take":
            address = c_uint64()
            status = cuda.status("cuMemAlloc_v2", byref(address), int(size))
            if status == SUCCESS:
                held.append(address.value)
            tell({"status": status, "free": cuda.free()})
        elif word == "look":
            tell({"free": cuda.free()})
        else:
            cuda("cuMemFree_v2", held.pop())
            tell({"status": SUCCESS, "free": cuda.free()})


def ask(worker, word):
    worker.go_on(word)
    return worker.answer()


# Contexts count too: this much quota is added for each process that has one.
CONTEXT = 768 * MIB


def together(part):
    how = {"limit": QUOTA + 2 * CONTEXT, "region": part.new_region()}
    with part.start("member", **how) as first, part.start("member", **how) as second:
        first.answer()
        second.answer()
        # Both processes have their contexts. The rest of the quota is divided, once the blocks that make no quarter are taken.
        left = ask(second, "look")["free"]
        quarter, over = left // BLOCK // 4 * BLOCK, left % BLOCK
        if left > 4 * quarter + over:
            ask(second, f"take {left - 4 * quarter - over}")
        one = ask(first, f"take {3 * quarter}")
        part.check("the first process gets three quarters", one["status"] == SUCCESS, one)
        half = ask(second, f"take {2 * quarter}")
        part.check("the second is refused half", half["status"] == OUT_OF_MEMORY, half)
        part.check("the second sees a quarter left", half["free"] == quarter + over, half, quarter)
        last = ask(second, f"take {quarter}")
        part.check("the second gets the last quarter", last["status"] == SUCCESS and last["free"] == over, last)
        byte = ask(first, "take 1")
        part.check("then no process gets a byte", byte["status"] == OUT_OF_MEMORY, byte)
        killed(part, first, second, 3 * quarter)


def killed(part, first, second, size):
    """Checks that the ledger adds no delay to the driver's clean-up after a process."""
    first.kill()
    began = seconds()
    answer = ask(second, f"take {size}")
    while answer["status"] == OUT_OF_MEMORY and seconds() - began < 5:
        answer = ask(second, f"take {size}")
    took = seconds() - began
    part.figure("seconds until a killed process's memory was had", round(took, 3))
    part.check("what a killed process held is had within a second", answer["status"] == SUCCESS and took < 1, answer, took)


def many_members(part, members=8):
    """Checks that processes that start at once share the quota like those that start one by one."""
    region, piece = part.new_region(), 32 * MIB
    workers = [part.start("member", limit=QUOTA + members * CONTEXT, region=region) for _ in range(members)]
    granted, busy = 0, set(range(members))
    try:
        for worker in workers:
            worker.answer()
        room = ask(workers[0], "look")["free"]
        while busy and granted <= 2 * room // piece:
            for number in busy:
                workers[number].go_on(f"take {piece}")
            answers = {number: workers[number].answer()["status"] for number in busy}
            granted += sum(status == SUCCESS for status in answers.values())
            busy = {number for number, status in answers.items() if status == SUCCESS}
    finally:
        for worker in workers:
            worker.__exit__()
    claim = f"{members} processes that take at once get exactly what is left of the quota"
    part.check(claim, granted == room // piece, granted * piece, room)


def run(part):
    with part.about("two processes in one slice"):
        together(part)
    with part.about("many processes in one slice"):
        many_members(part)


if __name__ == "__main__":
    main(__file__, run, member)
