"""cuda-bindings, nvidia-ml-py and nvidia-smi with the real drivers of every series at hand, on a machine without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

from harness import claim, main, skip

DRIVERS = Path(__file__).resolve().parents[2] / "build" / "drivers"
# A driver makes this file when root calls it. Other programs take the file for a GPU.
LEFT_BEHIND = Path("/dev/nvidiactl")
QUESTIONS = """
import pynvml
from cuda.bindings import driver as cuda

def answer(call, *arguments):
    try:
        return call(*arguments)
    except (RuntimeError, pynvml.NVMLError) as error:
        return type(error).__name__, str(error)

for call, *arguments in (
    [cuda.cuDriverGetVersion], [cuda.cuDeviceGetCount], [cuda.cuMemAlloc, 1 << 20], [cuda.cuMemGetInfo], [cuda.cuInit, 0],
    [cuda.cuInit, 1], [cuda.cuDeviceGet, 0], [cuda.cuMemAlloc, 1 << 20], [cuda.cuGetErrorName, cuda.CUresult.CUDA_ERROR_NO_DEVICE],
    [pynvml.nvmlDeviceGetCount], [pynvml.nvmlInit], [pynvml.nvmlSystemGetDriverVersion], [pynvml.nvmlShutdown],
):
    print(call.__name__, *arguments, "gives", answer(call, *arguments))
"""


def ask(series, variables):
    """Returns the output of the clients, with standard error, and their exit status."""
    variables = variables | {"LD_LIBRARY_PATH": str(series)}
    text = []
    for command in ([sys.executable, "-c", QUESTIONS], [series / "nvidia-smi"]):
        done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        text.append(f"{done.stdout}status {done.returncode}")
    return "\n".join(text)


def each(ask_one):
    found = sorted(path.parent for path in DRIVERS.glob("*/version"))
    was_there = LEFT_BEHIND.exists()
    for series in found or skip("no drivers in build/drivers; to mend it: ci/drivers.sh"):
        ask_one(series)
    if not was_there:
        LEFT_BEHIND.unlink(missing_ok=True)


def use():
    each(lambda series: print(series.name, ask(series, dict(os.environ))))


def obey(_quota):
    """Claims that a limit changes nothing if there is no GPU."""

    def compare(series):
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("GPU", "LD_PRELOAD"))}
        limited = ask(series, dict(os.environ))
        claim(f"{series.name} answers the same inside a quota", limited == ask(series, bare), limited)

    each(compare)


main(use, obey)
