"""Finds the devices that CUDA shows under `CUDA_VISIBLE_DEVICES`, and the devices, processes and library of NVML."""

import ctypes
import glob
import json
import os
from ctypes import byref, c_int, c_uint, c_void_p
from pathlib import Path

import elf
from bench import Fact, Skip, main
from driver import SUCCESS, Cuda, Library, Nvml
from machine import listed, own_numbers
from neighbours import mps

LISTS = Fact(
    "CUDA reads a list of visible devices as the library does: numbers, beginnings of UUIDs, the end at the first invalid entry",
    "src/policy/src/visible_devices.rs",
    "limits of several GPUs would go to the wrong devices where CUDA is not asked",
)
INSTANCES = Fact(
    "CUDA finds a MIG instance by its UUID, and by the UUID of its GPU with its own numbers",
    "src/policy/src/visible_devices.rs",
    "limits of MIG instances would go to the wrong devices where CUDA is not asked",
)
LOST = Fact(
    "while a GPU is lost, NVML finds the others by number and none by UUID",
    "src/slices/src/nvml/worker.rs",
    "the worker would lose sight of all GPUs, or could ask by UUID",
)
CLIENTS = Fact(
    "NVML's list of compute processes has clients of MPS too",
    "own in src/shim/src/driver_calls/nvml/memory.rs",
    "contexts of clients would be measured by free memory, or the library would have to read the list of MPS",
)
MOUNTED = Fact(
    "in a container, the library of NVML is a file of the host that is mounted, and no file of the image",
    "src/region/src/interval_locks: slices in private folders meet by its locks",
    "such slices would be charged for each other's turns",
)
NO_NVML = Fact(
    "packages of CUDA's compatibility bring a CUDA library, and no NVML",
    "src/region/src/interval_locks: slices of images with such packages meet by the locks of NVML's library",
    "such slices would be charged for each other's turns",
)
VARIABLE, IS_LOST = "CUDA_VISIBLE_DEVICES", 15


# ---- Lists of visible devices


def uuids():
    """Returns the UUIDs of the devices that CUDA shows."""
    driver = Library("libcuda.so.1")
    if driver.status("cuInit", 0):
        return []
    count = driver.value("cuDeviceGetCount", kind=c_int)
    return [Cuda(context=False, number=number).uuid() for number in range(count)]


def shown(lists):
    """Returns the UUIDs that CUDA shows with each value of the variable. CUDA reads it once, so each value has its own child."""
    readers = []
    for value in lists:
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                if value is not None:
                    os.environ[VARIABLE] = value
                os.write(writing, json.dumps(uuids()).encode())
            finally:
                os._exit(0)
        os.close(writing)
        readers.append(reading)
    told = []
    for reading in readers:
        with os.fdopen(reading) as answer:
            told.append(json.loads(answer.read() or "null"))
    for _ in lists:
        os.wait()
    return told


def expected(every):
    """Returns, by list, the numbers of the devices that CUDA should show of `every` UUID."""
    first, none = every[0], len(every)
    length = next(
        length for length in range(8, 41) if sum(uuid.startswith(first[:length]) for uuid in every) == 1 or length == 40
    )
    table = {
        "0": [0], " 0 ": [0], "+0": [0], "00": [0], "0gpu": [0], "0x1": [0], first: [0], f"GPU-{first[4:].upper()}": [0],
        first[:length]: [0], f"0,{none}": [0], "0,-1,0": [0], "0,,0": [0], f"{first},GPU-": [0], "": [], ",0": [], "-1,0": [],
        f"{none},0": [], "gpu,0": [], "GPU-": [], "MIG-0,0": [], f"MIG-{first}/0/0": [], "0,0": [], f"0,{first}": [], "00,0": [],
    }  # fmt: skip
    if none > 1:
        table.update({"1,0": [1, 0], "1,-1,0": [1], f"{every[1]},0": [1, 0], f"1,{first[:length]}": [1, 0], "GPU-,1": []})
    return table


def unlike(table, seen):
    """Returns the lists with which CUDA shows other devices than expected, with both."""
    return {each: [wanted, got] for (each, wanted), got in zip(table.items(), seen) if got != wanted}


def numbered(every, answers):
    """Returns answers with the numbers of devices in place of their UUIDs."""
    return [answer and [every.index(uuid) if uuid in every else uuid for uuid in answer] for answer in answers]


