"""Measures the time that the library adds to cuInit, and to the start of programs without CUDA."""

import os
import subprocess
import sys
import time
from ctypes import byref, c_int, c_uint

from bench import QUOTA, main, median
from driver import Cuda

WAYS = {"bare": {}, "loaded": {"loaded": True}, "inside a quota": {"limit": QUOTA}}


def initialise():
    """Returns the microseconds of cuInit in a fresh process, and whether it made a context."""
    before = time.perf_counter_ns()
    cuda = Cuda(context=False)
    took = (time.perf_counter_ns() - before) // 1000
    flags, active = c_uint(), c_int()
    cuda("cuDevicePrimaryCtxGetState", cuda.device, byref(flags), byref(active))
    return {"us": took, "context": active.value}


def idle():
    """Returns the number of threads of a program without CUDA, and whether there is a region."""
    return {"threads": len(os.listdir("/proc/self/task")), "region": os.path.exists(os.environ.get("GPUSLICE_REGION", ""))}


def start_of(part, program, rounds):
    """Returns the microseconds of a whole program, by way, in turn, and the difference to the bare run beside each."""
    times = {way: [] for way in WAYS}
    environments = {way: part.environment(**how) for way, how in WAYS.items()}
    for _ in range(rounds):
        for way, environment in environments.items():
            before = time.perf_counter_ns()
            subprocess.run(program, env=environment, check=True)
            times[way].append((time.perf_counter_ns() - before) / 1000)
    added = {way: median([mine - bare for mine, bare in zip(times[way], times["bare"])]) for way in WAYS}
    return {way: {"us": round(median(times[way])), "added": round(added[way])} for way in WAYS}


def run(part):
    rounds = 20 if part.simulated else 200
    for name, program in (("true", ["/bin/true"]), ("python", [sys.executable, "-S", "-c", "pass"])):
        with part.about(f"start of {name}"):
            seen = start_of(part, program, rounds)
            part.figure(f"start of {name}, us", seen)
            if part.simulated:
                part.check(f"{name} starts", True)
            else:
                worst = max(way["added"] for way in seen.values())
                part.check(f"{name} starts less than 300 us later", worst < 300, seen)
    with part.about("a program without CUDA"):
        bare, _, limited = part.three_ways("idle")
        part.check("a program without CUDA gets no thread and no region", limited == bare, limited, bare)
    with part.about("cuInit"):
        turns = 3 if part.simulated else 7
        answers = {way: [] for way in WAYS}
        for _ in range(turns):
            for way, how in WAYS.items():
                answers[way].append(part.work("initialise", **how))
        times = {way: median([answer["us"] for answer in seen]) for way, seen in answers.items()}
        part.figure("cuInit, us", {**times, "all": {way: [answer["us"] for answer in seen] for way, seen in answers.items()}})
        part.check("cuInit makes no context", all(not answer["context"] for seen in answers.values() for answer in seen), answers)
        if not part.simulated:
            spread = max(answer["us"] for answer in answers["bare"]) - min(answer["us"] for answer in answers["bare"])
            late = {way: times[way] - times["bare"] for way in ("loaded", "inside a quota")}
            part.figure("cuInit, spread of the bare runs, us", spread)
            # Runs may differ by more than a millisecond. The check allows their spread, and the figure shows it to its reader.
            part.check("cuInit takes less than 1 ms longer, beyond the spread", max(late.values()) < 1000 + spread, late, spread)


if __name__ == "__main__":
    main(__file__, run, initialise, idle)
