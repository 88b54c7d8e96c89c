# SPDX-License-Identifier: Apache-2.0
"""What does a slice hold and use? Reads the region of a slice as a monitor in Python would.

    python3 read.py /dev/shm/gpuslice-...

The offsets are those of include/gpuslice.h, version 4. A memory view of 8 or 4 bytes reads a number with one load.
"""

import fcntl
import mmap
import struct
import sys

MAGIC, VERSION, SIZE = b"gpuslice", 4, 11808768
MOST_DEVICES, MOST_SLOTS = 64, 1024
DEVICES, DEVICE, MEMORY_LIMIT, SHARE = 4096, 128, 24, 32
SLOTS, SLOT = 12288, 128
HELD, REFUSED = 143360, 667648
SHARED, SHARES, MOST_SHARES = 44, 929792, 4096
TIMES, TIME, PROCESS_TIMES, PROCESS_TIME, USED = 1060864, 167936, 33664, 128, 48
TAKEN, NO_LIMIT = 1, 2**64 - 1
F_OFD_GETLK = 36
MIB = 1 << 20


def lives(file, slot):
    """A process lives for as long as there is a lock on its byte."""
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, SLOTS + slot * SLOT, 1, 0)
    answer = struct.unpack("hhqqi4x", fcntl.fcntl(file, F_OFD_GETLK, whole))
    return answer[0] != fcntl.F_UNLCK


def inherited(words, halves, device):
    """Memory whose charge a process took over from another stands beside the words of the processes."""
    shares = (SHARES // 8 + index * 4 for index in range(min(halves[SHARED // 4], MOST_SHARES)))
    counted = [at for at in shares if words[at] & 0xFF in (4, 6) and words[at] >> 8 & 0xFF == device]
    return sum(words[at + 2] for at in counted)


def show(file, region):
    words, halves = memoryview(region).cast("Q"), memoryview(region).cast("I")
    if region[:8] != MAGIC or halves[2] != VERSION or halves[3] != 1 or words[2] != SIZE:
        sys.exit(f"{sys.argv[1]}: not a region of version {VERSION}")
    claimed, devices = min(halves[8], MOST_SLOTS), min(halves[9], MOST_DEVICES)
    members = [slot for slot in range(claimed) if halves[(SLOTS + slot * SLOT) // 4] == TAKEN and lives(file, slot)]
    for device in range(devices):
        limit = words[(DEVICES + device * DEVICE + MEMORY_LIMIT) // 8]
        row = HELD // 8 + device * MOST_SLOTS
        held = sum(words[row + slot % 64 * 16 + slot // 64] & ((1 << 48) - 1) for slot in members) + inherited(words, halves, device)
        refused = sum(halves[REFUSED // 4 + slot * MOST_DEVICES + device] for slot in members)
        quota = "no quota" if limit == NO_LIMIT else f"quota {limit // MIB} MiB"
        share = halves[(DEVICES + device * DEVICE + SHARE) // 4]
        times = (TIMES + device * TIME + PROCESS_TIMES + USED) // 8
        used = sum(words[times + slot * PROCESS_TIME // 8] for slot in range(claimed))  # those who ended included
        print(
            f"device {device}: {quota}, held {held // MIB} MiB, processes {len(members)}, refusals {refused}, "
            f"share {share // 10}.{share % 10} %, used {used // 1_000_000} ms"
        )


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} REGION")
    # For writing, because the kernel asks for that where a lock for writing is asked about; nothing is written.
    with open(sys.argv[1], "r+b", buffering=0) as file:
        if file.seek(0, 2) != SIZE:
            sys.exit(f"{sys.argv[1]}: not a region of version {VERSION}")
        show(file, mmap.mmap(file.fileno(), SIZE, access=mmap.ACCESS_READ))


main()
