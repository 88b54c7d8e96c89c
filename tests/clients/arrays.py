"""Dr.Jit: traces array programs, writes PTX itself, opens the driver itself, keeps a cache of freed memory."""

import drjit
import numpy
from drjit.cuda import Float
from harness import MIB, claim, main, refusal

REFUSED = "out of memory"
COUNT = 1 << 16


def work():
    """Makes a copy in, two kernels and a copy out."""
    sent = Float(numpy.arange(COUNT, dtype=numpy.float32))
    for made in (drjit.sin(sent) * 2, drjit.sqrt(sent) + 1):
        drjit.eval(made)
    drjit.sync_thread()
    return len(made), bool((sent.numpy() == numpy.arange(COUNT)).all())


def take(size):
    """Allocates memory that a kernel fills, because its content is not known before."""
    made = drjit.opaque(Float, 1.0, shape=size // 4)
    drjit.sync_thread()
    return made


def use():
    drjit.set_log_level(drjit.LogLevel.Disable)
    print("length, copied back the same:", *work())
    held = [take(16 * MIB) for _ in range(4)]
    print("arrays", len(held))
    print("beyond the device is refused:", REFUSED in refusal(take, (1 << 34) - 16))


def obey(quota):
    drjit.set_log_level(drjit.LogLevel.Disable)
    work()
    claim("beyond the quota is refused", REFUSED in refusal(take, 2 * quota), refusal(take, 2 * quota))
    held = []
    while not (last := refusal(take, 64 * MIB)):
        held.append(take(64 * MIB))
    claim("a full slice refuses", REFUSED in last, last)
    claim("arrays fill half of the quota or more", quota // 2 <= len(held) * 64 * MIB <= quota, len(held))
    held.clear()
    work()


main(use, obey)
