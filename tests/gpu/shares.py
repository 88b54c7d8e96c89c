"""Tests that a share of GPU time holds. Kernels record when they ran; on the simulated GPU its ground truth has the times."""

import array
import contextlib
import json
import subprocess
import time
from pathlib import Path

from bench import GIB, main, median
from page import REQUESTS
from stamps import Timeline, calibrate
from stats import percentile
from workloads import WORKLOADS, busy, requests, turns

SECOND = 1_000_000_000
# The most important limits come first, because the time may not suffice for all.
LIMITS = [30, 80, 10, 50, 95, 5]
# The program waits for each of its kernels, so the GPU waits for the program: some limits are more than it can use.
WAITING = "20 us, waits for each"
# Seconds of a measurement, behind a first second that does not count. Long kernels need longer. A cell that misses is measured
# again for the promised time.
SPAN, LONG_SPAN, LONG, PROMISED = 2, 5, 10, 10
# Number of slices. The others divide the rest of the device, and all want the whole of it.
SLICES = {"2 slices": 2, "4 slices": 4}
# Seconds that the longest cell may take in all. No cell begins later than this before the end of the part.
CELL = 15
# Length of a kernel of slices side by side, in microseconds.
LENGTH = 1500


def allowed(longest, limit, span):
    """Returns the allowed distance of a mean from its limit, in points: the target, or more for long kernels, which cannot be
    stopped."""
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
        """Returns the instant, the device's busy time, and the busy time of each process."""
        said = subprocess.run([self.tool], env=self.environment, capture_output=True, text=True, check=True).stdout
        truth = json.loads(said)
        own = {process["pid"]: process["devices"][0]["busy_ns"] for process in truth["processes"] if process["devices"]}
        return time.monotonic_ns(), truth["devices"][0]["busy_ns"], own


def in_slice(part, limit, region, **more):
    return {"loaded": True, "region": region, "env": {"GPU_CORE_PERCENT": str(limit), **more}}


