"""tinygrad: opens the driver by absolute path, writes PTX itself, allocates through a caching allocator."""

from harness import MIB, claim, main
from tinygrad import Device, Tensor, dtypes
from tinygrad.device import Buffer

REFUSED = "CUDA Error 2,"


def work():
    """Runs three kernels, a copy in and a copy out. The sums are not compared, because the simulated GPU computes nothing."""
    left = Tensor(list(range(1024)), device="CUDA").reshape(32, 32).realize()
    product = (left @ left.T + 1).realize()
    return len(product.sum(axis=0).tolist()), left.flatten().tolist() == list(range(1024))


def take(size):
    return Buffer("CUDA", size, dtypes.uint8).allocate()


def refusal(size):
    """Returns tinygrad's error. It raises MemoryError after it emptied its cache and tried again; the cause has the driver's
    status."""
    try:
        take(size)
    except MemoryError as error:
        return str(error.__cause__)
    return ""


def use():
    print("device", Device["CUDA"].arch, "devices", Device["CUDA"].count())
    print("rows", *work())
    held = [take(64 * MIB) for _ in range(4)]
    print("took", sum(buffer.nbytes for buffer in held))
    print("beyond the device:", refusal(1 << 46))


def obey(quota):
    work()
    claim("beyond the quota is refused", refusal(quota + 1).startswith(REFUSED), refusal(quota + 1))
    held = []
    while not (last := refusal(32 * MIB)):
        held.append(take(32 * MIB))
    claim("a full slice refuses", last.startswith(REFUSED), last)
    claim("buffers fill the quota", quota // 2 < len(held) * 32 * MIB <= quota, len(held))
    held.clear()
    claim("what was freed can be had again", refusal(quota // 2) == "")
    work()


main(use, obey)
