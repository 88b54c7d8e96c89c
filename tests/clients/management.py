"""nvidia-ml-py: memory information of both forms and the process lists, beside a context of this process."""

import os

import pynvml
from cuda.bindings import driver as cuda
from harness import MIB, claim, main

SIZE = 256 * MIB


def hold():
    """Makes a context and an allocation in this process, so that NVML has something to report."""
    cuda.cuInit(0)
    _, device = cuda.cuDeviceGet(0)
    _, context = cuda.cuDevicePrimaryCtxRetain(device)
    cuda.cuCtxSetCurrent(context)
    status, pointer = cuda.cuMemAlloc(SIZE)
    claim("the allocation is granted", status == cuda.CUresult.CUDA_SUCCESS, status)
    return pointer


def memory(device):
    old, new = pynvml.nvmlDeviceGetMemoryInfo(device), pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
    claim("both forms tell the same size", old.total == new.total, old, new)
    return new


def processes(device):
    return {
        "compute": pynvml.nvmlDeviceGetComputeRunningProcesses(device),
        "compute v2": pynvml.nvmlDeviceGetComputeRunningProcesses_v2(device),
        "graphics": pynvml.nvmlDeviceGetGraphicsRunningProcesses(device),
    }


def status_of(call, *arguments):
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return error.value
    return 0


def use():
    print("before nvmlInit:", status_of(pynvml.nvmlDeviceGetCount))
    pynvml.nvmlInit()
    print("driver", pynvml.nvmlSystemGetDriverVersion(), "devices", pynvml.nvmlDeviceGetCount())
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    again = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(device))
    print("name", pynvml.nvmlDeviceGetName(again))
    idle = memory(device)
    print("size", idle.total, "used", idle.used, "free", idle.free)
    pointer = hold()
    print("an allocation and its context take", memory(device).used - idle.used)
    for name, entries in processes(device).items():
        print(name, [(entry.pid == os.getpid(), entry.usedGpuMemory) for entry in entries])
    cuda.cuMemFree(pointer)
    print("no such device:", status_of(pynvml.nvmlDeviceGetHandleByIndex, 99))
    pynvml.nvmlShutdown()


def obey(quota):
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    claim("the device is as large as the quota", memory(device).total == quota, memory(device))
    pointer = hold()
    info = memory(device)
    claim("what is held is used", SIZE <= info.used <= quota, info)
    claim("the rest is free", info.used + info.free <= quota, info)
    for name, entries in processes(device).items():
        mine = [entry.usedGpuMemory for entry in entries if entry.pid == os.getpid()]
        claim(f"{name}: lists no other process", len(mine) == len(entries), entries)
        claim(f"{name}: lists this process", name == "graphics" or len(mine) == 1, entries)
    claim("beyond the quota is refused", int(cuda.cuMemAlloc(quota)[0]) == 2)
    cuda.cuMemFree(pointer)
    claim("what was freed is not used", memory(device).used <= info.used - SIZE, memory(device), info)
    pynvml.nvmlShutdown()


main(use, obey)
