# SPDX-License-Identifier: Apache-2.0
"""A monitor in Python that shows the slices, their memory and their GPU time, with libgpuslice_read.

    python3 examples/read/slices.py                     all slices that this user may read
    python3 examples/read/slices.py red /dev/shm/blue   these, by name or by the path of the region

The library is at the path GPUSLICE_READ_LIB, or else where the loader finds it. Ends with 1 if a named slice cannot be read.
"""

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

OK, ROOM, NO_LIMIT, PROCESSES = 0, 11, 2**64 - 1, 1024


class Device(ctypes.Structure):
    """The structure gpuslice_device_figures."""

    _fields_ = [("uuid", c_uint8 * 16)]
    _fields_ += [
        (name, c_uint64)
        for name in (
            "total memory_limit held held_by_dead peak refused unmet spilled burst_ns used_ns throttled_ns queued_ns "
            "copied_ns launches paid_until_ns read_at_ns"
        ).split()
    ]
    _fields_ += [
        (name, c_uint32)
        for name in "number share_permille policy priority weight oversubscribe meter factor_millionths".split()
    ]
    _fields_ += [("held_by_contexts", c_uint64)]


class Process(ctypes.Structure):
    """The structure gpuslice_process_figures."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "start pid_namespace held refused spilled used_ns throttled_ns queued_ns copied_ns launches"
        ).split()
    ]
    _fields_ += [("slot", c_uint32), ("pid", c_uint32), ("held_by_contexts", c_uint64)]


def library():
    found = ctypes.CDLL(os.environ.get("GPUSLICE_READ_LIB", "libgpuslice_read.so.1"))
    for name, result, *arguments in (
        ("error_text", c_char_p, c_int),
        ("list", c_int, c_void_p, c_size_t, POINTER(c_size_t)),
        ("open", c_int, c_char_p, POINTER(c_void_p)),
        ("close", None, c_void_p),
        ("name", c_char_p, c_void_p),
        ("device_count", c_int, c_void_p, POINTER(c_uint32)),
        ("read_device", c_int, c_void_p, c_uint32, POINTER(Device), c_size_t),
        ("process_count", c_int, c_void_p, POINTER(c_uint32)),
        ("read_processes", c_int, c_void_p, c_uint32, POINTER(Process), c_size_t, c_size_t, POINTER(c_size_t)),
    ):
        function = getattr(found, "gpuslice_" + name)
        function.restype, function.argtypes = result, arguments
    return found


gpuslice = library()


class Failure(Exception):
    """An error, with the text of the status that a function returned."""


def check(status):
    if status != OK:
        raise Failure(gpuslice.gpuslice_error_text(status).decode())


def paths():
    room, buffer = c_size_t(0), None
    while True:  # the list may grow between two calls
        status = gpuslice.gpuslice_list(buffer, room, byref(room))
        if status != ROOM:
            check(status)
            return [path for path in buffer.raw[: room.value].split(b"\0") if path]
        buffer = ctypes.create_string_buffer(room.value)


def size(amount):
    return "-" if amount == NO_LIMIT else str(amount >> 20)


def show_device(handle, number):
    device = Device()
    check(gpuslice.gpuslice_read_device(handle, number, byref(device), ctypes.sizeof(device)))
    sizes = "".join(f" {size(amount):>8}" for amount in (device.held, device.memory_limit, device.peak))
    share = f"{device.share_permille // 10}.{device.share_permille % 10}"
    print(f"  device {number:<7}{sizes} {device.refused:>7} {share:>7} {device.used_ns // 1_000_000:>9}")
    processes, count = (Process * PROCESSES)(), c_size_t()
    one = ctypes.sizeof(Process)
    check(gpuslice.gpuslice_read_processes(handle, number, processes, one, PROCESSES, byref(count)))
    for process in processes[: count.value]:
        used = process.used_ns // 1_000_000
        print(f"    pid {process.pid:<8} {size(process.held):>8} {'':>8} {'':>8} {process.refused:>7} {'':>7} {used:>9}")


def show(slice_):
    handle, devices, processes = c_void_p(), c_uint32(), c_uint32()
    check(gpuslice.gpuslice_open(slice_, byref(handle)))
    try:
        check(gpuslice.gpuslice_device_count(handle, byref(devices)))
        check(gpuslice.gpuslice_process_count(handle, byref(processes)))
        name = gpuslice.gpuslice_name(handle).decode(errors="replace")
        print(f"{name}: {devices.value} devices, {processes.value} processes")
        for number in range(devices.value):
            show_device(handle, number)
    finally:
        gpuslice.gpuslice_close(handle)


def main():
    failed = False
    print(f"{'SIZES IN MIB':<16} {'HELD':>8} {'LIMIT':>8} {'PEAK':>8} {'REFUSED':>7} {'SHARE %':>7} {'USED MS':>9}")
    named = [os.fsencode(name) for name in sys.argv[1:]]
    for slice_ in named or paths():  # a path may be another user's or no region: then this prints why, and goes on
        try:
            show(slice_)
        except Failure as failure:
            failed = bool(named)
            sys.stdout.flush()
            print(f"{os.fsdecode(slice_)}: {failure}", file=sys.stderr)
    sys.exit(failed)


main()
