"""Functions of every part of the GPU suite: a part checks claims, and starts workers bare, under the library, or inside a quota.

A worker is a task of the same file in a process of its own, because a process cannot undo its loads and allocations.
"""

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from driver import Missing
from stats import median  # noqa: F401 (parts have it from here)
from workspace import die_with

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Quota of most tests. On a real GPU it is small enough to be available beside other work.
QUOTA = 2 * GIB
# The driver takes linear memory above 1 MiB in multiples of this. Less than this may be left over.
BLOCK = 2 * MIB
# Variables that change the behaviour of a run, and that only the suite sets.
OURS = ("GPU_", "GPUSLICE_", "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT", "LD_PRELOAD", "SIMGPU_")


AS_ASSUMED, DIFFERS, NOT_SEEN = "as assumed", "differs", "not seen"
# An assumption of the design, the line of the design that rests on it, and what would have to change.
Fact = collections.namedtuple("Fact", ["claim", "rests", "otherwise"])


class Skip(Exception):
    """Reason why a check is not possible on this machine."""


class Broken(Exception):
    """A worker gave no answer. The text has its last output."""


def words(seen):
    """Returns a seen value as text: `launch, us` and 74.5 become `launch, us: 74.5`."""
    if isinstance(seen, dict):
        return "; ".join(f"{name}: {words(value)}" for name, value in seen.items())
    if isinstance(seen, (list, tuple)):
        return ", ".join(map(words, seen))
    return str(seen)


class Part:
    """Results of a part. Each is written to a file at once, so that a time limit costs only the results that were not reached."""

    def __init__(self, file):
        self.file = file
        self.settings = json.loads(os.environ["GPU_SUITE"])
        self.simulated = self.settings["simulated"]
        # Instant at which the part must have ended.
        self.end = seconds() + self.settings["seconds"]
        self.results, self.figures, self.facts = [], {}, []
        self.scratch = tempfile.TemporaryDirectory(prefix="part-", dir=self.settings["scratch"])
        # Folder for large files.
        self.bulk = self.settings["bulk"]
        self.regions = 0

    def _add(self, result, claim, details=""):
        self.results.append({"result": result, "claim": claim, "details": str(details)})
        print(result, claim + (f": {details}" if details else ""), flush=True)
        self._save()

    def _save(self):
        # The answer is written as a whole or not at all, because the part may be ended at any instant.
        part = self.settings["answer"] + ".part"
        with open(part, "w") as file:
            json.dump({"results": self.results, "figures": self.figures, "facts": self.facts}, file)
        os.replace(part, self.settings["answer"])

    def check(self, claim, truth, *details):
        """Records whether a claim holds, and the details if it does not."""
        self._add("ok" if truth else "FAIL", claim, "" if truth else " ".join(map(str, details)))

    def skip(self, what, why):
        self._add("SKIP", what, why)

    def fact(self, fact, truth, seen):
        """Records whether an assumption of the design is true, with the seen values. None: it was not seen."""
        verdict = {True: AS_ASSUMED, False: DIFFERS, None: NOT_SEEN}[truth if truth is None else bool(truth)]
        self.facts.append({**fact._asdict(), "verdict": verdict, "seen": seen})
        result = {AS_ASSUMED: "ok", DIFFERS: "DIFFERS", NOT_SEEN: "SKIP"}[verdict]
        self._add(result, fact.claim, "" if truth else f"{verdict}: {words(seen)}"[:300])

    def timely(self, truth):
        """Returns whether something is in time. None: the simulated GPU is late, because other programs use the processors."""
        return None if self.simulated and not truth else truth

    @contextlib.contextmanager
    def about_facts(self, what, *facts):
        """Encloses the answer of one worker, like `about`. Facts without an answer count as not seen."""
        told = len(self.facts)
        why = "nothing was told"
        try:
            yield
        except Skip as reason:
            why = str(reason)
        except Exception as error:  # a fault of the suite, or of the library if it is loaded
            why = f"{type(error).__name__}: {error}"
            self._add("FAIL", what, why)
        heard = {fact["claim"] for fact in self.facts[told:]}
        for fact in facts:
            if fact.claim not in heard:
                self.fact(fact, None, why)

    def figure(self, name, value):
        self.figures[name] = value
        self._save()

    @contextlib.contextmanager
    def about(self, what):
        """Encloses the answer of one worker. Without an answer, all claims about it are one failure or one skip."""
        try:
            yield
        except Skip as reason:
            self.skip(what, reason)
        except Exception as error:  # after any error, the later claims are still worth checking
            self._add("FAIL", what, f"{type(error).__name__}: {error}")

    def environment(self, loaded=False, limit=None, region=None, **more):
        """Returns the environment of a worker. It has a region of its own unless `region` names one."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        if self.simulated:
            kept["LD_LIBRARY_PATH"] = self.settings["simgpu"]
            kept["SIMGPU_STATE"] = os.path.join(self.scratch.name, "gpu")
            kept["SIMGPU_MEMORY"] = "16GiB"
            kept.update(self.settings["unlike"])
        if loaded or limit:
            kept["LD_PRELOAD"] = self.settings["library"]
            kept["GPUSLICE_REGION"] = region or self.new_region()
        if limit:
            kept["GPU_MEM_LIMIT"] = str(limit)
        return {**kept, **more}

    def new_region(self):
        self.regions += 1
        return os.path.join(self.scratch.name, f"region-{self.regions}")

    def start(self, task, loaded=False, limit=None, region=None, env=None, **arguments):
        """Starts a worker."""
        told = {**arguments, "simulated": self.simulated, "parent": os.getpid()}
        command = [sys.executable, self.file, "--task", task, json.dumps(told)]
        return Worker(command, self.environment(loaded, limit, region, **(env or {})))

    def work(self, task, patience=60, **how):
        """Returns the last answer of a worker."""
        with self.start(task, **how) as worker:
            return worker.answer(patience)

    def needs_managed(self):
        """Ends a check that uses managed memory, unless the run allows that."""
        if not (self.simulated or self.settings.get("managed")):
            raise Skip("it uses managed memory, which ci/gpu.sh --managed allows")

    def usable(self, what):
        """Returns whether the task `usable` succeeds without the library. If it does not, later failures are not the
        library's."""
        try:
            self.work("usable", patience=120)
        except (Skip, Broken) as why:
            self.skip(what, f"not even without the library: {why}")
            return False
        return True

    def three_ways(self, task, limit=QUOTA, **how):
        """Returns the answers of one task bare, under the library, and inside a quota."""
        return self.work(task, **how), self.work(task, loaded=True, **how), self.work(task, limit=limit, **how)


