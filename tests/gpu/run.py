"""Runs the parts of the GPU suite, each in a process of its own with a time limit, and writes what was measured."""

import argparse
import datetime
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from page import REQUESTS, page, pictures
from workspace import bulk, caches, end, workspace

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Groups of parts, in this order, with the seconds that each part may take. Each group ends within `--budget`.
GROUPS = {
    "quick": {"facts/quick": 280},
    "facts": {
        "kernel": 30, "facts/machine": 40, "facts/contexts": 40, "lookup": 90, "facts/events": 60, "facts/slicing": 80,
        "facts/sampler": 60, "growth": 90, "facts/layout": 60, "facts/queue": 40, "facts/calls": 50, "facts/graphs": 40,
        "facts/integrity": 40, "facts/moves": 40, "facts/late": 40, "facts/order": 40, "facts/names": 60, "facts/managed": 30,
        "facts/several": 90, "facts/full": 30,
    },
    "memory": {
        "quota": 110, "sharing": 60, "with_torch": 160, "torch_memory": 160, "with_jax": 120, "with_cupy": 60,
    },
    "compute": {"shares_torch": 170, "shares": 455},
    "frameworks": {"frameworks": 450},
    "overhead": {"overhead": 100, "startup": 70, "models": 330},
    "neighbours": {"neighbours": 200, "neighbours_torch": 240},
}  # fmt: skip
PARTS = {name: most for group in GROUPS.values() for name, most in group.items()}
FORMAT = 2
RESULTS = ("ok", "FAIL", "DIFFERS", "SKIP")

FIND = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
try:
    ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit("there is no libcuda.so.1")
from driver import Cuda, Nvml, Refused
from ctypes import c_int
try:
    cuda = Cuda(context=False)
    print(cuda.name()); print(cuda.size()); print(cuda.value("cuDriverGetVersion", kind=c_int))
except Refused as refused:
    sys.exit(str(refused))
try:
    print(Nvml(cuda.uuid()).driver())
except (OSError, AttributeError, Refused):
    print("unknown")
"""


def find(environment):
    """Returns the machine's GPU, or the reason why there is none."""
    command = [sys.executable, "-c", FIND, str(HERE)]
    try:
        asked = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return None, "the driver does not answer"
    if asked.returncode:
        return None, (asked.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    name, size, cuda, driver = asked.stdout.splitlines()
    return {"name": name, "bytes": int(size), "cuda": int(cuda), "driver": driver}, None


def play(name, settings, patience):
    """Runs a part and returns its results. An early end counts as a failure."""
    answer = Path(settings["scratch"]) / "answer"
    answer.write_text("")
    told = {**settings, "answer": str(answer), "seconds": patience, "runner": os.getpid()}
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **caches(settings["bulk"]), "GPU_SUITE": json.dumps(told), "PYTHONPATH": path}
    started, trouble = time.monotonic(), None
    child = subprocess.Popen([sys.executable, str(HERE / f"{name}.py")], env=environment, start_new_session=True)
    try:
        ended = child.wait(timeout=patience)
        trouble = f"the part ended with {ended}" if ended else None
    except subprocess.TimeoutExpired:
        trouble = f"no end within {patience:.0f} s; it was stopped with all that it had started"
    finally:
        end(child)  # the child's workers are of its session
    text = answer.read_text()
    seen = json.loads(text) if text else {"results": [], "figures": {}, "facts": []}
    if trouble:
        print("FAIL", f"{name}: {trouble}", flush=True)
        seen["results"].append({"result": "FAIL", "claim": name, "details": trouble})
    return {**seen, "seconds": round(time.monotonic() - started, 1)}


def must_exist(path):
    if not path.exists():
        sys.exit(f"there is no {path}: run ci/stage.sh, or say in GPUSLICE_LIB where the library is")


