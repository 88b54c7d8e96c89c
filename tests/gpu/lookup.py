"""Tests that dlsym and cuGetProcAddress agree for every function of this driver, and that the library changes no answer."""

import ctypes
import re
from ctypes import byref, c_int, c_void_p

import elf
from bench import Fact, main

# Versions around each change of cuGetProcAddress itself, CUDA 11 to 13, an odd one, and one that no driver has.
VERSIONS = [3020, 7000, 10000, 11030, 12000, 12050, 12080, 13000, 13041, 99990]
FLAGS = [0, 1, 2]
IDENTICAL = Fact(
    "cuGetProcAddress gives exported functions only, at the addresses that dlsym gives",
    "Directory in src/shim/src/driver_calls/directory.rs",
    "addresses that are nobody's export would need rows of their own, or calls through them go round the library",
)
KNOWN = Fact(
    "every function that this driver exports is a row of the table",
    "src/driver/src/symbols/",
    "the new functions need rows",
)
# The simulated driver has a function that the library does not know, to try how the library treats it.
UNHEARD_OF = "cuLaunchUnheardOf"
STRANGE = ["", "cuNoSuchFunction", "cudaMalloc", "malloc", "cuMemAlloc_v2"]


def base(name):
    """Returns a name without the suffix of its variant."""
    return re.sub(r"(_v[0-9]+)?(_ptsz|_ptds)?$", "", name)


def ask():
    """Returns the exported name for each question, or `?` for an address of no exported function."""
    driver = ctypes.CDLL("libcuda.so.1")
    exported = sorted(name for name in elf.functions(elf.path_of("libcuda.so")) if re.match("cu[A-Z]", name))
    symbols = {}
    for name in exported:
        symbols.setdefault(ctypes.cast(driver[name], c_void_p).value, []).append(name)
    answers = {}
    for name in [*STRANGE, *sorted({base(name) for name in exported})]:
        for version in VERSIONS:
            for flags in FLAGS:
                found, how = c_void_p(), c_int(-1)
                code = driver.cuGetProcAddress_v2(name.encode(), byref(found), version, ctypes.c_uint64(flags), byref(how))
                symbol = symbols.get(found.value, ["?"]) if found.value else []
                answers[f"{name} {version} {flags}"] = [code, how.value, symbol]
    return {"exported": exported, "answers": answers}


def places():
    """Returns the object of each exported function, as dlsym finds it."""
    driver = ctypes.CDLL("libcuda.so.1")
    exported = sorted(name for name in elf.functions(elf.path_of("libcuda.so")) if re.match("cu[A-Z]", name))
    ranges = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            words = line.split(maxsplit=5)
            if len(words) == 6 and "x" in words[1]:
                begin, _, end = words[0].partition("-")
                ranges.append((int(begin, 16), int(end, 16), words[5].strip()))
    where = {}
    for name in exported:
        address = ctypes.cast(driver[name], c_void_p).value
        where[name] = next((path.rsplit("/", 1)[-1] for begin, end, path in ranges if begin <= address < end), "?")
    return where


def run(part):
    with part.about("look-up"):
        bare, loaded, limited = part.three_ways("ask")
        part.figure("exported functions", len(bare["exported"]))
        lost = {question for question, (_, _, symbol) in bare["answers"].items() if symbol == ["?"]}
        part.fact(IDENTICAL, not lost, sorted(lost)[:10])
        reached = {name for _, _, symbol in bare["answers"].values() for name in symbol}
        part.figure("exported and never given", sorted(set(bare["exported"]) - reached))
        for how, seen in (("loaded", loaded), ("inside a quota", limited)):
            changed = {
                question: [answer, seen["answers"].get(question)]
                for question, answer in bare["answers"].items()
                if seen["answers"].get(question) != answer
            }
            part.figure(f"changed answers, {how}", dict(list(changed.items())[:20]))
            part.check(f"every answer is the same, {how}", not changed, len(changed), list(changed.items())[:3])
    with part.about("our entries"):
        where = part.work("places", loaded=True)
        foreign = sorted(name for name, file in where.items() if not file.startswith("libgpuslice"))
        if part.simulated:
            foreign.remove(UNHEARD_OF)
        part.figure("functions of this driver that the library does not know", foreign)
        part.fact(KNOWN, not foreign, foreign[:20])


if __name__ == "__main__":
    main(__file__, run, ask, places)