def ask_lists(part, env):
    if os.environ.get(VARIABLE) is not None:
        raise Skip(f"{VARIABLE} is set, and the part changes it")
    (every,) = part.work("shown", lists=[None], env=env)
    if part.work("instances", env=env):
        raise Skip("a GPU is divided into MIG instances")
    table = expected(every)
    wrong = unlike(table, numbered(every, part.work("shown", lists=list(table), env=env)))
    part.figure(f"lists of visible devices with {len(every)} GPUs: wanted, shown", wrong)
    return wrong


# ---- MIG


def instances():
    """Returns the MIG instances: UUID, UUID of the GPU, number of the GPU instance and of the compute instance."""
    nvml, told = Library("libnvidia-ml.so.1"), []
    nvml("nvmlInit_v2")
    for number in range(nvml.value("nvmlDeviceGetCount_v2", kind=c_uint)):
        gpu, most = c_void_p(), c_uint()
        nvml("nvmlDeviceGetHandleByIndex_v2", c_uint(number), byref(gpu))
        if nvml.status("nvmlDeviceGetMaxMigDeviceCount", gpu, byref(most)):
            continue
        for at in range(most.value):
            each, words = c_void_p(), [c_uint(), c_uint()]
            if nvml.status("nvmlDeviceGetMigDeviceHandleByIndex", gpu, c_uint(at), byref(each)):
                continue
            nvml("nvmlDeviceGetGpuInstanceId", each, byref(words[0]))
            nvml("nvmlDeviceGetComputeInstanceId", each, byref(words[1]))
            told.append([uuid_of(nvml, each), uuid_of(nvml, gpu), *[word.value for word in words]])
    return told


def uuid_of(nvml, device):
    text = ctypes.create_string_buffer(96)
    nvml("nvmlDeviceGetUUID", device, text, 96)
    return text.value.decode()


def names_of(instance):
    """Returns the entries that name a MIG instance."""
    own, gpu, gpu_instance, compute_instance = instance
    return [own, own[:12], f"MIG-{gpu}/{gpu_instance}/{compute_instance}"]


def ask_instances(part, env):
    """Returns, by name of a MIG instance, the UUIDs that CUDA shows with it, if they are not the instance's."""
    seen = part.work("instances", env=env)
    if not seen:
        raise Skip("no GPU is divided into MIG instances")
    names = [(name, instance[0]) for instance in seen for name in names_of(instance)]
    # A beginning that several instances share names none.
    names = [(name, own) for name, own in names if sum(other[0].startswith(name) for other in seen) <= 1]
    answers = part.work("shown", lists=[name for name, _ in names], env=env)
    # CUDA returns the 16 bytes of a UUID, and `Cuda.uuid` writes them as those of a GPU.
    wrong = {name: answer for (name, own), answer in zip(names, answers) if answer != [own.replace("MIG-", "GPU-")]}
    part.figure(f"names of {len(seen)} MIG instances: shown", wrong)
    return wrong


# ---- NVML


def lost():
    """Returns, by number of a GPU, the status of its memory information, and of the look-up by the UUID that it has."""
    nvml, told = Library("libnvidia-ml.so.1"), {}
    nvml("nvmlInit_v2")
    for number in range(nvml.value("nvmlDeviceGetCount_v2", kind=c_uint)):
        device, words, found, text = c_void_p(), (ctypes.c_ulonglong * 3)(), c_void_p(), ctypes.create_string_buffer(96)
        status = nvml.status("nvmlDeviceGetHandleByIndex_v2", c_uint(number), byref(device))
        status = status or nvml.status("nvmlDeviceGetMemoryInfo", device, words)
        named = nvml.status("nvmlDeviceGetUUID", device, text, 96)
        told[number] = [status, None if named else nvml.status("nvmlDeviceGetHandleByUUID", text.value, byref(found))]
    return told


def found_by_number_alone(seen):
    """Returns whether NVML finds the GPUs that are not lost by number alone. None: no GPU is lost, or all are."""
    others = [by_uuid for by_number, by_uuid in seen.values() if by_number != IS_LOST]
    if len(others) in (0, len(seen)):
        return None
    works = all(by_number in (SUCCESS, IS_LOST) for by_number, _ in seen.values())
    return works and all(by_uuid != SUCCESS for by_uuid in others)


