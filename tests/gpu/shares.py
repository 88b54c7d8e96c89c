"""Does a share of GPU time hold? Kernels note when they ran; on the simulated GPU its ground truth tells."""

import array
import contextlib
import json
import subprocess
import time
from pathlib import Path

from bench import GIB, main, median
from stamps import Timeline, calibrate
from workloads import WORKLOADS, busy, requests, turns

SECOND = 1_000_000_000
# In this order, so that what there is no time for is what matters least.
LIMITS = [30, 80, 10, 50, 95, 5]
# What is measured of a cell, behind a first second that does not count. Long kernels need longer.
SPAN, LONG_SPAN, LONG = 3, 6, 10
# Seconds that the longest cell may take, in all: none is begun later than so long before the part must have ended.
CELL = 15


def allowed(longest, limit, span):
    """How far from its limit a mean may be, in points: the target, or for long kernels what nobody can undercut."""
    if longest <= 5:
        return 0.5
    return max(1, 100 * longest / 1000 * (1 - limit / 100) / span)


class Truth:
    """The simulated GPU's ground truth."""

    def __init__(self, part):
        staged = Path(part.settings["simgpu"])
        tool = staged / "simgpu-truth"
        self.tool = tool if tool.exists() else staged.parent / "release" / "simgpu-truth"
        self.environment = part.environment()

    def read(self):
        """The instant, the device's busy time, and that of each process."""
        said = subprocess.run([self.tool], env=self.environment, capture_output=True, text=True, check=True).stdout
        truth = json.loads(said)
        own = {process["pid"]: process["devices"][0]["busy_ns"] for process in truth["processes"] if process["devices"]}
        return time.monotonic_ns(), truth["devices"][0]["busy_ns"], own


def in_slice(part, limit, region, **more):
    return {"loaded": True, "region": region, "env": {"GPU_CORE_PERCENT": str(limit), **more}}


@contextlib.contextmanager
def started(part, count, task, settings, **arguments):
    """Workers that stand ready, in one slice or bare; the number of each takes the place of `{}` in the arguments."""
    filled = [{key: value.format(number) if isinstance(value, str) else value for key, value in arguments.items()}
              for number in range(count)]  # fmt: skip
    workers = [part.start(task, **settings, **each) for each in filled]
    try:
        for worker in workers:
            worker.answer()
        yield workers
    finally:
        for worker in workers:
            worker.__exit__()


def stamps_of(part, count):
    """What the workers left, in one list for each."""
    seen = []
    for number in range(count):
        words = array.array("Q")
        path = Path(f"{part.bulk}/stamps-{number}")
        words.frombytes(path.read_bytes())
        path.unlink()
        seen.append(list(zip(words[::2], words[1::2])))
    return seen


def cell(part, name, limit, clock):
    """One workload under one limit."""
    step = clock["step"]
    count, lengths, longest, how = WORKLOADS[name]
    span = LONG_SPAN if longest > LONG else SPAN
    slice_ = in_slice(part, limit, part.new_region())
    arguments = {"lengths": lengths, "how": how, "step": step, "seconds": span + 1.2, "file": f"{part.bulk}/stamps-{{}}"}
    with started(part, count, "busy", slice_, **arguments) as workers:
        for worker in workers:
            worker.go_on()
        if part.simulated:
            seen = from_truth(Truth(part), span)
        answers = [worker.answer(span + 60) for worker in workers]
    stamps = [pair for each in stamps_of(part, count) for pair in each]
    if not part.simulated:
        seen = from_stamps(stamps, limit, span, clock["pause"])
    seen["launches"] = sum(answer["launches"] for answer in answers)
    return {**seen, "allowed": round(allowed(longest, limit, span), 2), "error": round(seen["mean"] - limit, 2)}


def from_truth(truth, span):
    time.sleep(1)
    began, before, _ = truth.read()
    time.sleep(span)
    ended, after, _ = truth.read()
    return {"mean": round(100 * (after - before) / (ended - began), 2)}