@contextlib.contextmanager
def started(part, task, each):
    """Starts workers that are ready to run. `each`: pairs of settings (in a slice or bare) and arguments."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(part.start(task, **settings, **arguments)) for settings, arguments in each]
        for worker in workers:
            worker.answer()
        yield workers


def stamps_of(part, count):
    """Returns the stamps of each worker, as one list for each."""
    seen = []
    for number in range(count):
        words = array.array("Q")
        path = Path(f"{part.bulk}/stamps-{number}")
        words.frombytes(path.read_bytes())
        path.unlink()
        seen.append(list(zip(words[::2], words[1::2])))
    return seen


def cell(part, name, limit, clock, span=None):
    """Measures one workload under one limit. A limit of 100 means without the library."""
    programs, longest = WORKLOADS[name]
    span = span or (LONG_SPAN if longest > LONG else SPAN)
    slice_ = in_slice(part, limit, part.new_region()) if limit < 100 else {}
    common = {"step": clock["step"], "seconds": span + 1.2}
    each = [(slice_, {**common, "lengths": lengths, "how": how, "file": f"{part.bulk}/stamps-{number}"})
            for number, (lengths, how) in enumerate(programs)]  # fmt: skip
    with started(part, "busy", each) as workers:
        for worker in workers:
            worker.go_on()
        if part.simulated:
            seen = from_truth(Truth(part), span)
        answers = [worker.answer(span + 60) for worker in workers]
    stamps = [pair for each in stamps_of(part, len(programs)) for pair in each]
    if not part.simulated:
        seen = from_stamps(stamps, limit, span, clock["pause"])
    seen["launches"] = sum(answer["launches"] for answer in answers)
    return judged(seen, limit, allowed(longest, limit, span))


def judged(seen, limit, allowed):
    return {**seen, "allowed": round(allowed, 2), "error": round(seen["mean"] - limit, 2)}


def among_others(part, name, limit, clock):
    """Measures the first of several slices."""
    others = SLICES[name] - 1
    limits = [limit, *[max(1, (96 - limit) // others)] * others]
    slices = [in_slice(part, each, part.new_region()) for each in limits]
    got = side_by_side(part, slices, clock["step"], 1 if part.simulated else SPAN)
    others = {f"{each} %": round(percent, 2) for each, percent in zip(limits[1:], got[1:])}
    return judged({"mean": round(got[0], 2), "others": others}, limit, 1)


def from_truth(truth, span):
    time.sleep(1)
    began, before, _ = truth.read()
    time.sleep(span)
    ended, after, _ = truth.read()
    return {"mean": round(100 * (after - before) / (ended - began), 2)}


def from_stamps(stamps, limit, span, pause=0):
    """Returns the share from stamps. The device's pauses between queued kernels belong to the share, because no other program
    could use them. The result also has the share without such pauses."""
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
    """Returns the milliseconds until the mean of half a second is within 2 points of the limit."""
    begin = line.starts[0]
    for late in range(0, SECOND, 50_000_000):
        if abs(line.percent(begin + late, begin + late + SECOND // 2) - limit) <= 2:
            return late // 1_000_000
    return None


def table(part, clock):
    """Measures all cells for which there is time, in the order of the limits."""
    limits = part.settings.get("limits") or LIMITS
    cells = [(name, limit) for limit in limits for name in (*WORKLOADS, *SLICES, REQUESTS)]
    if part.simulated:
        names = ("20 us, asynchronous", "2 processes, 200 us", "bursty beside steady", "2 slices", REQUESTS)
        cells = [("graph of 8 ms", 50), *[(name, 30) for name in names]]
        part.skip("the time stamps of kernels", "the simulated GPU runs no code; its ground truth is asked instead")
    figures, left_out, reached = {"shares": {}, REQUESTS: {}}, 0, {}
    for name, limit in cells:
        if time.monotonic() > part.end - CELL:
            left_out += 1
            continue
        with part.about(f"{name} at {limit} %"):
            kind = REQUESTS if name == REQUESTS else "shares"
            if name == REQUESTS:
                figures[kind][str(limit)] = latency(part, limit, clock["step"])
            else:
                seen = judged_cell(part, name, limit, clock, reached)
                figures[kind].setdefault(name, {})[str(limit)] = seen
                holds(part, f"{name} at {limit} %", seen["error"], seen["allowed"], seen)
            part.figure(kind, figures[kind])
    if left_out:
        part.skip(f"{left_out} cells of the table", "there was no time left for them")


def judged_cell(part, name, limit, clock, reached):
    """Measures a cell. `reached`: the share without a limit of programs that cannot use every share."""
    if name in SLICES:
        return among_others(part, name, limit, clock)
    seen = cell(part, name, limit, clock)
    if part.simulated:
        return seen
    if name == WAITING:
        free = reached[name] = reached.get(name) or cell(part, name, 100, clock)["mean"]
        if limit > free - 5:  # it does not bind
            return {**seen, "without a limit": free, "error": max(0, seen["error"])}
    if abs(seen["error"]) > seen["allowed"] and time.monotonic() < part.end - 2 * CELL:
        return {**cell(part, name, limit, clock, PROMISED), "at first": seen["mean"]}
    return seen


def holds(part, what, error, allowed, seen):
    """Checks that a mean is near enough to its limit. On the simulated GPU this run tests the suite; `ci/accuracy.sh` tests the
    library. Other programs may use the processors there, so only too much GPU time is a failure."""
    if part.simulated:
        part.check(f"{what}: at most 8 points too much", error <= 8, seen)
    else:
        part.check(f"{what}: within {allowed} points", abs(error) <= allowed, seen)


def thirty_and_seventy(part, step):
    """Measures two slices that take the whole device together."""
    limits, span = (30, 70), 3 if part.simulated else 10
    got = side_by_side(part, [in_slice(part, limit, part.new_region()) for limit in limits], step, span)
    figures = {f"{limit} %": round(percent, 2) for limit, percent in zip(limits, got)}
    part.figure("two slices side by side", figures)
    for limit, percent in zip(limits, got):
        holds(part, f"side by side, the slice of {limit} %", percent - limit, 1, figures)


def side_by_side(part, slices, step, span):
    """Returns the percent of the device that each of several programs got. Each wants the whole device. The percent is the number
    of kernels times the length of one kernel alone."""
    how = {"lengths": [LENGTH], "how": "stream", "step": step, "seconds": span + 1.5}
    each = [(slice_, {**how, "file": f"{part.bulk}/stamps-{number}"}) for number, slice_ in enumerate(slices)]
    with started(part, "busy", each) as workers:
        for worker in workers:
            worker.go_on()
        if part.simulated:
            time.sleep(1)
            (began, _, before), _, (ended, _, after) = Truth(part).read(), time.sleep(span), Truth(part).read()
            pids = [worker.child.pid for worker in workers]
            seen = [100 * (after[pid] - before[pid]) / (ended - began) for pid in pids]
        for worker in workers:
            worker.answer(span + 60)
    stamps = stamps_of(part, len(slices))
    return seen if part.simulated else by_work(stamps, 1000 * LENGTH)


def by_work(stamps, length):
    """Returns the percent of each of several slices: the number of ended kernels times their `length` alone, in nanoseconds. The
    time begins one second after all run, and ends with the first slice."""
    begin = max(min(each)[0] for each in stamps) + SECOND
    end = min(max(pair[1] for pair in each) for each in stamps)
    return [100 * length * sum(begin < stop <= end for _, stop in each) / (end - begin) for each in stamps]


def latency(part, limit, step):
    """Compares requests at two thirds of a share with burst `latency` with the same requests without a limit."""
    each, span = 5, 2 if part.simulated else 8 if limit <= 10 else 4
    how = {"step": step, "seconds": span, "period": each / 1000 / (limit / 100 * 2 / 3), "kernels_each": each}
    p99 = {}
    for way, settings in (("bare", {}), ("limited", in_slice(part, limit, part.new_region(), GPU_CORE_BURST="latency"))):
        with started(part, "requests", [(settings, how)]) as [worker]:
            worker.go_on()
            p99[way] = percentile(worker.answer(span + 60)["seconds"], 99)
    ratio = p99["limited"] / p99["bare"]
    claim = f"{REQUESTS} of {limit} %: their p99 is " + ("measured" if part.simulated else "at most 1.2 times unlimited")
    part.check(claim, part.simulated or ratio <= 1.2, p99)
    return {"p99 in ms": {way: round(1000 * value, 3) for way, value in p99.items()}, "ratio": round(ratio, 3)}


def whole(part, step):
    """Measures the cost of a limit of 100: paired turns of short kernels, bare and inside a slice."""
    slice_ = in_slice(part, 100, part.new_region(), GPU_MEM_LIMIT=str(2 * GIB))
    rounds, ratios = (2, []) if part.simulated else (10, [])
    with started(part, "turns", [({}, {"step": step}), (slice_, {"step": step})]) as [bare, inside]:
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
    """Checks the arithmetic of stamps with made-up stamps: pieces of 3 ms every 10 ms, some of which overlap."""
    every, length = 10_000_000, 3_000_000
    stamps = [pair for start in range(0, 4 * SECOND, every) for pair in (
        (start, start + length), (start + length // 3, start + length // 2))]  # fmt: skip
    seen = from_stamps(stamps[::-1], 30, SPAN)
    right = {"mean": 30.0, "windows95": 0.0, "settled": 0, "longest_pause_ms": 7.0}
    part.check("stamps of 30 % are reported as 30 %", all(abs(seen[key] - right[key]) < 0.1 for key in right), seen)
    late = from_stamps([*stamps, (2 * SECOND, 5 * SECOND // 2)], 30, SPAN)
    part.check("half a second too much is seen in the windows", 34 < late["windows95"] < 36, late)
    # 200 and 400 kernels a second of 1.5 ms, which take longer beside each other. The second slice begins later.
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
            ("overhead at 100 %", whole), ("two slices side by side", thirty_and_seventy), ("shares", table),
        ):  # fmt: skip
            with part.about(what):
                measure(part, seen if measure is table else seen["step"])


if __name__ == "__main__":
    main(__file__, run, calibrate, busy, requests, turns)
