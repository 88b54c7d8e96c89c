"""Kernels that record when they ran. They measure shares of GPU time on hardware.

Each kernel works for a number of steps. Its first thread records the device's clock before and after them in a ring in
device memory. The simulated GPU runs no code: there the kernel's name has its duration, and nothing is recorded.
"""

import bisect
import ctypes
import struct
from ctypes import byref, c_int, c_uint, c_uint64, c_void_p

from bench import median
from driver import Cuda

# Number of records of the ring, a power of two, and number of words before them.
RECORDS, HEAD = 1 << 20, 16
# Launch size of a kernel: enough blocks to be several, few enough for all to run at once on any device.
BLOCKS, THREADS = 4, 64

ENTRY = """
.visible .entry %(name)s(.param .u64 ring, .param .u64 steps)
{
    .reg .pred %%again, %%never, %%other;
    .reg .b32 %%thread, %%block;
    .reg .b64 %%ring, %%left, %%mix, %%begun, %%ended, %%place;

    mov.u64 %%begun, %%globaltimer;
    ld.param.u64 %%ring, [ring];
    ld.param.u64 %%left, [steps];
    cvta.to.global.u64 %%ring, %%ring;
    mov.u64 %%mix, %%begun;
STEP:
    mad.lo.u64 %%mix, %%mix, 6364136223846793005, 1442695040888963407;
    sub.u64 %%left, %%left, 1;
    setp.ne.u64 %%again, %%left, 0;
    @%%again bra STEP;
    // Depends on all steps, so that none is left out and the clock is read behind them.
    setp.eq.u64 %%never, %%mix, 42;
    @%%never bra OUT;
    mov.u64 %%ended, %%globaltimer;
    mov.u32 %%thread, %%tid.x;
    mov.u32 %%block, %%ctaid.x;
    or.b32 %%thread, %%thread, %%block;
    setp.ne.u32 %%other, %%thread, 0;
    @%%other bra OUT;
    atom.global.add.u64 %%place, [%%ring], 1;
    and.b64 %%place, %%place, %(mask)d;
    shl.b64 %%place, %%place, 4;
    add.u64 %%ring, %%ring, %%place;
    st.global.v2.u64 [%%ring+%(head)d], {%%begun, %%ended};
OUT:
    ret;
}
"""


def text(names):
    entries = "".join(ENTRY % {"name": name, "mask": RECORDS - 1, "head": HEAD} for name in names)
    return f".version 7.0\n.target sm_75\n.address_size 64\n{entries}\0".encode()


class Launch(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = [
        ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p), ("attributes", c_void_p),
        ("count", c_uint),
    ]  # fmt: skip


class Kernels:
    """Kernels of several lengths, in microseconds, on a device whose steps take `step` nanoseconds."""

    def __init__(self, lengths, step):
        self.cuda = Cuda()
        self.ring = self.cuda.value("cuMemAlloc_v2", HEAD + 16 * RECORDS)
        self.cuda("cuMemsetD8_v2", self.ring, c_int(0), HEAD + 16 * RECORDS)
        names = {length: f"spin_{length}us" for length in lengths}
        module = self.cuda.value("cuModuleLoadData", text(names.values()))
        self.functions = {
            length: c_void_p(self.cuda.value("cuModuleGetFunction", module, name.encode())) for length, name in names.items()
        }
        self.parameters = {length: self._parameters(max(1, round(1000 * length / step))) for length in lengths}
        self.calls = {}

    def _parameters(self, steps):
        values = (c_uint64 * 2)(self.ring, steps)
        places = (c_void_p * 2)(*[ctypes.addressof(values) + 8 * number for number in range(2)])
        places.values = values  # lives as long
        return places

    def prepared(self, length, stream, way="cuLaunchKernel"):
        """Returns a launch that can be called repeatedly and returns the status."""
        parameters, function = self.parameters[length], self.functions[length]
        call = self.cuda.object[way]
        shape = [c_uint(word) for word in (BLOCKS, 1, 1, THREADS, 1, 1, 0)]
        if way == "cuLaunchKernelEx":
            config = Launch((BLOCKS, 1, 1), (THREADS, 1, 1), 0, stream, None, 0)
            return lambda: call(byref(config), function, parameters, None)
        if way == "cuLaunchCooperativeKernel":
            return lambda: call(function, *shape, c_void_p(stream), parameters)
        return lambda: call(function, *shape, c_void_p(stream), parameters, None)

    def graph(self, stream, lengths):
        """Returns an executable graph of such kernels, one behind the other."""
        relaxed = c_uint(2)
        self.cuda("cuStreamBeginCapture_v2", stream, relaxed)
        for length in lengths:
            must(self.prepared(length, stream)())
        captured = c_void_p()
        self.cuda("cuStreamEndCapture", stream, byref(captured))
        return self.cuda.value("cuGraphInstantiateWithFlags", captured.value, 0)

    def stamps(self):
        """Returns start and end of kernels in nanoseconds of the device's clock. If there were many, only of the last ones."""
        self.cuda("cuCtxSynchronize")
        head = (c_uint64 * 1)()
        self.cuda("cuMemcpyDtoH_v2", byref(head), self.ring, 8)
        count = min(head[0], RECORDS)
        raw = ctypes.create_string_buffer(max(16 * count, 1))
        if count:
            self.cuda("cuMemcpyDtoH_v2", raw, self.ring + HEAD, 16 * count)
        return list(struct.iter_unpack("QQ", raw.raw[: 16 * count]))

    def forget(self):
        """Clears the ring."""
        self.cuda("cuCtxSynchronize")
        self.cuda("cuMemsetD8_v2", self.ring, c_int(0), HEAD)
        self.cuda("cuCtxSynchronize")


