"""What does a run leave behind? One folder, that it removes itself, or that the next run removes for one that was killed."""

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

FOLDER, PREFIX = Path("/dev/shm"), "gpuslice-suite-"
PR_SET_PDEATHSIG = 1
# Where compilers and frameworks keep what they made: in the folder, so that nothing stays in the user's home.
CACHES = ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")


@contextlib.contextmanager
def workspace():
    """A folder for regions, answers and caches; a lock on a file in it says that its run lives."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=FOLDER))
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def sweep():
    """Removes the folders of runs that were killed."""
    for folder in FOLDER.glob(PREFIX + "*"):
        with contextlib.suppress(OSError), open(folder / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def caches(folder):
    """Variables that keep caches in the folder."""
    return {**{name: os.path.join(folder, "cache", name.lower()) for name in CACHES}, "PYTHONDONTWRITEBYTECODE": "1"}


def die_with(parent):
    """This process ends when its parent does, whichever way that was."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before
        sys.exit(1)


def end(child):
    """Ends a child and everything else in its session's first group: workers, and what those started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
