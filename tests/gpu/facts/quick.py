"""Finds the simulated GPU's defaults that differ from this device. The most decisive questions come first, in five minutes.

The results have each answer beside the default, with the setting of the simulated GPU that matches the answer.
"""

import collections
import ctypes
import statistics
import threading
import time
from ctypes import byref, c_int, c_uint64, c_void_p

import elf
import machine
import queue as depth_of_queues
import sampler
import slicing
from bench import GIB, KIB, MIB, Broken, Fact, Skip, main, tell, wait
from driver import Cuda, Library, Nvml
from machine import inside, listed, took
from overhead import InC, compiled
from sampler import saturate, stamped
from slicing import worker
from stats import median
from watch import Watcher

# A question: how to get the answer, how to compare two answers, and whether other programs on the processors change the answer.
# Then the line of the design that rests on it, and what would change there.
Question = collections.namedtuple("Question", ["name", "ask", "alike", "timed", "rests", "otherwise"])
# An answer: one value, and everything else that was seen.
Answer = collections.namedtuple("Answer", ["value", "seen"])


def bytes_told(seen):
    """Returns the setting of the simulated NVML that gives this answer about the bytes of a process."""
    return "SIMGPU_NVML_PIDS=offset" if seen == "not listed" else f"SIMGPU_NVML_BYTES={seen}"


# The simulated GPU's default value, and the setting that gives it another one.
DEFAULTS = {
    "who is in a sample of NVML's": ("one", "SIMGPU_NVML_SAMPLES={}".format),
    "bytes of a process in NVML's list": ("own", bytes_told),
    "what cuMemAlloc rounds up to": ("blocks", "SIMGPU_LINEAR_GRANULE={}".format),
    "start of NVML, ms": (300, "SIMGPU_NVML_INIT_MS={:.0f}".format),
    "list of NVML's processes, us": (4500, "SIMGPU_NVML_LIST_US={:.0f}".format),
    "a context, MiB": (530, "SIMGPU_CONTEXT_BYTES={}MiB".format),
    "an event, ns of the device": (2500, "SIMGPU_TIME=event_ns={}".format),
    "a record of an event, ns for each further thread": (1000, "SIMGPU_EVENT_CONTENTION_NS={}".format),
    "memory of a killed process, ms": (300, "SIMGPU_TEARDOWN_MS={:.0f}".format),
    "questions about events while code is loaded": ("waits", "SIMGPU_LOADING=free".format),
    "free memory, us": (0, "SIMGPU_FAULTS=cuMemGetInfo_v2=delay:{:.0f}us".format),
    "launches that wait in a stream": (1024, "SIMGPU_TIME=stream_depth={}".format),
    "a time slice, us": (1024, "SIMGPU_TIME=slice_ns={}000".format),
    "functions that are handed out and not exported": ("", "SIMGPU_PRIVATE_ENTRIES={}".format),
}

