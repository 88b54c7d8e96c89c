"""nvitop: its one-shot screen."""

import re
import subprocess
import sys

from harness import MIB, claim, main

SIZES = re.compile(r"\| +([0-9.]+)([KMG]?i?B) / ([0-9.]+)([KMG]iB) \|")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def screen():
    """Returns the cells `used / size` of the devices' rows. The rest of the screen shows the hour and the host."""
    command = [sys.executable, "-m", "nvitop", "--once", "--ascii"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    claim("nvitop ends well", shown.returncode == 0, shown.stdout, shown.stderr)
    return SIZES.findall(shown.stdout)


def use():
    print("cells", screen())


def obey(quota):
    cells = screen()
    claim("there is a device", len(cells) > 0)
    for used, used_unit, size, size_unit in cells:
        shown = float(size) * UNITS[size_unit]
        claim("the device is as large as the quota", abs(shown - quota) <= 11 * MIB, used, used_unit, size, size_unit)


main(use, obey)
