"""Measures how the driver divides the device between processes, and the time between timing events meanwhile."""

import time

from bench import Fact, main, tell, wait
from stats import spread
from watch import Watcher, overlap, turns

CONTAINS = Fact(
    "under time slicing the time between two events contains the neighbour's turns: for two alike it is about twice the own",
    "src/policy/src/compute/attribution/replay.rs",
    "the trim would take off what was never in: slices would get more than their share",
)
SWITCH = Fact(
    "changing from one process to the other takes at most 100 us",
    "LONGEST_SWITCH in src/policy/src/compute/measuring/verdict.rs",
    "what is thought to be idle between launches would be a switch",
)
APART = Fact(
    "processes take turns and never run at the same time (without MPS)",
    "src/policy/src/compute/attribution/replay.rs: what was the slice's own is no neighbour's",
    "shares of neighbours would add up to more than the device",
)
EVEN = Fact(
    "two processes that both want the whole device get half each, within 5 points",
    "docs/internals/limiter.md: the target for slices side by side",
    "shares above a slice's part of the time slicing could not be had",
)
# By name: lengths of kernels in microseconds of two processes, and whether they are alike.
PAIRS = {"0.2 ms": (200, 200), "2 ms": (2000, 2000), "20 ms": (20_000, 20_000), "0.2 ms beside 20 ms": (200, 20_000)}


def worker(length, span):
    """Runs kernels without a gap, with a few queued. Returns when it had the device, and the time of events of each batch."""
    watcher = Watcher([length])
    launch, batch = watcher.watching(length), max(1, 2000 // length)
    marks = [(watcher.event(), watcher.event()) for _ in range(4)]
    launch()
    watcher.forget()
    tell({})
    wait()
    began, number, shown = time.monotonic(), 0, []
    while time.monotonic() - began < span:
        first, last = marks[number % len(marks)]
        if number >= len(marks):
            watcher.cuda("cuEventSynchronize", last)
            shown.append(watcher.between(first, last) / batch)
        watcher.record(first)
        for _ in range(batch):
            launch()
        watcher.record(last)
        number += 1
    kernels, holes = watcher.seen()
    middle = shown[len(shown) // 4 : -len(shown) // 4 or None] or [0]
    tell(
        {
            "events": sum(middle) / len(middle) / (1000 * length),
            "launches": number * batch,
            "turns": turns(kernels, holes)[:60_000],
        }
    )


def pair(part, lengths, span):
    workers = [part.start("worker", length=length, span=span) for length in lengths]
    try:
        for each in workers:
            each.answer()
        for each in workers:
            each.go_on()
        return [each.answer(span + 60) for each in workers]
    finally:
        for each in workers:
            each.__exit__()


def told(seen):
    """Returns figures of the turns of two processes."""
    figures = {"event time over own time": [round(each["events"], 3) for each in seen]}
    lines = [each["turns"] for each in seen]
    if not all(lines):
        return figures
    low, high = max(line[0][0] for line in lines), min(line[-1][1] for line in lines)
    order = sorted((begin, end, which) for which, line in enumerate(lines) for begin, end in line if begin >= low and end <= high)
    changes = [after[0] - before[1] for before, after in zip(order, order[1:]) if before[2] != after[2]]
    slices = [[end - begin for begin, end in line if begin > low and end < high] for line in lines]
    figures["percent of each"] = [round(100 * overlap(line, low, high) / (high - low), 2) for line in lines]
    figures["slice, us"] = [spread([length / 1000 for length in line]) for line in slices]
    figures["change, us"] = spread([change / 1000 for change in changes])
    figures["both at once"] = sum(change < 0 for change in changes)
    figures["changes"] = len(changes)
    return figures


def run(part):
    span = 1 if part.simulated else 4
    with part.about_facts("time slicing", CONTAINS, SWITCH, APART, EVEN):
        alone = part.start("worker", length=2000, span=span)
        with alone:
            alone.answer()
            alone.go_on()
            part.figure("alone, event time over own time", round(alone.answer(60)["events"], 4))
        pairs = {"2 ms": PAIRS["2 ms"]} if part.simulated else PAIRS
        seen = {name: told(pair(part, lengths, span)) for name, lengths in pairs.items()}
        part.figure("side by side", seen)
        even = seen["2 ms"]
        contained = all(1.6 <= over <= 2.4 for over in even["event time over own time"])
        part.fact(CONTAINS, part.timely(contained), even["event time over own time"])
        if "changes" in even:
            part.fact(SWITCH, even["change, us"]["median"] <= 100, even["change, us"])
            part.fact(APART, even["both at once"] <= even["changes"] * 0.01, [even["both at once"], even["changes"]])
            part.fact(EVEN, all(abs(share - 50) <= 5 for share in even["percent of each"]), even["percent of each"])


if __name__ == "__main__":
    main(__file__, run, worker)