def destination(gpu, options):
    """Returns the file of the measurement, in `--out`, `$OUT` or the folder of measurements. Results of the simulated GPU go to
    `build`."""
    measured = ROOT / "docs" / "measurements"
    folder = Path(options.out or os.environ.get("OUT") or (ROOT / "build" if options.simulated else measured))
    if options.simulated and folder.resolve() == measured.resolve():
        sys.exit("what the simulated GPU says does not go to docs/measurements")
    words = re.sub("[^a-z0-9]+", "-", gpu["name"].lower()).strip("-")
    if options.simulated and "simulated" not in words:
        words = f"simulated-{words}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{datetime.date.today()}-{words}.json"


def with_earlier(path, report):
    """Returns the file of this day and GPU and its parts. If it is of another driver, returns the name of a further file."""
    number, place = 1, path
    while place.exists():
        parts = parts_of(place, report)
        if parts is not None:
            return place, parts
        number += 1
        place = path.with_name(f"{path.stem}-{number}.json")
    return place, {}


def parts_of(path, report):
    """Returns the parts of an earlier run, or None if it was of another GPU, driver or format."""
    try:
        before = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    same = all(before.get(key) == report[key] for key in ("format", "gpu", "simulated", "kernel"))
    return before.get("parts", {}) if same else None


def save(path, report):
    part = path.with_suffix(".part")
    part.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    part.replace(path)


def arguments():
    parser = argparse.ArgumentParser(prog="ci/gpu.sh", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*GROUPS, *PARTS, []], help="groups or parts; all when none is named",
                        metavar="PART")  # fmt: skip
    parser.add_argument("--simulated", action="store_true", help="on the simulated GPU")
    parser.add_argument("--out", help="the folder for the file and the page (default: $OUT, or docs/measurements)")
    parser.add_argument("--budget", type=float, default=460, help="seconds that the parts of a group may take together")
    parser.add_argument("--limits", type=numbers, help="the limits that `shares` measures, as 95,5; what it measured of others stays")
    parser.add_argument("--managed", action="store_true", help="also runs the checks that use managed memory")
    parser.add_argument("--unlike", type=setting, action="append", default=[], metavar="NAME=VALUE",
                        help="a setting of the simulated GPU that is not its default: what `quick` would find of such a device")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="prints the parts and ends")
    parser.epilog = "Groups: " + ", ".join(GROUPS) + ". Parts: see --list."
    return parser.parse_args()


def numbers(text):
    return [int(word) for word in text.split(",")]


def setting(text):
    name, _, value = text.partition("=")
    if not name.startswith("SIMGPU_"):
        raise argparse.ArgumentTypeError(f"{text} is no setting of the simulated GPU")
    return name, value


def main():
    options = arguments()
    if options.list:
        print("\n".join(f"{group}: {', '.join(parts)}" for group, parts in GROUPS.items()))
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background programs ignore it
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    with workspace() as scratch:
        try:
            return measure(options, scratch)
        except KeyboardInterrupt:
            return 130


def measure(options, scratch):
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    library = Path(os.environ.get("GPUSLICE_LIB") or target / "release" / "libgpuslice.so").absolute()
    simgpu = Path(os.environ.get("GPUSLICE_SIMGPU") or target / "simgpu").absolute()
    if options.simulated:
        must_exist(simgpu / "libcuda.so.1")
    own = {"LD_LIBRARY_PATH": str(simgpu), "SIMGPU_STATE": f"{scratch}/gpu"} if options.simulated else {}
    kept = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    gpu, why = find({**kept, **own})
    if gpu is not None and gpu["name"].startswith("Simulated") and not options.simulated:
        gpu, why = None, "the driver in LD_LIBRARY_PATH is the simulated one, which needs --simulated"
    if gpu is None:
        print(f"SKIP everything that needs a GPU: {why}; elsewhere: ci/gpu.sh, on a machine with an NVIDIA GPU")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    must_exist(library)

    settings = {"library": str(library), "simgpu": str(simgpu), "simulated": options.simulated, "scratch": str(scratch),
                "bulk": str(bulk(scratch)), "limits": options.limits, "managed": options.managed,
                "unlike": dict(options.unlike)}  # fmt: skip
    report = {
        "format": FORMAT, "date": now(), "gpu": gpu, "simulated": options.simulated, "kernel": platform.release(),
        "processors": os.cpu_count(), "python": platform.python_version(), "parts": {},
        "library": hashlib.sha256(library.read_bytes()).hexdigest(),
    }  # fmt: skip
    path, report["parts"] = with_earlier(destination(gpu, options), report)
    asked = []
    try:
        for group in chosen(options.parts):
            asked += group
            play_all(group, settings, report, path, options.budget)
    finally:
        finish(report, path)
    return summarise(report, asked)


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def chosen(words):
    """Returns the parts of each requested group, and single parts as a group of their own."""
    groups = [GROUPS[word] for word in words or GROUPS if word in GROUPS]
    single = [word for word in words if word not in GROUPS]
    return [*groups, single] if single else groups


