"""Tests that the system has the features that the library needs. Sandboxes with a kernel of their own lack some."""

import ctypes
import fcntl
import mmap
import os
import struct
import tempfile

from bench import Fact, main

RESTS = (
    "map_page in src/shim/src/process.rs, src/region/src/file/locks.rs, src/region/src/slots/identity.rs",
    "with a limit GPU work is refused on this system",
)
WIPE_ON_FORK, DONT_FORK = 18, 10
F_OFD_GETLK, F_OFD_SETLK = 36, 37


def page_that_a_child_finds_empty():
    page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page.madvise(WIPE_ON_FORK)
    page[0] = 1
    child = os.fork()
    if child == 0:
        os._exit(page[0])
    return page[0] == 1 and os.waitpid(child, 0)[1] == 0


def lock_that_ends_with_its_mapping(folder):
    """Tests an open-file-description lock on one byte, which a mapping keeps after the descriptor is closed."""
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 128, 1, 0)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.truncate(4096)

        def locked():
            answer = fcntl.fcntl(file.fileno(), F_OFD_GETLK, request)
            return struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK

        holder = os.open(file.name, os.O_RDWR)
        fcntl.fcntl(holder, F_OFD_SETLK, request)
        page = mmap.mmap(holder, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
        page.madvise(DONT_FORK)
        os.close(holder)  # mmap has a descriptor of its own; both end below
        while_mapped = locked()
        page.close()
        return while_mapped and not locked()


def naming_of_threads():
    """Tests that the kernel has the start times and namespaces by which the library distinguishes the owners of slots."""
    with open("/proc/self/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19]) >= 0 and os.stat("/proc/self/ns/pid").st_ino > 0


def run(part):
    libc = ctypes.CDLL(None)
    part.figure("libc", libc.gnu_get_libc_version and ctypes.c_char_p(_text(libc)).value.decode())
    for claim, truth in (
        ("a forked child finds a marked page empty (MADV_WIPEONFORK)", page_that_a_child_finds_empty),
        ("locks belong to openings in /dev/shm (F_OFD_SETLK)", lambda: lock_that_ends_with_its_mapping("/dev/shm")),
        ("locks belong to openings in the folder for temporary files", lambda: lock_that_ends_with_its_mapping(None)),
        ("a process has a start time and a namespace of process numbers", naming_of_threads),
    ):
        with part.about(claim):
            part.fact(Fact(claim, *RESTS), truth(), "tried")


def _text(libc):
    libc.gnu_get_libc_version.restype = ctypes.c_void_p
    return libc.gnu_get_libc_version()


if __name__ == "__main__":
    main(__file__, run)
