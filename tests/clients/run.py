"""Runs every client on the simulated GPU in three ways: bare, under the library without a limit, and inside a quota."""

import argparse
import difflib
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from harness import SKIPPED

HERE = Path(__file__).resolve().parent
QUOTA = 2 << 30  # at least twice the bytes of a context
# Part of the line with which the library says that the quota is reached.
REACHED = " is refused: the slice holds "
# Scripts beside this one. ci/clients.sh installs the packages that they import.
CLIENTS = ["bindings", "kernels", "tensors", "management", "monitor", "smi", "absent"]
# Further scripts. ci/frameworks.sh installs the packages that they import.
FRAMEWORKS = ["graphs", "arrays", "fields", "runtimes"]


def environment(simgpu, scratch, **more):
    """Returns the caller's environment without variables that would change a run."""
    foreign = ("GPU", "CUDA", "NVIDIA", "NVML", "SIMGPU", "LD_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own = {
        "LD_LIBRARY_PATH": str(simgpu),
        "SIMGPU_STATE": str(scratch / "simgpu"),
        "GPUSLICE_REGION": str(scratch / "region"),
        "HOME": str(scratch),
        "XDG_CACHE_HOME": str(scratch),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TERM": "dumb",
        "DEV": "CUDA:PTX",
    }
    return kept | own | more


class Runner:
    def __init__(self, simgpu, library, patience):
        self.simgpu, self.library, self.patience = simgpu, library, patience
        self.count = {"ok": 0, "FAIL": 0, "SKIP": 0}

    def say(self, verdict, text, details=""):
        self.count[verdict] += 1
        print(verdict, text, flush=True)
        if details:
            print(textwrap.indent(details.strip(), "    "), flush=True)

    def once(self, text, script, *arguments, **more):
        """Runs a client with a GPU of its own and prints the result. Returns its output, or None if there is nothing to
        compare."""
        with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
            variables = environment(self.simgpu, Path(scratch), **more)
            command = [sys.executable, str(HERE / f"{script}.py"), *arguments]
            try:
                done = subprocess.run(
                    command, env=variables, cwd=scratch, capture_output=True, text=True, timeout=self.patience, check=False
                )
            except subprocess.TimeoutExpired:
                return self.say("FAIL", f"{text}: no end within {self.patience} s")
        if done.returncode == SKIPPED:
            return self.say("SKIP", f"{text}: {done.stdout.strip().splitlines()[-1]}")
        # A process that reaches its quota says so once a minute.
        said = [line for line in done.stderr.splitlines() if "GPU_MEM_LIMIT" not in more or REACHED not in line]
        if done.returncode or said:
            return self.say("FAIL", f"{text}: status {done.returncode}", done.stdout + done.stderr)
        return done.stdout

    def client(self, script):
        plain = self.once(f"{script} runs bare", script)
        if plain is not None:
            self.say("ok", f"{script} runs bare")
        same, obeys = f"{script} is the same under the library", f"{script} obeys a quota"
        preload = {"LD_PRELOAD": str(self.library)}
        loaded = self.once(same, script, **preload)
        if loaded is not None and plain is not None:
            changes = "\n".join(difflib.unified_diff(plain.splitlines(), loaded.splitlines(), "bare", "loaded", lineterm=""))
            self.say("FAIL" if changes else "ok", same, changes)
        if self.once(obeys, script, str(QUOTA), GPU_MEM_LIMIT=str(QUOTA), **preload) is not None:
            self.say("ok", obeys)


def main():
    root = HERE.parent.parent
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", choices=[*CLIENTS, *FRAMEWORKS, []], help="which to run; those of ci/clients.sh when none is named")
    parser.add_argument("--simgpu", type=Path, default=target / "simgpu", help="folder of the simulated driver")
    parser.add_argument("--library", type=Path, default=target / "release" / "libgpuslice.so", help="the preload library")
    parser.add_argument("--patience", type=float, default=120, help="seconds that one run may take")
    options = parser.parse_args()
    for needed in (options.simgpu / "libcuda.so.1", options.library):
        if not needed.exists():
            sys.exit(f"there is no {needed}: run ci/stage.sh")
    runner = Runner(options.simgpu.absolute(), options.library.absolute(), options.patience)
    for script in options.clients or CLIENTS:
        runner.client(script)
    print(f"{runner.count['ok']} passed, {runner.count['FAIL']} failed, {runner.count['SKIP']} skipped")
    return 1 if runner.count["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
