"""Kernels that watch the device's clock. They record when they ran, and when the device ran another context meanwhile.

A watching kernel reads the clock repeatedly until it has worked for its length. A step of more than 10 us is a hole: the
device ran another context. The kernel records holes and does not count them as work. So it is a fixed amount of work, like a
real kernel. One thread watches, because the driver gives time slices to whole contexts.
"""

import collections
import ctypes
from ctypes import byref, c_float, c_int, c_uint, c_uint64, c_void_p

from bench import Skip
from driver import Cuda, Refused

# Behind two counters lie rings of kernels (begun, ended, lost) and of holes (from, to). Their sizes are powers of two.
KERNELS, HOLES, HEAD = 1 << 16, 1 << 16, 64
SIZE = HEAD + 24 * KERNELS + 16 * HOLES
HOLE, PATIENCE = 10_000, 30_000_000_000

WATCH = """
.visible .entry %(name)s(.param .u64 ring, .param .u64 length)
{
    .reg .pred %%apart, %%torn, %%short, %%silent;
    .reg .b64 %%ring, %%length, %%begun, %%now, %%before, %%step, %%lost, %%own, %%place;

    ld.param.u64 %%ring, [ring];
    ld.param.u64 %%length, [length];
    cvta.to.global.u64 %%ring, %%ring;
    mov.u64 %%begun, %%globaltimer;
    mov.u64 %%now, %%begun;
    mov.u64 %%lost, 0;
LOOK:
    mov.u64 %%before, %%now;
    mov.u64 %%now, %%globaltimer;
    sub.u64 %%step, %%now, %%before;
    // The halves of the clock were read on both sides of a carry: the next look is right again.
    setp.gt.u64 %%torn, %%step, 1000000000;
    @%%torn bra LOOK;
    setp.lt.u64 %%short, %%step, %(hole)d;
    @%%short bra DONE;
    add.u64 %%lost, %%lost, %%step;
    atom.global.add.u64 %%place, [%%ring+8], 1;
    and.b64 %%place, %%place, %(last_hole)d;
    shl.b64 %%place, %%place, 4;
    add.u64 %%place, %%ring, %%place;
    st.global.u64 [%%place+%(holes)d], %%before;
    st.global.u64 [%%place+%(hole_ends)d], %%now;
    // A clock that goes in long steps would never let it work.
    setp.gt.u64 %%torn, %%lost, %(patience)d;
    @%%torn bra END;
DONE:
    sub.u64 %%own, %%now, %%begun;
    sub.u64 %%own, %%own, %%lost;
    setp.lt.u64 %%apart, %%own, %%length;
    @%%apart bra LOOK;
END:
    atom.global.add.u64 %%place, [%%ring], 1;
    and.b64 %%place, %%place, %(last_kernel)d;
    mul.lo.u64 %%place, %%place, 24;
    add.u64 %%place, %%ring, %%place;
    st.global.u64 [%%place+%(begins)d], %%begun;
    st.global.u64 [%%place+%(ends)d], %%now;
    st.global.u64 [%%place+%(loses)d], %%lost;
    ret;
}
"""
TICKS = """
.visible .entry ticks(.param .u64 out, .param .u64 count)
{
    .reg .pred %same, %more;
    .reg .b64 %out, %left, %last, %now;

    ld.param.u64 %out, [out];
    ld.param.u64 %left, [count];
    cvta.to.global.u64 %out, %out;
    mov.u64 %last, %globaltimer;
AGAIN:
    mov.u64 %now, %globaltimer;
    setp.eq.u64 %same, %now, %last;
    @%same bra AGAIN;
    mov.u64 %last, %now;
    st.global.u64 [%out], %now;
    add.u64 %out, %out, 8;
    sub.u64 %left, %left, 1;
    setp.ne.u64 %more, %left, 0;
    @%more bra AGAIN;
    ret;
}
.visible .entry nothing() { ret; }
"""

Ran = collections.namedtuple("Ran", ["begun", "ended", "lost"])


def text(names):
    """Returns a module with watching kernels of these names."""
    holes = HEAD + 24 * KERNELS
    rooms = {"hole": HOLE, "patience": PATIENCE, "last_kernel": KERNELS - 1, "last_hole": HOLES - 1, "holes": holes,
             "hole_ends": holes + 8, "begins": HEAD, "ends": HEAD + 8, "loses": HEAD + 16}  # fmt: skip
    entries = "".join(WATCH % {"name": name, **rooms} for name in names)
    return f".version 7.0\n.target sm_75\n.address_size 64\n{entries}{TICKS}\0".encode()


