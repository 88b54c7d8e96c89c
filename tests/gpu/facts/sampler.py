"""Measures NVML's figures of a process's use of the device: interval, delay, accuracy, and the figures of an idle process."""

import collections
import ctypes
import sys
import threading
import time
from ctypes import byref, c_uint, c_uint64

from bench import Fact, Skip, main, tell, wait
from driver import Cuda, Nvml
from machine import own_numbers
from stats import median, spread
from watch import Watcher, overlap, turns

WINDOW = Fact(
    "process utilisation comes in windows of a sixth of a second",
    "NVML_WINDOW in src/policy/src/compute/attribution/nvml_only.rs",
    "with GPU_CORE_METER=nvml estimates would follow sooner or later than they are meant to",
)
CLOCK = Fact(
    "its time stamps are the host's time of day, and at most a second old under load",
    "SAMPLE_CLOCK_SKEW in src/policy/src/compute/attribution/nvml_windows.rs",
    "samples could not be laid on the slice's line of time",
)
PART = Fact(
    "its figure is the part of the time in which kernels of the process ran, within 3 points",
    "src/policy/src/compute/attribution/nvml_only.rs, nvml_windows.rs",
    "with GPU_CORE_METER=nvml a wrong part of the time would be charged",
)
IDLE = Fact(
    "a process that has done nothing for 2 s is listed with 0, or not at all",
    "src/policy/src/compute/attribution/nvml_windows.rs",
    "a program that is there and idle would be taken for one that uses the GPU",
)
ONE = Fact(
    "an answer has one entry for each process: its mean use since the instant that is asked for",
    "src/policy/src/compute/attribution/nvml_windows.rs",
    "windows would have to be made of several samples",
)
CHEAP = Fact(
    "reading the samples takes at most 20 ms",
    "src/shim/src/compute/cotenants/program_sampler.rs reads them from a thread of its own",
    "the sampler would fall behind its windows",
)
BESIDE = Fact(
    "of two processes that both want the whole device, each has half of all samples of the time, within 20 points",
    "src/policy/src/compute/attribution/nvml_only.rs, nvml_windows.rs",
    "no figure of NVML's would say what part of the device a slice had",
)
SPAN = 5
# Seconds for which the part watches two processes: 60 windows. By chance alone, each would be in 23 to 37 of them.
BESIDE_SPAN = 10


class Sample(ctypes.Structure):
    """`nvmlProcessUtilizationSample_t`."""

    _fields_ = [
        ("pid", c_uint),
        ("stamp", c_uint64),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    ]


def samples(nvml, since=0):
    """Returns process, time stamp in microseconds and percent of each sample, or nothing if there is no sample."""
    count, there = c_uint(1024), (Sample * 1024)()
    status = nvml.status("nvmlDeviceGetProcessUtilization", nvml.device, there, byref(count), since)
    return [(each.pid, each.stamp, each.sm) for each in there[: count.value]] if status == 0 else []


def half():
    """Works for 5 of every 10 ms, and answers the part of the time in which it worked."""
    watcher = Watcher([5000])
    launch = watcher.watching(5000)
    launch()
    watcher.forget()
    tell({})
    wait()
    began = due = time.monotonic()
    while due < began + SPAN:
        time.sleep(max(0, due - time.monotonic()))
        launch()
        due += 0.01
    kernels, holes = watcher.seen()
    took = time.monotonic() - began
    if kernels:
        tell({"percent": round(100 * overlap(turns(kernels, holes), 0, 1 << 63) / (kernels[-1].ended - kernels[0].begun), 2)})
    else:
        tell({"percent": round(100 * 0.005 * (SPAN / 0.01) / took, 2), "from": "its lengths"})
    wait()
    return {}