def play_all(parts, settings, report, path, budget):
    """Runs parts one after the other while there is time."""
    began = time.monotonic()
    for name in parts:
        print(f"== {name}", flush=True)
        left = budget - (time.monotonic() - began)
        # A part without time left keeps the figures of an earlier run.
        if left >= 5:
            seen = play(name, settings, left if len(parts) == 1 else min(PARTS[name], left))
            if settings["limits"]:
                seen = joined(report["parts"].get(name, {}), seen, report["library"])
        elif name in report["parts"]:
            print(f"SKIP {name}: no time left of {budget:.0f} s; what was measured earlier stays", flush=True)
            continue
        else:
            print(f"SKIP {name}: no time left of {budget:.0f} s", flush=True)
            skipped = {"result": "SKIP", "claim": name, "details": "no time left"}
            seen = {"results": [skipped], "figures": {}, "facts": [], "seconds": 0}
        report["parts"][name] = {**seen, "library": report["library"], "date": now()}
        save(path, report)


def joined(before, seen, library):
    """Returns the results of a part for some limits, joined with its earlier results for other limits and the same library."""
    if before.get("library") != library:
        return seen
    claims = {result["claim"] for result in seen["results"]}
    results = [result for result in before["results"] if result["claim"] not in claims]
    figures = {**before["figures"], **seen["figures"]}
    for name, levels in (("shares", 2), (REQUESTS, 1)):  # of workloads and limits, of limits
        figures[name] = merged(before["figures"].get(name, {}), seen["figures"].get(name, {}), levels)
    return {**seen, "results": results + seen["results"], "figures": figures}


def merged(old, new, levels):
    """Returns the entries of both, merged down to `levels` levels. A new entry replaces an old one."""
    if levels == 0:
        return new
    return {**old, **{key: merged(old.get(key, {}), value, levels - 1) for key, value in new.items()}}


def finish(report, path):
    """Writes the file, the page and its pictures from the existing results."""
    results = [result["result"] for part in report["parts"].values() for result in part["results"]]
    report["summary"] = {word: results.count(word) for word in RESULTS}
    save(path, report)
    drawn = {f"{path.stem}-{name}.svg": picture for name, picture in pictures(report).items()}
    for name, picture in drawn.items():
        path.with_name(name).write_text(picture)
    path.with_suffix(".md").write_text(page(report, list(drawn)))
    print(f"written: {path}, the page beside it and {len(drawn)} pictures")


def summarise(report, asked):
    """Counts the results of the parts of this run. A fact that differs is a finding, not a failure. The simulated GPU is built on
    these facts, so there it is a fault of the suite."""
    results = [result["result"] for name in asked for result in report["parts"][name]["results"]]
    differs = f", {results.count('DIFFERS')} facts differ" if "DIFFERS" in results else ""
    failed = results.count("FAIL") + (results.count("DIFFERS") if report["simulated"] else 0)
    print(f"{results.count('ok')} passed, {failed} failed, {results.count('SKIP')} skipped{differs}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
