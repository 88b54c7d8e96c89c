/* Graphs: a capture runs nothing. Memory nodes get memory when the graph runs, and keep it until a trim. */
#include "driver.h"

static uint64_t pool(unsigned what) { uint64_t v; OK(cuDeviceGetGraphMemAttribute(0, what, &v)); return v; }
enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };

int main(void) {
    handle s, t, e, g, x; ptr a, b; int capturing; unsigned mode; size_t n = 0; char back[4];
    start(); OK(cuStreamCreate(&s, 1)); OK(cuStreamCreate(&t, 1)); OK(cuEventCreate(&e, 2)); handle twenty = kernel("spin_20ms");
    size_t before = held();

    int64_t begin; OK(cuStreamBeginCapture_v2(s, 0)); launch(twenty, s); launch(twenty, s);
    OK(cuStreamIsCapturing(s, &capturing)); SAME(capturing, 1); OK(cuStreamQuery(t));
    OK(cuStreamEndCapture(s, &g)); OK(cuGraphGetNodes(g, NULL, &n)); SAME(n, 2); OK(cuStreamQuery(s));
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); begin = now_us(); OK(cuGraphLaunch(x, s)); OK(cuStreamSynchronize(s));
    CHECK(now_us() - begin >= 40000); OK(cuGraphExecDestroy(x)); OK(cuGraphDestroy(g));

    /* A wait for captured work invalidates the capture. So does an unsafe call in global mode, but not in relaxed mode. */
    OK(cuStreamBeginCapture_v2(s, 0)); STATUS(900, cuStreamSynchronize(s)); STATUS(901, cuStreamEndCapture(s, &g)); CHECK(!g);
    OK(cuStreamBeginCapture_v2(s, 0)); STATUS(900, cuMemAlloc_v2(&a, 1)); STATUS(901, cuStreamEndCapture(s, &g));
    OK(cuStreamBeginCapture_v2(s, 0)); mode = 2; OK(cuThreadExchangeStreamCaptureMode(&mode)); SAME(mode, 0);
    OK(cuMemAlloc_v2(&a, 1)); OK(cuMemFree_v2(a)); OK(cuThreadExchangeStreamCaptureMode(&mode)); OK(cuStreamEndCapture(s, &g)); OK(cuGraphDestroy(g));

    /* Calls for the attributes or a trim of a pool invalidate a capture. An allocation in another stream does not. */
    handle own; uint64_t told = 0; OK(cuDeviceGetDefaultMemPool(&own, 0));
    for (int i = 0; i < 4; i++) {
        OK(cuStreamBeginCapture_v2(s, 0)); OK(cuMemAllocAsync(&a, 1, t)); OK(cuMemFreeAsync(a, t));
        if (i == 1) STATUS(900, cuMemPoolGetAttribute(own, 5, &told));
        if (i == 2) STATUS(900, cuMemPoolSetAttribute(own, 4, &told));
        if (i == 3) STATUS(900, cuMemPoolTrimTo(own, 0));
        STATUS(i ? 901 : 0, cuStreamEndCapture(s, &g)); if (!i) OK(cuGraphDestroy(g));
    }
    OK(cuStreamSynchronize(t)); OK(cuMemPoolTrimTo(own, 0));

    /* The legacy stream would have to wait for a blocking stream that captures. A query of it invalidates no capture. */
    handle blocking; OK(cuStreamCreate(&blocking, 0)); OK(cuStreamBeginCapture_v2(blocking, 0)); STATUS(906, cuStreamIsCapturing(NULL, &capturing));
    OK(cuStreamEndCapture(blocking, &g)); OK(cuGraphDestroy(g)); OK(cuStreamBeginCapture_v2(blocking, 0));
    STATUS(906, cuLaunchKernel(twenty, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)); STATUS(901, cuStreamEndCapture(blocking, &g));
    OK(cuStreamBeginCapture_v2(s, 0)); launch(kernel("quick"), NULL); OK(cuStreamEndCapture(s, &g)); OK(cuGraphDestroy(g));

    /* A stream joins a capture through an event, and must join the first stream again before the end. */
    OK(cuStreamBeginCapture_v2(s, 2)); OK(cuEventRecord(e, s)); OK(cuStreamWaitEvent(t, e, 0)); launch(twenty, t);
    STATUS(903, cuStreamEndCapture(t, &g)); STATUS(904, cuStreamEndCapture(s, &g));
    OK(cuStreamBeginCapture_v2(s, 2)); OK(cuEventRecord(e, s)); OK(cuStreamWaitEvent(t, e, 0)); launch(twenty, t); launch(twenty, s);
    OK(cuEventRecord(e, t)); OK(cuStreamWaitEvent(s, e, 0)); OK(cuStreamEndCapture(s, &g)); OK(cuGraphDestroy(g));

    /* Memory of a graph: nodes behind a free use the freed memory again. Mapped memory stays until a trim. */
    OK(cuStreamBeginCapture_v2(s, 2)); OK(cuMemAllocAsync(&a, 10 * MIB, s)); OK(cuMemsetD8_v2(0, 0, 0));
    OK(cuMemFreeAsync(a, s)); STATUS(1, cuMemFreeAsync(a, s)); OK(cuMemAllocAsync(&b, 4 * MIB, s)); OK(cuMemcpyHtoDAsync_v2(b, "abc", 4, s));
    OK(cuStreamEndCapture(s, &g)); SAME(held(), before); SAME(a, b);
    OK(cuGraphInstantiateWithFlags(&x, g, 0)); SAME(held(), before); STATUS(1, cuMemcpyDtoH_v2(back, b, 4)); STATUS(801, cuGraphInstantiateWithFlags(&e, g, 0));
    OK(cuGraphLaunch(x, s)); OK(cuStreamSynchronize(s)); SAME(held() - before, 10 * MIB); SAME(pool(USED), 10 * MIB); SAME(pool(RESERVED), 10 * MIB);
    OK(cuMemcpyDtoH_v2(back, b, 4)); CHECK(!strcmp(back, "abc"));
    STATUS(1, cuGraphLaunch(x, s)); OK(cuDeviceGraphMemTrim(0)); SAME(held() - before, 4 * MIB);
    OK(cuMemFree_v2(b)); STATUS(1, cuMemFree_v2(b)); OK(cuGraphLaunch(x, s)); OK(cuMemFreeAsync(b, s)); OK(cuStreamSynchronize(s));
    OK(cuGraphExecDestroy(x)); SAME(held() - before, 10 * MIB); OK(cuDeviceGraphMemTrim(0)); SAME(held(), before);
    OK(cuGraphDestroy(g)); SAME(pool(RESERVED_HIGH), 10 * MIB); SAME(pool(USED), 0);

    /* Graphs that free their own memory share memory in one stream, but not in two streams. They keep it while they run. */
    handle gs[4], xs[4]; ptr p[4]; gate door;
    for (int i = 0; i < 4; i++) {
        OK(cuStreamBeginCapture_v2(s, 2)); OK(cuMemAllocAsync(&p[i], 8 * MIB, s)); OK(cuMemFreeAsync(p[i], s));
        OK(cuStreamEndCapture(s, &gs[i])); OK(cuGraphInstantiateWithFlags(&xs[i], gs[i], 0)); CHECK(!i || p[i] != p[i - 1]);
    }
    for (int i = 0; i < 4; i++) { OK(cuGraphLaunch(xs[i], s)); }
    SAME(pool(RESERVED), 8 * MIB); SAME(pool(USED), 8 * MIB); OK(cuStreamSynchronize(s));
    shut(&door, s); OK(cuGraphLaunch(xs[0], s)); OK(cuGraphLaunch(xs[1], t)); SAME(pool(RESERVED), 16 * MIB);
    OK(cuStreamSynchronize(t)); OK(cuGraphLaunch(xs[2], t)); OK(cuStreamSynchronize(t)); SAME(pool(RESERVED), 16 * MIB);
    OK(cuGraphExecDestroy(xs[0])); OK(cuDeviceGraphMemTrim(0)); SAME(pool(RESERVED), 8 * MIB);
    OK(cuGraphUpload(xs[3], t)); SAME(pool(RESERVED), 16 * MIB); door.open = 1; OK(cuStreamSynchronize(s));
    OK(cuDeviceGraphMemTrim(0)); SAME(held(), before);
    for (int i = 1; i < 4; i++) { OK(cuGraphExecDestroy(xs[i])); }

    /* Memory that a graph does not free outlives the graph. A launch with automatic free needs no further memory. */
    for (int i = 0; i < 4; i++) {
        OK(cuStreamBeginCapture_v2(s, 2)); OK(cuMemAllocAsync(&p[i], 8 * MIB, s)); OK(cuStreamEndCapture(s, &gs[i]));
        OK(cuGraphInstantiateWithFlags(&xs[i], gs[i], i == 3)); OK(cuGraphLaunch(xs[i], s)); SAME(pool(RESERVED), (i + 1) * 8 * MIB);
    }
    OK(cuGraphLaunch(xs[3], s)); OK(cuStreamSynchronize(s)); SAME(pool(RESERVED), 32 * MIB);
    OK(cuDeviceGraphMemTrim(0)); SAME(pool(USED), 32 * MIB);
    for (int i = 0; i < 4; i++) { OK(cuGraphExecDestroy(xs[i])); OK(cuGraphDestroy(gs[i])); }
    OK(cuDeviceGraphMemTrim(0)); SAME(held() - before, 32 * MIB);
    for (int i = 0; i < 4; i++) { OK(cuMemFree_v2(p[i])); SAME(pool(RESERVED), 32 * MIB); }
    OK(cuDeviceGraphMemTrim(0)); SAME(held(), before);
    return 0;
}
