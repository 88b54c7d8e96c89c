"""IREE: compiles a program ahead of time, runs it through its own runtime, allocates through pools if it can."""

import iree.compiler
import iree.runtime
import numpy
from harness import MIB, claim, main

REFUSED = "CUDA_ERROR_OUT_OF_MEMORY"
COUNT = 1024
PROGRAM = """
func.func @scale(%values: tensor<1024xf32>) -> tensor<1024xf32> {
  %factor = arith.constant dense<2.0> : tensor<1024xf32>
  %product = arith.mulf %values, %factor : tensor<1024xf32>
  %total = arith.addf %product, %factor : tensor<1024xf32>
  return %total : tensor<1024xf32>
}
"""


def begin():
    config = iree.runtime.Config("cuda")
    return config, config.device


def work(config):
    """Makes three calls of a compiled program, and a copy in and out."""
    image = iree.compiler.compile_str(PROGRAM, target_backends=["cuda"], extra_args=["--iree-cuda-target=sm_80"])
    context = iree.runtime.SystemContext(config=config)
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, image))
    numbers = numpy.arange(COUNT, dtype=numpy.float32)
    for _ in range(3):
        result = context.modules.module.scale(numbers)
    sent = iree.runtime.asdevicearray(config.device, numbers)
    return result.to_host().shape, bool((sent.to_host() == numbers).all())


def take(device, size):
    kind, usage = iree.runtime.MemoryType.DEVICE_LOCAL, iree.runtime.BufferUsage.DEFAULT
    return device.allocator.allocate_buffer(memory_type=kind, allowed_usage=usage, allocation_size=size)


def refusal(device, size):
    try:
        take(device, size)
    except RuntimeError as error:
        return str(error)
    return ""


def use():
    config, device = begin()
    print("devices", [found["name"] for found in iree.runtime.get_driver("cuda").query_available_devices()])
    print("shape, copied back the same:", *work(config))
    print("beyond the device is refused:", REFUSED in refusal(device, 1 << 46))


def obey(quota):
    config, device = begin()
    work(config)
    claim("beyond the quota is refused", REFUSED in refusal(device, quota + 1), refusal(device, quota + 1))
    held = []
    while not (last := refusal(device, 64 * MIB)):
        held.append(take(device, 64 * MIB))
    claim("a full slice refuses", REFUSED in last, last)
    claim("buffers fill half of the quota or more", quota // 2 <= len(held) * 64 * MIB <= quota, len(held))
    held.clear()
    work(config)


main(use, obey)
