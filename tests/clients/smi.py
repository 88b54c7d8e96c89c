"""nvidia-smi of every driver series at hand, unmodified, with the simulated libnvidia-ml."""

import re
import subprocess
from pathlib import Path

from harness import MIB, claim, main, skip

DRIVERS = Path(__file__).resolve().parents[2] / "build" / "drivers"
QUERY = ["--query-gpu=name,memory.total,memory.used,memory.free", "--format=csv,noheader,nounits"]


def programs():
    found = sorted(DRIVERS.glob("*/nvidia-smi"))
    return found or skip("no nvidia-smi in build/drivers; to mend it: ci/drivers.sh")


def ask(program, *arguments):
    shown = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    claim(f"nvidia-smi {program.parent.name} ends well", shown.returncode == 0, shown.returncode, shown.stdout, shown.stderr)
    return shown.stdout


def use():
    for program in programs():
        print(ask(program, *QUERY).strip())
        print(ask(program, "-L").strip())


def obey(quota):
    for program in programs():
        for row in ask(program, *QUERY).splitlines():
            _, size, used, free = row.split(", ")
            claim("the device is as large as the quota", int(size) * MIB == quota, row)
            claim("used and free are within it", int(used) + int(free) <= int(size), row)
        sizes = re.findall(r"MiB / +([0-9]+)MiB", ask(program))
        claim("so says the screen", sizes == [str(quota // MIB)], sizes)


main(use, obey)