class Worker:
    """A running task. It answers in lines of JSON. It continues when it gets a line."""

    def __init__(self, command, environment):
        self.errors = tempfile.TemporaryFile()
        self.child = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.errors.close()

    def answer(self, patience=60):
        """Returns the worker's next answer."""
        alarm = Alarm(patience, self.child.kill)
        for line in self.child.stdout:
            if line.startswith("ANSWER "):
                alarm.end()
                answer = json.loads(line[7:])
                if isinstance(answer, dict) and "skip" in answer:
                    raise Skip(answer["skip"])
                return answer
        status = self.child.wait()
        if alarm.end():
            raise Broken(f"no answer within {patience} s; {self.said()}")
        raise Broken(f"ended with {status}; {self.said()}")

    def end(self, patience=60):
        """Returns the worker's exit status after it has ended by itself, or None if it does not end."""
        try:
            return self.child.wait(patience)
        except subprocess.TimeoutExpired:
            return None

    def go_on(self, word=""):
        """Lets the worker continue."""
        self.child.stdin.write(f"{word}\n")
        self.child.stdin.flush()

    def kill(self):
        """Kills the worker, as in a crash."""
        with contextlib.suppress(ProcessLookupError):
            self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            with contextlib.suppress(OSError):  # closes the pipe with lines that were not read
                stream.close()

    def said(self):
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-4:]) or "nothing on standard error"


class Alarm:
    """A call of `action` after a time, unless `end` comes first."""

    def __init__(self, seconds, action):
        self.rang = False
        self.action = action
        self.before = signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _ring(self, *_):
        self.rang = True
        self.action()

    def end(self):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)
        return self.rang


def tell(answer):
    """Sends a worker's answer to the part."""
    print("ANSWER " + json.dumps(answer), flush=True)


def wait():
    """Waits until the part lets the worker continue. Returns the word of the part. If the part has ended, the worker ends,
    too."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return line.strip()


def seconds():
    return time.monotonic()


def main(file, run, *tasks):
    """Runs a part, or one of its tasks."""
    if sys.argv[1:2] != ["--task"]:
        part = Part(file)
        die_with(part.settings["runner"])
        return run(part)
    arguments = json.loads(sys.argv[3])
    die_with(arguments.pop("parent"))
    simulated = arguments.pop("simulated")
    try:
        answer = {task.__name__: task for task in tasks}[sys.argv[2]](**arguments)
    except (Skip, Missing) as reason:
        answer = {"skip": str(reason)}
    except Exception as error:
        # The simulated driver answers 801 to a function that it does not have.
        if not (simulated and getattr(error, "status", None) == 801):
            raise
        answer = {"skip": f"the simulated driver has no {error.call}"}
    tell(answer)
    return None
