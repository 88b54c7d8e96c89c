"""Measures the number of launches that can wait behind a long kernel, and the behaviour of a launch into a full queue."""

import threading
import time

from bench import Fact, main
from stats import percentile
from watch import Watcher

ROOM = Fact(
    "at least 512 launches wait behind a long kernel before one blocks",
    "LEAST_BOUND in src/policy/src/compute/limiter/queue_bound.rs: 20 ms of predicted work may wait",
    "short kernels would block in the driver instead of in the gate; the bound would have to count launches as well",
)
ONE_AT_A_TIME = Fact(
    "a launch into a full queue returns when there is room for it, and not when the queue has run dry",
    "src/policy/src/compute/limiter/queue_bound.rs",
    "the gate would have to keep the queue from filling",
)
NO_STARVING = Fact(
    "while a launch waits for room another thread sleeps on time: at the 99th percentile at most 5 ms late",
    "src/shim/src/compute/measuring/meter.rs reads events each millisecond",
    "measuring would come late for programs that fill the queue",
)
SLOW = 20_000_000
LIMIT = 4096


def blocked_after(call):
    """Returns the number of calls that return at once, or the limit if none blocks."""
    for number in range(LIMIT):
        began = time.perf_counter_ns()
        call()
        if time.perf_counter_ns() - began > SLOW:
            return number
    return LIMIT


def depths():
    """Returns, by kind of call, the number of calls that return at once while a kernel of 400 ms runs."""
    watcher = Watcher([1, 400_000])
    nothing, lead, event = watcher.nothing(), watcher.watching(400_000), watcher.event()
    stamping = watcher.watching(1)
    nothing()
    watcher.wait()
    kinds = {
        "launches": nothing,
        "launches with arguments": stamping,
        "records of events": lambda: watcher.record(event),
        "pairs of both": lambda: (nothing(), watcher.record(event)),
    }
    told = {}
    for name, call in kinds.items():
        lead()
        told[name] = blocked_after(call)
        watcher.wait()
    return told


def full(room):
    """Returns the time of each launch into a queue that is full of kernels of 1 ms, and the delay of a thread that sleeps."""
    watcher = Watcher([1000])
    launch, late, taken, end = watcher.watching(1000), [], [], threading.Event()

    def sleeper():
        while not end.is_set():
            began = time.monotonic()
            time.sleep(0.001)
            late.append(time.monotonic() - began - 0.001)

    launch()
    watcher.wait()  # the first one is slow by itself
    for filled in range(room):
        began = time.perf_counter_ns()
        launch()
        # No queue is this short, even if something else has delayed a launch.
        if time.perf_counter_ns() - began > 500_000 and filled >= 256:
            break
    else:
        return {}
    thread = threading.Thread(target=sleeper)
    thread.start()
    began = time.thread_time()
    for _ in range(200):
        start = time.perf_counter_ns()
        launch()
        taken.append((time.perf_counter_ns() - start) / 1e6)
    spent = time.thread_time() - began
    end.set()
    thread.join()
    return {"filled": filled, "ms": round(percentile(taken, 50), 3), "p99 ms": round(percentile(taken, 99), 3), "ms in all": round(sum(taken), 1),
            "processor ms": round(1000 * spent, 1), "late p99 ms": round(1000 * percentile(late, 99), 3)}  # fmt: skip


def run(part):
    with part.about_facts("depth", ROOM):
        seen = part.work("depths")
        part.figure("calls until one blocks", seen)
        part.fact(ROOM, part.timely(seen["launches"] >= 512), seen)
    with part.about_facts("a full queue", ONE_AT_A_TIME, NO_STARVING):
        seen = part.work("full", room=3000)
        part.figure("launches into a full queue", seen)
        if seen:
            part.fact(ONE_AT_A_TIME, part.timely(seen["p99 ms"] < 50), seen)
            part.fact(NO_STARVING, part.timely(seen["late p99 ms"] <= 5), seen)


if __name__ == "__main__":
    main(__file__, run, depths, full)