def from_stamps(stamps, limit, span, pause=0):
    """A slice has the device for as long as its kernels run one behind the other: what the device needs to get from one to
    the next in its queue is part of that, since nobody else could have it. Without such pauses is told beside it."""
    line = Timeline(stamps, pause)
    begin = line.starts[0] + SECOND
    end = min(begin + span * SECOND, line.ends[-1])
    off = sorted(abs(percent - limit) for percent in line.windows(begin, end)) or [0]
    return {
        "mean": round(line.percent(begin, end), 2),
        "kernels alone": round(Timeline(stamps).percent(begin, end), 2),
        "windows95": round(off[(len(off) - 1) * 95 // 100], 2),
        "settled": settled(line, limit),
        "longest_pause_ms": round(line.longest_gap(begin, end) / 1e6, 2),
    }


def settled(line, limit):
    """Milliseconds until half a second's mean is within 2 points of the limit."""
    begin = line.starts[0]
    for late in range(0, SECOND, 50_000_000):
        if abs(line.percent(begin + late, begin + late + SECOND // 2) - limit) <= 2:
            return late // 1_000_000
    return None


def table(part, clock):
    """All cells that there is time for, in the order of the limits."""
    cells = [(name, limit) for limit in LIMITS for name in WORKLOADS]
    if part.simulated:
        cells = [("20 us, asynchronous", 30), ("graph of 8 ms", 50), ("2 processes, 200 us", 30)]
        part.skip("the time stamps of kernels", "the simulated GPU runs no code; its ground truth is asked instead")
    figures, left_out = {}, 0
    for name, limit in cells:
        if time.monotonic() > part.end - CELL:
            left_out += 1
            continue
        with part.about(f"{name} at {limit} %"):
            seen = figures.setdefault(name, {})[str(limit)] = cell(part, name, limit, clock)
            part.figure("shares", figures)
            holds(part, f"{name} at {limit} %", seen["error"], seen["allowed"], seen)
    if left_out:
        part.skip(f"{left_out} cells of the table", "there was no time left for them")


def holds(part, what, error, allowed, seen):
    """Whether a mean is near enough to its limit. On the simulated GPU the suite is tested, and not the library, for which
    `ci/accuracy.sh` is there: the processors may be busy with others, so that only too much is told."""
    if part.simulated:
        part.check(f"{what}: at most 8 points too much", error <= 8, seen)
    else:
        part.check(f"{what}: within {allowed} points", abs(error) <= allowed, seen)


def side_by_side(part, step):
    """Two slices that both want the whole device: each kernel's length alone, times how many ran."""
    shares, length, span = {30: None, 70: None}, 1500, 3 if part.simulated else 10
    how = {"lengths": [length], "how": "stream", "step": step, "seconds": span + 1.5}
    with contextlib.ExitStack() as stack:
        workers = []
        for number, limit in enumerate(shares):
            slice_ = in_slice(part, limit, part.new_region())
            file = f"{part.bulk}/stamps-{number}"
            workers += stack.enter_context(started(part, 1, "busy", slice_, **how, file=file))
        for worker in workers:
            worker.go_on()
        if part.simulated:
            time.sleep(1)
            (began, _, before), _, (ended, _, after) = Truth(part).read(), time.sleep(span), Truth(part).read()
            pids = [worker.child.pid for worker in workers]
            seen = [100 * (after[pid] - before[pid]) / (ended - began) for pid in pids]
        for worker in workers:
            worker.answer(span + 60)
    stamps = stamps_of(part, 2)
    if not part.simulated:
        seen = by_work(stamps, 1000 * length)
    figures = {f"{limit} %": round(percent, 2) for limit, percent in zip(shares, seen)}
    part.figure("two slices side by side", figures)
    for limit, percent in zip(shares, seen):
        holds(part, f"side by side, the slice of {limit} %", percent - limit, 1, figures)


def by_work(stamps, length):
    """Percent of each of several slices, by how many kernels ended, each of which takes so many nanoseconds alone. From the
    second second on in which all run, until the first has ended."""
    begin = max(min(each)[0] for each in stamps) + SECOND
    end = min(max(pair[1] for pair in each) for each in stamps)
    return [100 * length * sum(begin < stop <= end for _, stop in each) / (end - begin) for each in stamps]


def latency(part, step):
    """Requests at two thirds of a share with the latency class, against the same requests without a limit."""
    limit, each, span = 30, 5, 2 if part.simulated else 6
    how = {"step": step, "seconds": span, "period": each / 1000 / (limit / 100 * 2 / 3), "kernels_each": each}
    p99 = {}
    for way, settings in (("bare", {}), ("limited", in_slice(part, limit, part.new_region(), GPU_CORE_BURST="latency"))):
        with started(part, 1, "requests", settings, **how) as [worker]:
            worker.go_on()
            taken = sorted(worker.answer(span + 60)["seconds"])
        p99[way] = taken[(len(taken) - 1) * 99 // 100]
    ratio = p99["limited"] / p99["bare"]
    part.figure("requests at two thirds of 30 %", {"p99 in ms": {way: round(1000 * value, 3) for way, value in p99.items()},
                                                   "ratio": round(ratio, 3)})  # fmt: skip
    part.check("the p99 of requests is measured" if part.simulated else "the p99 of requests is at most 1.2 times unlimited",
               part.simulated or ratio <= 1.2, p99)  # fmt: skip


def whole(part, step):
    """What a limit of 100 costs: paired turns of short kernels, bare and inside a slice."""
    slice_ = in_slice(part, 100, part.new_region(), GPU_MEM_LIMIT=str(2 * GIB))
    rounds, ratios = (2, []) if part.simulated else (10, [])
    with started(part, 1, "turns", {}, step=step) as [bare], started(part, 1, "turns", slice_, step=step) as [inside]:
        for number in range(rounds + 1):
            rates = {}
            for worker in (bare, inside) if number % 2 else (inside, bare):
                worker.go_on("0.2" if part.simulated else "0.5")
                rates[worker] = worker.answer()["a second"]
            ratios.append(rates[inside] / rates[bare])
    ratios = sorted(ratios[1:])
    part.figure("throughput at 100 % to bare", {"median": round(median(ratios), 5), "all": [round(ratio, 5) for ratio in ratios]})
    claim = "at 100 % at most 0.5 % of throughput is lost"
    part.check("throughput at 100 % is measured" if part.simulated else claim, part.simulated or median(ratios) >= 0.995, ratios)


def witness(part):
    """The arithmetic of the stamps, on stamps that are made up: pieces of 3 ms every 10 ms, two at a time in part."""
    every, length = 10_000_000, 3_000_000
    stamps = [pair for start in range(0, 4 * SECOND, every) for pair in (
        (start, start + length), (start + length // 3, start + length // 2))]  # fmt: skip
    seen = from_stamps(stamps[::-1], 30, SPAN)
    right = {"mean": 30.0, "windows95": 0.0, "settled": 0, "longest_pause_ms": 7.0}
    part.check("stamps of 30 % are told as 30 %", all(abs(seen[key] - right[key]) < 0.1 for key in right), seen)
    late = from_stamps([*stamps, (2 * SECOND, 5 * SECOND // 2)], 30, SPAN)
    part.check("half a second too much is seen in the windows", 34 < late["windows95"] < 36, late)
    # 200 and 400 kernels a second of 1.5 ms, that take longer beside each other; the second slice begins later.
    turns = [[(start, start + 4_000_000) for start in range(first, 6 * SECOND, SECOND // often)]
             for first, often in ((0, 200), (SECOND, 400))]  # fmt: skip
    seen = by_work(turns, 1_500_000)
    part.check("side by side, kernels count as what they take alone", all(abs(a - b) < 0.5 for a, b in zip(seen, (30, 60))), seen)


def run(part):
    with part.about("the witness"):
        witness(part)
    with part.about("shares of GPU time"):
        seen = part.work("calibrate")
        part.figure("the device's clock", seen)
        for what, measure in (
            ("overhead at 100 %", whole), ("two slices side by side", side_by_side), ("latency", latency), ("shares", table),
        ):  # fmt: skip
            with part.about(what):
                measure(part, seen if measure is table else seen["step"])


if __name__ == "__main__":
    main(__file__, run, calibrate, busy, requests, turns)