ROUNDED = {MIB * 3 // 4: 16, MIB + 1: 16, 2 * MIB + 1: 16, 3 * MIB: 16, 256 * KIB: 64}
TRIED = ["cuMemAlloc", "cuMemAllocAsync", "cuMemCreate", "cuLaunchKernel", "cuGraphLaunch"]
LEGACY, PER_THREAD = 1, 2
NO_ATTACH = 2


# ---- Arithmetic


def up(size, unit):
    return -(-size // unit) * unit


def of_blocks(size, count):
    """Returns the bytes of allocations: above 1 MiB multiples of 2 MiB, below it powers of two that share blocks of 2 MiB."""
    if size > MIB:
        return count * up(size, 2 * MIB)
    return up(count << (size - 1).bit_length(), 2 * MIB)


# Rules for the memory of the device that a number of allocations of a size take together.
RULES = {
    "1": lambda size, count: size * count,
    "2MiB": lambda size, count: up(size, 2 * MIB) * count,
    "blocks": of_blocks,
}


def rule(taken):
    """Returns the rule that is nearest to the measured size, count and bytes of allocations."""
    def error(name):
        return sum(abs(RULES[name](size, count) - bytes_) / (size * count) for size, count, bytes_ in taken)

    return min(RULES, key=error)


def kind_of_samples(seen):
    """Returns whether a sample names one process, or each process that ran."""
    if not seen["stamps"]:
        raise Skip("NVML tells no process apart")
    return "each" if seen["entries a stamp"] > 1.5 else "one"


def kind_of_bytes(seen, size):
    """Returns the kind of NVML's bytes of a process that took `size` bytes: its own, not listed, or a number that cannot be
    right."""
    if not seen["listed"]:
        return "not listed"
    least = min(seen["listed"].values())
    return "own" if least >= size else str(least)


def within(part, least=0):
    """Returns a test whether two figures differ by at most `part` of the larger one, or by at most `least`."""
    return lambda one, two: abs(one - two) <= max(least, part * max(one, two))


def same(one, two):
    return one == two


# ---- Work of the workers


def taken():
    """Returns size, count, and the bytes that the device lost by `count` allocations of this size."""
    cuda, seen = Cuda(), []
    for size, count in ROUNDED.items():
        before = cuda.free()
        held = [cuda.value("cuMemAlloc_v2", size) for _ in range(count)]
        seen.append([size, count, before - cuda.free()])
        for address in held:
            cuda("cuMemFree_v2", address)
    return seen


def management():
    """Returns the milliseconds of the first start of NVML and of the next ones. Also returns the microseconds of a list of
    processes, in a process with a context."""
    Cuda()
    nvml, starts = Library("libnvidia-ml.so.1"), []
    for _ in range(3):
        began = time.perf_counter()
        nvml("nvmlInit_v2")
        starts.append(1000 * (time.perf_counter() - began))
        nvml("nvmlShutdown")
    opened, lists = Nvml(Cuda(context=False).uuid()), []
    for _ in range(20):
        began = time.perf_counter()
        listed(opened)
        lists.append(1e6 * (time.perf_counter() - began))
    return {"starts, ms": [round(each, 2) for each in starts], "list, us": round(median(lists), 1)}


def first_context(beside):
    """Returns the milliseconds of the first context of a process. `beside`: another thread began to start NVML 20 ms before."""
    cuda, nvml = Cuda(context=False), Library("libnvidia-ml.so.1")
    starting = threading.Thread(target=lambda: nvml("nvmlInit_v2"))
    if beside:
        starting.start()
        time.sleep(0.02)
    began = time.perf_counter()
    cuda.value("cuDevicePrimaryCtxRetain", cuda.device)
    took = 1000 * (time.perf_counter() - began)
    if beside:
        starting.join()
    return round(took, 2)


def unattached():
    """Returns the milliseconds of a first start of NVML that attaches no GPU."""
    nvml, began = Library("libnvidia-ml.so.1"), time.perf_counter()
    nvml("nvmlInitWithFlags", ctypes.c_uint(NO_ATTACH))
    return round(1000 * (time.perf_counter() - began), 2)


def context():
    """Returns the bytes that the device lost to a primary context, and NVML's figure of the process."""
    cuda = Cuda(context=False)
    nvml = Nvml(cuda.uuid())
    before = nvml.memory()["v1"][1]
    cuda("cuCtxSetCurrent", cuda.value("cuDevicePrimaryCtxRetain", cuda.device))
    lost = before - nvml.memory()["v1"][1]
    return {"lost": lost, "own bytes": machine.own_bytes(nvml)}


def event_cost(count=100, turns=9):
    """Returns the device's nanoseconds for an event behind each of many kernels of 20 us, and between two events with nothing
    between. A long kernel goes first, so that the host is ahead."""
    watcher = Watcher([20, 10_000])
    lead, launch, filler = watcher.watching(10_000), watcher.watching(20), watcher.event()
    first, last, costs, adjacent = watcher.event(), watcher.event(), [], []

    def span(with_events):
        lead()
        watcher.record(first)
        for _ in range(count):
            launch()
            if with_events:
                watcher.record(filler)
        watcher.record(last)
        watcher.wait()
        return watcher.between(first, last)

    span(True)
    for turn in range(turns):
        order = (True, False) if turn % 2 else (False, True)
        spans = {way: span(way) for way in order}
        costs.append((spans[True] - spans[False]) / count)
        lead()
        watcher.record(first)
        watcher.record(last)
        watcher.wait()
        adjacent.append(watcher.between(first, last))
    return {"ns an event": round(median(costs)), "adjacent, ns": round(median(adjacent))}


def threads(library, count=16_384):
    """Returns the host's nanoseconds for a record of an event, by number of threads at once. The threads run loops in C, because
    threads of Python take turns."""
    watcher = Watcher([1])
    loops = InC(watcher.cuda, library)
    marks = [(watcher.event(), watcher.cuda.stream()) for _ in range(8)]

    def at_once(number):
        taken, gate = [], threading.Barrier(number)

        def each(mark):
            watcher.cuda("cuCtxSetCurrent", watcher.cuda.context)
            gate.wait()
            taken.append(loops.records(*mark, count) / count)

        lines = [threading.Thread(target=each, args=(mark,)) for mark in marks[:number]]
        for line in lines:
            line.start()
        for line in lines:
            line.join()
        if len(taken) < number:
            raise Broken("an event cannot be recorded")
        return statistics.mean(taken)

    return {number: round(statistics.median(at_once(number) for _ in range(3))) for number in (1, 8)}


def holder(size):
    """Holds memory until it is killed."""
    Cuda().value("cuMemAlloc_v2", size)
    tell({})
    wait()
    return {}


def free_now():
    """Sends the device's free memory at each request."""
    cuda = Cuda(context=False)
    nvml = Nvml(cuda.uuid())
    while True:
        tell({"free": nvml.memory()["v1"][1], "at": time.monotonic()})
        wait()


def loading():
    """Returns the longest time of an event query while another thread loads a kernel behind a kernel of 400 ms."""
    watcher = Watcher([1, 400_000])
    cuda, mark = watcher.cuda, watcher.event()
    lead, longest, ended = watcher.watching(400_000), [0.0], threading.Event()
    watcher.record(mark)
    watcher.wait()
    library = cuda.value("cuLibraryLoadData", LATE, None, None, 0, None, None, 0)
    lead()

    def load():
        cuda("cuCtxSetCurrent", cuda.context)
        kernel = cuda.value("cuLibraryGetKernel", library, b"late")
        function = cuda.value("cuKernelGetFunction", kernel)
        one = ctypes.c_uint(1)
        began = time.perf_counter()
        cuda("cuLaunchKernel", function, one, one, one, one, one, one, ctypes.c_uint(0), watcher.stream, None, None)
        longest.append(1000 * (time.perf_counter() - began))
        ended.set()

    thread = threading.Thread(target=load)
    thread.start()
    while not ended.is_set():
        began = time.perf_counter()
        cuda.status("cuEventQuery", mark)
        longest[0] = max(longest[0], 1000 * (time.perf_counter() - began))
    thread.join()
    watcher.wait()
    return {"question, ms": round(longest[0], 2), "first launch, ms": round(longest[1], 2)}


LATE = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry late() { ret; }\n\0"


def room():
    """Returns the number of launches that return at once while a kernel of 400 ms runs."""
    watcher = Watcher([1, 400_000])
    nothing, lead = watcher.nothing(), watcher.watching(400_000)
    nothing()
    watcher.wait()
    lead()
    number = depth_of_queues.blocked_after(nothing)
    watcher.wait()
    return number


def memory_info():
    """Returns the microseconds of a query of free memory: median, and the longest of 200."""
    cuda, costs = Cuda(), []
    for _ in range(200):
        began = time.perf_counter()
        cuda.free()
        costs.append(1e6 * (time.perf_counter() - began))
    return {"us": round(median(costs), 1), "most": round(max(costs), 1)}


def hidden():
    """Returns names for which the driver returns an address that it does not export."""
    driver = ctypes.CDLL("libcuda.so.1")
    functions = [name for name in elf.functions(elf.path_of("libcuda.so")) if name.startswith("cu")]
    exported = {ctypes.cast(driver[name], c_void_p).value for name in functions}
    version, names = c_int(), []
    driver.cuDriverGetVersion(byref(version))
    for name in TRIED:
        for flags in (LEGACY, PER_THREAD):
            found, how = c_void_p(), c_int()
            driver.cuGetProcAddress_v2(name.encode(), byref(found), version, c_uint64(flags), byref(how))
            if found.value and found.value not in exported:
                names.append(f"{name}/{flags}")
    return names


# ---- Questions


def ask_samples(part):
    seen = sampler.two(part, 3 if part.simulated else sampler.BESIDE_SPAN)
    return Answer(kind_of_samples(seen), seen)


def ask_bytes(part):
    """Asks in a namespace of process numbers if one can be made, because a container has one."""
    seen = {"here": part.work("took", size=GIB)}
    with part.about("bytes of a process in a namespace of its own"):
        seen["in a namespace of its own"] = part.work("inside", size=GIB)
    return Answer(kind_of_bytes([*seen.values()][-1], GIB), seen)


def ask_rounding(part):
    seen = part.work("taken")
    return Answer(rule(seen), {f"{size} x {count}": lost for size, count, lost in seen})


def ask_start(part):
    """Asks also whether a context waits for the start. If it does not, a process could start NVML beside its first context."""
    seen = part.work("management")
    seen["no GPU attached, ms"] = part.work("unattached")
    seen["a context, ms"] = part.work("first_context", beside=False)
    seen["a context beside a start, ms"] = part.work("first_context", beside=True)
    return Answer(max(seen["starts, ms"]), seen)


def ask_list(part):
    seen = part.work("management")
    return Answer(seen["list, us"], seen)


def ask_context(part):
    seen = part.work("context")
    return Answer(round(seen["lost"] / MIB), seen)


def ask_events(part):
    seen = part.work("event_cost")
    return Answer(seen["ns an event"], seen)


def ask_threads(part):
    library = compiled(part.scratch.name)
    if library is None:
        raise Skip("there is no cc, and threads of Python take turns")
    seen = part.work("threads", library=library)
    return Answer(max(0, round((seen["8"] - seen["1"]) / 7)), seen)


def ask_slice(part):
    seen = slicing.told(slicing.pair(part, (2000, 2000), 1 if part.simulated else 3))
    if "slice, us" not in seen:
        raise Skip("the simulated GPU runs no code, so that there are no stamps")
    return Answer(round(median([each["median"] for each in seen["slice, us"]])), seen)


def ask_death(part):
    """Returns the milliseconds until the memory of a killed process is free, by NVML's figure of the device. 10 s: it was never
    free."""
    with part.start("free_now") as judge:
        before = judge.answer()["free"]
        with part.start("holder", size=GIB) as victim:
            victim.answer()
            victim.kill()
            killed = time.monotonic()
        while True:
            judge.go_on()
            now = judge.answer()
            if now["free"] >= before - GIB // 2 or now["at"] > killed + 10:
                return Answer(round(1000 * max(0, now["at"] - killed)), {"ms": round(1000 * (now["at"] - killed), 1)})


def ask_loading(part):
    seen = part.work("loading")
    return Answer("waits" if seen["question, ms"] > 50 else "goes on", seen)


def ask_depth(part):
    seen = part.work("room")
    return Answer(seen, {"launches": seen})


def ask_info(part):
    seen = part.work("memory_info")
    return Answer(seen["us"], seen)


def ask_look_up(part):
    seen = part.work("hidden")
    return Answer(",".join(seen), seen)


# The most decisive question comes first.
QUESTIONS = [
    Question("who is in a sample of NVML's", ask_samples, same, False, "src/policy/src/compute/attribution/unknown_processes.rs, nvml_windows.rs",
             "a window says who was seen last; parts come from many windows only"),
    Question("bytes of a process in NVML's list", ask_bytes, same, False, "src/shim/src/driver_calls/nvml/memory.rs",
             "contexts and code are charged by estimates, or with nothing"),
    Question("what cuMemAlloc rounds up to", ask_rounding, same, False, "linear in src/shim/src/hooks/memory/linear.rs",
             "a slice of many odd sizes holds more than it is charged for"),
    Question("start of NVML, ms", ask_start, within(0.3, 100), True, "src/shim/src/driver_calls/nvml/memory.rs, memory/nvml_baseline.rs",
             "NVML has to stay open between two questions"),
    Question("list of NVML's processes, us", ask_list, within(0.3, 1000), True, "src/shim/src/driver_calls/nvml/memory.rs, memory/nvml_baseline.rs",
             "each measured call holds the driver's lock for so long"),
    Question("a context, MiB", ask_context, within(0.1), False, "src/shim/src/hooks/code/context.rs",
             "contexts are charged too little where nothing can be measured"),
    Question("an event, ns of the device", ask_events, within(0.2, 300), True, "LONG_KERNEL and FULL in src/policy/src/compute/measuring/when_alone.rs",
             "runs have to be as long as their events cost"),
    Question("a record of an event, ns for each further thread", ask_threads, within(0.5, 1000), True, "src/shim/src/driver_calls/events.rs",
             "fewer launches have to be measured where many threads launch"),
    Question("memory of a killed process, ms", ask_death, within(0.5, 100), True, "reap_if_due in src/shim/src/slice/handle.rs",
             "a slice is above its quota for so long"),
    Question("questions about events while code is loaded", ask_loading, same, False, "src/shim/src/compute/measuring/meter.rs, worker/waiting.rs",
             "no call of the worker is held up, and launches need not poll in its place"),
    Question("free memory, us", ask_info, within(0.5, 100), True, "src/shim/src/memory/measurement.rs",
             "look-ups of code cannot be measured each time"),
    Question("launches that wait in a stream", ask_depth, within(0.1), True, "LEAST_BOUND in src/policy/src/compute/limiter/queue_bound.rs",
             "short kernels block in the driver, or may go further ahead"),
    Question("a time slice, us", ask_slice, within(0.25), True, "LONGEST_SWITCH in src/policy/src/compute/measuring/verdict.rs",
             "turns and latencies are longer or shorter than documented"),
    Question("functions that are handed out and not exported", ask_look_up, same, False, "src/shim/src/bypass.rs",
             "GPU work is refused, and the look-up needs another way"),
]  # fmt: skip


def fact(question):
    return Fact(f"as on the simulated GPU: {question.name}", question.rests, question.otherwise)


def verdict(question, value):
    """Records the seen value, the simulated GPU's default, and the setting that makes the simulated GPU alike."""
    default, setting = DEFAULTS[question.name]
    alike = question.alike(value, default)
    return {"seen": value, "default": default, "alike": alike, "setting": "none" if alike else setting(value)}


def run(part):
    told = {}
    for number, question in enumerate(QUESTIONS):
        if time.monotonic() > part.end - 20:
            part.skip(f"{len(QUESTIONS) - number} questions", "no time left")
            break
        with part.about_facts(question.name, fact(question)):
            answer = question.ask(part)
            judged = verdict(question, answer.value)
            told[question.name] = judged
            part.figure(question.name, answer.seen)
            part.figure("simulated GPU", told)
            shown = {"seen": judged["seen"], "simulated GPU": judged["default"], "setting": judged["setting"]}
            part.fact(fact(question), part.timely(judged["alike"]) if question.timed else judged["alike"], shown)
            print(f"   {question.name}: {judged['seen'] or 'none'}; simulated GPU: {judged['default'] or 'none'}; "
                  f"setting: {judged['setting']}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(__file__, run, saturate, stamped, took, inside, taken, management, unattached, first_context, context, event_cost,
         threads, worker, holder, free_now, loading, room, memory_info, hidden)  # fmt: skip