class Watcher:
    """Device 0 with watching kernels of several lengths in microseconds, their ring, and a stream."""

    def __init__(self, lengths=(1000,)):
        self.cuda = Cuda()
        self.load(lengths)

    def load(self, lengths):
        """Loads the module in the current context."""
        self.ring = self.cuda.value("cuMemAlloc_v2", SIZE)
        self.forget()
        names = {length: f"watch_spin_{length}us" for length in lengths}  # the simulated GPU reads the length there
        module = self.cuda.value("cuModuleLoadData", text(names.values()))
        self.functions = {
            name: c_void_p(self.cuda.value("cuModuleGetFunction", module, name.encode()))
            for name in [*names.values(), "ticks", "nothing"]
        }
        self.stream = self.cuda.stream()

    def launcher(self, name, *values, stream=None):
        """Returns a launch that can be called repeatedly. A refusal is an exception."""
        boxes = (c_uint64 * max(1, len(values)))(*values)
        places = (c_void_p * max(1, len(values)))(*[ctypes.addressof(boxes) + 8 * at for at in range(len(boxes))])
        shape = [c_uint(word) for word in (1, 1, 1, 1, 1, 1, 0)]
        call, function, line = self.cuda.object.cuLaunchKernel, self.functions[name], c_void_p(stream or self.stream)

        def launch():
            status = call(function, *shape, line, places, None)
            if status:
                raise Refused("cuLaunchKernel", status)

        launch.boxes = boxes
        return launch

    def watching(self, length, stream=None):
        """Returns a launch of work of this many microseconds."""
        return self.launcher(f"watch_spin_{length}us", self.ring, 1000 * length, stream=stream)

    def nothing(self, stream=None):
        return self.launcher("nothing", stream=stream)

    def wait(self):
        self.cuda("cuCtxSynchronize")

    def forget(self):
        self.cuda("cuCtxSynchronize")
        self.cuda("cuMemsetD8_v2", self.ring, c_int(0), HEAD)
        self.cuda("cuCtxSynchronize")

    def read(self, offset, words):
        there = (c_uint64 * max(1, words))()
        if words:
            self.cuda("cuMemcpyDtoH_v2", there, self.ring + offset, 8 * words)
        return list(there)

    def seen(self):
        """Returns the kernels since the last `forget`, in order, and the holes."""
        self.wait()
        ran, holes = self.read(0, 2)
        words = self.read(HEAD, 3 * min(ran, KERNELS))
        kernels = sorted(Ran(*words[at : at + 3]) for at in range(0, len(words) - 2, 3)) if ran else []
        gaps = self.read(HEAD + 24 * KERNELS, 2 * min(holes, HOLES)) if holes else []
        return kernels, sorted(zip(gaps[::2], gaps[1::2]))

    def kernels(self):
        """Returns the kernels. If none is recorded, the driver runs no code."""
        kernels = self.seen()[0]
        if not kernels:
            raise Skip("the simulated GPU runs no code, so that there are no stamps")
        return kernels

    def event(self, timing=True):
        return self.cuda.value("cuEventCreate", 0 if timing else 2)

    def record(self, event, stream=None):
        self.cuda("cuEventRecord", event, stream or self.stream)

    def between(self, first, last):
        """Returns the nanoseconds between two events."""
        milliseconds = c_float()
        self.cuda("cuEventElapsedTime", byref(milliseconds), first, last)
        return milliseconds.value * 1e6


def turns(kernels, holes):
    """Returns the intervals in which the kernels really had the device."""
    cuts, at, pieces = sorted(holes), 0, []
    for begun, ended, _ in kernels:
        while at < len(cuts) and cuts[at][1] <= begun:
            at += 1
        inner = at
        while inner < len(cuts) and cuts[inner][0] < ended:
            pieces.append([begun, cuts[inner][0]])
            begun = cuts[inner][1]
            inner += 1
        pieces.append([begun, ended])
    joined = []
    for begun, ended in pieces:
        if joined and begun - joined[-1][1] < HOLE:
            joined[-1][1] = max(joined[-1][1], ended)
        elif ended > begun:
            joined.append([begun, ended])
    return joined


def overlap(intervals, low, high):
    return sum(max(0, min(end, high) - max(begin, low)) for begin, end in intervals)
