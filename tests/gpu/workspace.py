"""Folders of a run. A run removes its folders at its end, and those of killed runs at its start."""

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

FOLDER, PREFIX = Path("/dev/shm"), "suite-of-gpuslice-"
PR_SET_PDEATHSIG = 1
# Caches of compilers and frameworks. They lie in the folder, so that nothing stays in the user's home.
CACHES = ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")


def bulk(folder):
    """Returns the folder for large files. A container's /dev/shm may be too small for them."""
    return Path(tempfile.gettempdir()) / folder.name


@contextlib.contextmanager
def workspace():
    """Makes a folder for regions and answers, and one for large files. A lock on a file in the first shows that its run lives."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=FOLDER))
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        try:
            bulk(folder).mkdir(mode=0o700)
            yield folder
        finally:
            remove(folder)


def remove(folder):
    for path in (bulk(folder), folder):
        shutil.rmtree(path, ignore_errors=True)


def sweep():
    """Removes the folders of runs that were killed."""
    for folder in FOLDER.glob(PREFIX + "*"):
        with contextlib.suppress(OSError), open(folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(folder)


def caches(folder):
    """Returns variables that keep caches in the folder."""
    return {name: os.path.join(folder, name.lower()) for name in CACHES}


def die_with(parent):
    """Makes this process end when its parent ends, in any way."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent was gone before
        sys.exit(1)


def end(child):
    """Ends a child and all processes in its session's first group: workers, and the processes that they started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