def must(status):
    if status:
        raise RuntimeError(f"a launch gives {status}")


def calibrate():
    """Returns the nanoseconds of a step at the raised clock of the device, and of the device's pause between two queued
    kernels."""
    kernels = Kernels([1000], 1)  # a million steps
    stream = kernels.cuda.stream()
    launch = kernels.prepared(1000, stream)
    for _ in range(200):  # more than a second, in which the clock rises
        must(launch())
    stamps = kernels.stamps()
    if not stamps:
        return {"step": 1.0, "spread": 0, "resolution": 0, "pause": 0}  # the simulated GPU
    lengths = [end - start for start, end in stamps[-50:]]
    different = {clock for pair in stamps for clock in pair}
    gaps = [later - sooner for sooner, later in zip(sorted(different), sorted(different)[1:])]
    step = median(lengths) / 1_000_000
    spread = (max(lengths) - min(lengths)) / median(lengths)
    return {"step": step, "spread": round(spread, 5), "resolution": min(gaps, default=0), "pause": pause(step)}


def pause(step):
    """Returns twice the median of the nanoseconds between kernels of 20 us. They run behind a long kernel, so that the host is
    ahead."""
    kernels = Kernels([20, 10_000], step)
    stream = kernels.cuda.stream()
    for length, count in ((20, 10), (10_000, 1), (20, 200)):
        launch = kernels.prepared(length, stream)
        for _ in range(count):
            must(launch())
        if length == 20 and count == 10:
            kernels.forget()
    stamps = sorted(kernels.stamps())[1:]
    return round(2 * max(0, median([after[0] - before[1] for before, after in zip(stamps, stamps[1:])])))


class Timeline:
    """The stamps of kernels as disjoint intervals in order. Kernels whose distance is at most the device's own pause between two
    queued kernels make one interval."""

    def __init__(self, stamps, pause=0):
        self.starts, self.ends, self.before = [], [], [0]
        for start, end in sorted(stamps):
            if self.ends and start <= self.ends[-1] + pause:
                self.ends[-1] = max(self.ends[-1], end)
            else:
                self._close()
                self.starts.append(start)
                self.ends.append(end)
        self._close()

    def _close(self):
        if self.ends:
            self.before.append(self.before[-1] + self.ends[-1] - self.starts[-1])

    def until(self, instant):
        """Returns the nanoseconds of work before an instant."""
        at = bisect.bisect_left(self.starts, instant)
        late = max(0, self.ends[at - 1] - instant) if at else 0
        return self.before[at] - late

    def percent(self, begin, end):
        return 100 * (self.until(end) - self.until(begin)) / (end - begin)

    def windows(self, begin, end, length=1_000_000_000, step=100_000_000):
        """Returns the percent of each sliding window."""
        return [self.percent(start, start + length) for start in range(begin, end - length + 1, step)]

    def longest_gap(self, begin, end):
        """Returns the longest time without work."""
        inside = range(bisect.bisect_left(self.ends, begin), bisect.bisect_left(self.starts, end))
        edges = [begin, *[edge for at in inside for edge in (self.starts[at], self.ends[at])], end]
        return max(later - sooner for sooner, later in zip(edges[::2], edges[1::2]))
