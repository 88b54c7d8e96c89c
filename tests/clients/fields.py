"""Taichi: compiles its kernels with its own LLVM, opens the driver itself, allocates in stream order."""

import os

import numpy
from harness import MIB, claim, main, refusal

os.environ["ENABLE_TAICHI_HEADER_PRINT"] = "0"
import taichi  # noqa: E402

REFUSED = "CUDA_ERROR_OUT_OF_MEMORY"
COUNT = 1 << 16


def begin():
    taichi.init(arch=taichi.cuda, log_level=taichi.CRITICAL, offline_cache=False, verbose=False)
    claim("the GPU is used", taichi.lang.impl.current_cfg().arch == taichi.cuda)


@taichi.kernel
def scale(values: taichi.types.ndarray(), factor: taichi.f32):
    for place in values:
        values[place] *= factor


def take(size):
    return taichi.ndarray(taichi.f64, shape=(size // 8,))


def work():
    """Makes a field and an array, three launches, a copy in and a copy out."""
    table = taichi.field(taichi.f32, shape=COUNT)
    table.fill(1.0)
    values = taichi.ndarray(taichi.f32, shape=COUNT)
    values.from_numpy(numpy.arange(COUNT, dtype=numpy.float32))
    for _ in range(3):
        scale(values, 0.5)
    taichi.sync()
    return values.to_numpy().shape, table.to_numpy().shape


def use():
    begin()
    print("shapes", *work())
    held = [take(16 * MIB) for _ in range(4)]
    print("arrays", len(held))
    print("beyond the device is refused:", REFUSED in refusal(take, (1 << 34) - 8))


def obey(quota):
    begin()
    work()
    claim("beyond the quota is refused", REFUSED in refusal(take, quota + 8), refusal(take, quota + 8))
    held = []
    while not (last := refusal(take, 64 * MIB)):
        held.append(take(64 * MIB))
    claim("a full slice refuses", REFUSED in last, last)
    claim("arrays fill half of the quota or more", quota // 2 <= len(held) * 64 * MIB <= quota, len(held))
    work()


main(use, obey)