def ask_lost(part):
    env = {}
    if part.simulated:
        Path(part.scratch.name, "lost").write_text("0")
        env = {**two(part), "SIMGPU_NVML_LOST": os.path.join(part.scratch.name, "lost")}
    seen = part.work("lost", env=env)
    part.figure("GPUs by number: memory, look-up by UUID", seen)
    if found_by_number_alone(seen) is None:
        raise Skip("no GPU of this machine is lost, or no other GPU is there")
    return seen


def client():
    """Returns the processes of NVML's lists, from a client of MPS with a context."""
    nvml = Nvml(Cuda().uuid())
    lists = {"compute": listed(nvml), "MPS": listed(nvml, "nvmlDeviceGetMPSComputeRunningProcesses_v3")}
    return {"own": own_numbers(), **{name: list(pids) for name, pids in lists.items()}}


def is_listed(seen):
    """Returns whether a client of MPS is in the list of compute processes. None: it is in no list by its own number."""
    inside = [name for name in ("compute", "MPS") if set(seen["own"]) & set(seen[name])]
    return "compute" in inside if inside else None


def library():
    """Returns the file of NVML's library, the kernel's list of mounts, and whether this is a container."""
    Library("libnvidia-ml.so.1")
    marks = [path for path in ("/.dockerenv", "/run/.containerenv") if os.path.exists(path)]
    mounts = Path("/proc/self/mountinfo").read_text()
    names = [*marks, *[name for name in ("KUBERNETES_SERVICE_HOST", "container") if name in os.environ]]
    return {"file": elf.path_of("libnvidia-ml.so"), "mounts": mounts, "container": names}


def mount_of(path, mounts):
    """Returns the mount point of a file: `/` for a file of a container's image."""
    points = [line.split()[4] for line in mounts.splitlines()]
    return max((point for point in points if path == point or path.startswith(point.rstrip("/") + "/")), key=len)


def compatibility(folders):
    """Returns the names of drivers' libraries in folders of CUDA's compatibility packages."""
    return {
        folder: sorted(name for name in os.listdir(folder) if name.startswith(("libcuda.", "libnvidia-ml.")))
        for folder in folders
    }


def has_no_nvml(seen):
    """Returns whether no folder has NVML. None: no folder has a CUDA library."""
    names = [name for each in seen.values() for name in each]
    return not any(name.startswith("libnvidia-ml") for name in names) if names else None


def two(part):
    """Returns variables that give the simulated GPU a second device. On a machine they change nothing."""
    state = os.path.join(part.scratch.name, "two")
    return {"SIMGPU_DEVICES": "2", "SIMGPU_STATE": state} if part.simulated else {}


def divided(part):
    state = os.path.join(part.scratch.name, "divided")
    return {"SIMGPU_MIG": "2", "SIMGPU_STATE": state} if part.simulated else {}


def run(part):
    with part.about_facts("lists of visible devices", LISTS):
        ways = [{}, two(part)] if part.simulated else [{}]
        wrong = [ask_lists(part, env) for env in ways]
        part.fact(LISTS, not any(wrong), wrong)
    with part.about_facts("names of MIG instances", INSTANCES):
        wrong = ask_instances(part, divided(part))
        part.fact(INSTANCES, not wrong, wrong)
    with part.about_facts("a lost GPU", LOST):
        seen = ask_lost(part)
        part.fact(LOST, found_by_number_alone(seen), seen)
    with part.about_facts("clients of MPS", CLIENTS):
        if not part.work("mps")["on"]:
            raise Skip("no MPS server runs, and the suite starts none")
        seen = part.work("client")
        part.figure("NVML's lists of a client of MPS", seen)
        part.fact(CLIENTS, is_listed(seen), seen)
    with part.about_facts("the file of NVML's library", MOUNTED):
        seen = part.work("library")
        if part.simulated or not seen["container"]:
            raise Skip("it needs a container of NVIDIA's runtime")
        point = mount_of(os.path.realpath(seen["file"]), seen["mounts"])
        part.fact(MOUNTED, point != "/", [seen["file"], point])
    with part.about_facts("CUDA's compatibility packages", NO_NVML):
        seen = compatibility([folder for folder in glob.glob("/usr/local/cuda*/compat") if os.path.isdir(folder)])
        part.fact(NO_NVML, has_no_nvml(seen), seen or "no compatibility package is installed")


if __name__ == "__main__":
    main(__file__, run, shown, instances, lost, mps, client, library)
