"""Finds the calls in which the driver takes the device memory of code that it loads late."""

import ctypes
from ctypes import c_uint, c_uint64, c_void_p

from bench import MIB, Fact, main
from driver import Cuda

LATE = Fact(
    "memory of code that is loaded late is taken at the first look-up of a function or at its first launch",
    "src/shim/src/hooks/code/module.rs measures look-ups, and launches at the next wait",
    "memory that later calls take would stay uncharged until the next measured call",
)
# The variable is large enough to show in free memory by itself. The code is 2.5 MiB: 40,000 groups of four instructions.
VARIABLE, GROUPS = 64 * MIB, 10_000
KERNEL = """
.visible .entry %s(.param .u64 out)
{
    .reg .b32 %%word, %%part;
    .reg .b64 %%out, %%large;

    ld.param.u64 %%out, [out];
    cvta.to.global.u64 %%out, %%out;
    ld.global.u32 %%word, [%%out];
%s    st.global.u32 [%%out], %%word;
    ret;
}
"""
# The variable's address is stored, so that the assembler keeps the variable.
USE = "    mov.u64 %large, variable;\n    st.global.u64 [%out+8], %large;\n"


def group(number):
    """Returns instructions with constants of their own, so that no two groups are alike."""
    return (f"    mad.lo.u32 %word, %word, {1664525 + 2 * number}, {1013904223 + number};\n"
            f"    shr.u32 %part, %word, {3 + number % 13};\n    xor.b32 %word, %word, %part;\n")  # fmt: skip


def variable():
    """Returns a module of two kernels that share a large variable."""
    kernels = "".join(KERNEL % (name, USE) for name in ("first", "second"))
    return module(f".global .align 8 .b8 variable[{VARIABLE}];\n{kernels}")


def code(groups):
    """Returns a module of two kernels of long code."""
    return module("".join(KERNEL % (name, "".join(map(group, range(2 * groups)))) for name in ("first", "second")))


def module(text):
    return f".version 7.0\n.target sm_75\n.address_size 64\n{text}\0".encode()


def steps(groups):
    """Returns, by kind of code and call, the bytes that the device loses."""
    return {
        "a library with a variable": of_library(variable()),
        "a library of long code": of_library(code(groups)),
        "a module with a variable": of_module(variable()),
    }


def of_library(text):
    def load(cuda):
        return cuda.value("cuLibraryLoadData", text, None, None, 0, None, None, 0)

    def look_up(cuda, library, name):
        return cuda.value("cuKernelGetFunction", cuda.value("cuLibraryGetKernel", library, name))

    return measured(load, look_up)


def of_module(text):
    def load(cuda):
        return cuda.value("cuModuleLoadData", text)

    def look_up(cuda, module_, name):
        return cuda.value("cuModuleGetFunction", module_, name)

    return measured(load, look_up)


def measured(load, look_up):
    cuda, told, kept = Cuda(), {}, {}
    out = c_uint64(cuda.value("cuMemAlloc_v2", MIB))
    arguments = (c_void_p * 1)(ctypes.addressof(out))
    shape = [c_uint(word) for word in (1, 1, 1, 1, 1, 1, 0)]

    def step(name, action):
        before = cuda.free()
        kept[name] = action()
        told[name] = before - cuda.free()

    def launch(name):
        cuda("cuLaunchKernel", c_void_p(kept[f"look-up of the {name}"]), *shape, None, arguments, None)

    step("load", lambda: load(cuda))
    for name in ("first", "second"):
        step(f"look-up of the {name}", lambda name=name: look_up(cuda, kept["load"], name.encode()))
        step(f"launch of the {name}", lambda name=name: launch(name))
        step(f"wait for the {name}", lambda: cuda("cuCtxSynchronize"))
        step(f"launch of the {name} again", lambda name=name: launch(name))
    step("wait", lambda: cuda("cuCtxSynchronize"))
    return told


def verdict(seen):
    """Returns whether LATE is true of one kind of code. None: the code took no memory."""
    taken = {name: max(0, bytes_) for name, bytes_ in seen.items()}
    total = sum(taken.values())
    first = {name for name in taken if name.startswith(("look-up", "launch")) and not name.endswith("again")}
    return None if total < MIB else total == sum(taken[name] for name in first)


def run(part):
    with part.about_facts("code that is loaded late", LATE):
        seen = part.work("steps", groups=10 if part.simulated else GROUPS)
        part.figure("bytes of code that is loaded late", seen)
        # A module's variables are not loaded late.
        judged = [verdict(each) for name, each in seen.items() if name.startswith("a library")]
        told = [truth for truth in judged if truth is not None]
        part.fact(LATE, all(told) if told else None, seen)


if __name__ == "__main__":
    main(__file__, run, steps)
