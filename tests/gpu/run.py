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
import tempfile
import time
from pathlib import Path

from page import page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Groups of parts, in this order, with the seconds that each part may take. Each group ends within `--budget`.
GROUPS = {
    "memory": {
        "kernel": 30, "quota": 90, "sharing": 60, "growth": 90, "lookup": 90, "overhead": 120, "startup": 90,
        "with_torch": 240, "with_jax": 150, "with_cupy": 90,
    },
    "compute": {"shares_torch": 170, "shares": 440},
}  # fmt: skip
PARTS = {name: most for group in GROUPS.values() for name, most in group.items()}

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
    """The machine's GPU, or why there is none."""
    command = [sys.executable, "-c", FIND, str(HERE)]
    asked = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if asked.returncode:
        return None, (asked.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    name, size, cuda, driver = asked.stdout.splitlines()
    return {"name": name, "bytes": int(size), "cuda": int(cuda), "driver": driver}, None


def play(name, settings, patience):
    """Runs a part; its results, with what it left out as failures."""
    with tempfile.NamedTemporaryFile(prefix="gpuslice-part-") as answer:
        told = {**settings, "answer": answer.name, "seconds": patience}
        environment = {**os.environ, "GPU_SUITE": json.dumps(told)}
        started = time.monotonic()
        child = subprocess.Popen([sys.executable, str(HERE / f"{name}.py")], env=environment, start_new_session=True)
        try:
            ended = child.wait(timeout=patience)
            trouble = f"the part ended with {ended}" if ended else None
        except subprocess.TimeoutExpired:
            trouble = f"no end within {patience:.0f} s"
            os.killpg(child.pid, signal.SIGKILL)  # its workers are of its session
            child.wait()
        text = Path(answer.name).read_text()
    seen = json.loads(text) if text else {"results": [], "figures": {}}
    if trouble:
        print("FAIL", f"{name}: {trouble}", flush=True)
        seen["results"].append({"result": "FAIL", "claim": name, "details": trouble})
    return {**seen, "seconds": round(time.monotonic() - started, 1)}


def must_exist(path):
    if not path.exists():
        sys.exit(f"there is no {path}: run ci/stage.sh")


def destination(gpu, simulated):
    """Where the measurement goes: `$OUT`, or beside the others; what the simulated GPU says is no measurement."""
    folder = os.environ.get("OUT") or (ROOT / "build" if simulated else ROOT / "docs" / "measurements")
    words = re.sub("[^a-z0-9]+", "-", gpu["name"].lower()).strip("-")
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / f"{datetime.date.today()}-{words}.json"


def save(path, report):
    part = path.with_suffix(".part")
    part.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    part.replace(path)


def main():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*GROUPS, *PARTS, []], help="groups or parts; all when none is named")
    parser.add_argument("--simulated", action="store_true", help="on the simulated GPU")
    parser.add_argument("--budget", type=float, default=460, help="seconds that the parts of a group may take together")
    options = parser.parse_args()
    library = Path(os.environ.get("GPUSLICE_LIB") or target / "release" / "libgpuslice.so").absolute()
    simgpu = Path(os.environ.get("GPUSLICE_SIMGPU") or target / "simgpu").absolute()
    if options.simulated:
        must_exist(simgpu / "libcuda.so.1")
    with tempfile.TemporaryDirectory(prefix="gpuslice-find-") as scratch:
        own = {"LD_LIBRARY_PATH": str(simgpu), "SIMGPU_STATE": f"{scratch}/gpu"} if options.simulated else {}
        kept = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        gpu, why = find({**kept, **own})
    if gpu is None:
        print(f"SKIP everything that needs a GPU: {why}; to mend it: run ci/gpu.sh on a machine with an NVIDIA GPU")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    must_exist(library)

    settings = {"library": str(library), "simgpu": str(simgpu), "simulated": options.simulated}
    report = {
        "format": 1, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "gpu": gpu,
        "simulated": options.simulated, "kernel": platform.release(), "processors": os.cpu_count(),
        "python": platform.python_version(), "library": hashlib.sha256(library.read_bytes()).hexdigest(), "parts": {},
    }  # fmt: skip
    path = destination(gpu, options.simulated)
    report["parts"] = measured_before(path, report)
    for group in chosen(options.parts):
        play_all(group, settings, report, path, options.budget)
    return summarise(report, path)


def chosen(words):
    """The parts of each group that are asked for, and single parts as a group of their own."""
    groups = [GROUPS[word] for word in words or GROUPS if word in GROUPS]
    single = [word for word in words if word not in GROUPS]
    return [*groups, single] if single else groups


def measured_before(path, report):
    """Parts that were measured today of the same library on the same GPU."""
    try:
        before = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    same = all(before.get(key) == report[key] for key in ("format", "library", "gpu", "simulated"))
    return before.get("parts", {}) if same else {}


def play_all(parts, settings, report, path, budget):
    """Runs parts one after the other, as long as there is time."""
    began = time.monotonic()
    for name in parts:
        print(f"== {name}", flush=True)
        left = budget - (time.monotonic() - began)
        if left < 5:
            print(f"SKIP {name}: no time left of {budget:.0f} s", flush=True)
            skipped = {"result": "SKIP", "claim": name, "details": "no time left"}
            report["parts"][name] = {"results": [skipped], "figures": {}, "seconds": 0}
        else:
            report["parts"][name] = play(name, settings, min(PARTS[name], left))
        save(path, report)


def summarise(report, path):
    results = [result["result"] for part in report["parts"].values() for result in part["results"]]
    report["summary"] = {word: results.count(word) for word in ("ok", "FAIL", "SKIP")}
    save(path, report)
    path.with_suffix(".md").write_text(page(report))
    print(f"written: {path} and the page beside it")
    print(f"{results.count('ok')} passed, {results.count('FAIL')} failed, {results.count('SKIP')} skipped")
    return 1 if "FAIL" in results else 0


if __name__ == "__main__":
    sys.exit(main())