def watched(span):
    """Returns NVML's samples while the worker is half busy, and afterwards."""
    cuda = Cuda(context=False)
    nvml = Nvml(cuda.uuid())
    tell({"known": [pid for pid, _, _ in samples(nvml)]})
    wait()
    seen, costs, ages, end = collections.defaultdict(dict), [], [], time.time() + span
    # A driver may report the mean since the instant of the question, so the part asks for each sample once.
    latest = int((time.time() - 0.2) * 1e6)
    while time.time() < end:
        began = time.perf_counter()
        now = samples(nvml, latest)
        costs.append(time.perf_counter() - began)
        for pid, stamp, percent in now:
            seen[pid][stamp] = percent
            latest = max(latest, stamp)
        if now:
            ages.append(time.time() - max(stamp for _, stamp, _ in now) / 1e6)
        time.sleep(0.05)
    rows = {pid: sorted(stamps.items()) for pid, stamps in seen.items()}
    tell({"samples": rows, "ms": spread([1000 * cost for cost in costs], 2), "age": spread(ages[len(ages) // 3 :], 3)})
    entries = collections.Counter(pid for pid, _, _ in samples(nvml, int((time.time() - 2) * 1e6)))
    wait()
    return {"entries": max(entries.values(), default=0), "later": samples(nvml, int((time.time() - 1) * 1e6))}


def saturate(length):
    """Runs kernels of some microseconds without a gap, with a few queued, until a line comes."""
    watcher = Watcher([length])
    launch, marks = watcher.watching(length), [watcher.event(timing=False) for _ in range(4)]
    launch()
    watcher.wait()
    tell({"own": own_numbers()})
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    number = 0
    while not ended.is_set():
        mark = marks[number % len(marks)]
        if number >= len(marks):
            watcher.cuda("cuEventSynchronize", mark)
        launch()
        watcher.record(mark)
        number += 1
    watcher.wait()
    return {"launches": number}


def stamped(span, every):
    """Returns every sample of a period, each asked for once: process, stamp, percent."""
    nvml = Nvml(Cuda(context=False).uuid())
    seen, end, latest = set(), time.time() + span, int((time.time() - 0.2) * 1e6)
    while time.time() < end:
        now = samples(nvml, latest)
        seen.update(now)
        latest = max([latest, *(stamp for _, stamp, _ in now)])
        time.sleep(every)
    return {"samples": sorted(seen)}


def beside(seen, numbers=None):
    """Returns figures of the samples of processes that ran side by side: the number of entries for each stamp, and the part of
    each process by its own entries, over all stamps, and in single seconds. Some entries are a mean since the last question.
    Others are the device's whole use in the name of one process. Only the sum over all stamps means the same in both."""
    rows = [row for row in seen if numbers is None or row[0] in numbers]
    stamps = sorted({stamp for _, stamp, _ in rows})
    if not stamps:
        return {"stamps": 0}
    told = {"stamps": len(stamps), "entries a stamp": round(len(rows) / len(stamps), 2), "processes": {}}
    by_second = collections.defaultdict(set)
    for stamp in stamps:
        by_second[(stamp - stamps[0]) // 1_000_000].add(stamp)
    whole = [second for second in by_second.values() if len(second) >= 4]
    for pid in sorted({pid for pid, _, _ in rows}):
        own = {stamp: percent for who, stamp, percent in rows if who == pid}
        seconds = [sum(own.get(stamp, 0) for stamp in second) / len(second) for second in whole]
        told["processes"][pid] = {
            "of its entries": round(sum(own.values()) / len(own), 1),
            "of all": round(sum(own.values()) / len(stamps), 1),
            "in a second": spread(seconds),
        }
    return told


def two(part, span=BESIDE_SPAN, every=0.05):
    """Returns the samples of two processes that both want the whole device. If NVML has other numbers for them, returns those of
    the two busiest processes."""
    with part.start("saturate", length=2000) as one, part.start("saturate", length=2000) as other:
        numbers = {number for worker in (one, other) for number in worker.answer()["own"]}
        seen = part.work("stamped", span=span, every=every, patience=span + 60)["samples"]
        for worker in (one, other):
            worker.go_on()
            worker.answer()
    if not seen:
        raise Skip("NVML tells no process apart")
    if not numbers & {pid for pid, _, _ in seen}:
        most = collections.Counter()
        for pid, _, percent in seen:
            most[pid] += percent
        numbers = {pid for pid, _ in most.most_common(2)}
    return beside(seen, numbers)


def run(part):
    with part.about_facts("two processes", BESIDE):
        seen = two(part, 2 if part.simulated else BESIDE_SPAN)
        part.figure("two processes that want the whole device", seen)
        if not part.simulated:
            part.figure("the same, asked each second", two(part, every=1))
        halves = [each["of all"] for each in seen["processes"].values()]
        part.fact(BESIDE, part.timely(len(halves) == 2 and all(abs(each - 50) <= 20 for each in halves)), seen)
    facts = (WINDOW, CLOCK, PART, IDLE, CHEAP, ONE)
    with part.about_facts("samples", *facts), part.start("half") as worker, part.start("watched", span=SPAN) as watcher:
        worker.answer()
        watcher.answer()
        worker.go_on()
        watcher.go_on()
        did, seen = worker.answer(SPAN + 60), watcher.answer(SPAN + 60)
        time.sleep(2.5)
        watcher.go_on()
        last = watcher.answer()
        later = last["later"]
        worker.go_on()
        new = {pid: rows for pid, rows in seen["samples"].items() if len(rows) > 3}
        part.figure("samples", {"cost, ms": seen["ms"], "age, s": seen["age"], "worker": did["percent"], "processes": len(new)})
        if not new:
            raise Skip("NVML tells no process apart")
        # The worker is the process that NVML saw most of.
        pid, rows = max(new.items(), key=lambda item: sum(percent for _, percent in item[1]))
        middle = [percent for _, percent in rows[len(rows) // 3 : -1]] or [0]
        gaps = [(after[0] - before[0]) / 1000 for before, after in zip(rows, rows[1:])]
        part.figure("ms between samples", spread(gaps))
        part.figure("percent, sample by sample", [percent for _, percent in rows])
        part.fact(WINDOW, part.timely(120 <= median(gaps) <= 220), f"{median(gaps):.0f} ms")
        part.fact(CLOCK, part.timely(-0.05 <= seen["age"]["median"] <= 1), seen["age"])
        mean = sum(middle) / len(middle)
        part.fact(PART, part.timely(abs(mean - did["percent"]) <= 3), f"{mean:.1f} of {did['percent']}")
        busy = [row for row in later if str(row[0]) == pid and row[2] > 0]
        part.fact(IDLE, not busy, later)
        part.fact(ONE, last["entries"] == 1 if last["entries"] else None, last["entries"])
        part.fact(CHEAP, part.timely(seen["ms"]["median"] <= 20), seen["ms"])


if __name__ == "__main__":
    main(__file__, run, half, watched, saturate, stamped)
