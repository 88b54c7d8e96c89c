/* Two devices, each with its own memory in any current context. They have 1 GiB and 2 GiB, and are shown in reverse. */
#include "driver.h"

int main(void) {
    int n; handle a, b, s, t, e; ptr p, q; uint64_t h; unsigned all; int64_t begin; char back[8];
    memory_props props = {.kind = 1, .where = {1, 1}};
    OK(cuInit(0)); OK(cuDeviceGetCount(&n)); SAME(n, 2); OK(cuDeviceTotalMem(&all, 0)); SAME(all, 2048u * MIB);
    OK(cuCtxCreate_v2(&a, 0, 0)); OK(cuCtxCreate_v2(&b, 0, 1)); SAME(held(), 300 * MIB);
    /* The location names the device. The current context does not matter. */
    OK(cuCtxSetCurrent(a)); OK(cuMemCreate(&h, 100 * MIB, &props, 0)); SAME(held(), 300 * MIB); OK(cuMemAlloc_v2(&p, 10)); SAME(held(), 300 * MIB + 10);
    OK(cuCtxSetCurrent(b)); SAME(held(), 400 * MIB); OK(cuMemAlloc_v2(&q, 10));
    /* A free refunds the device that has the memory. */
    OK(cuMemFree_v2(p)); SAME(held(), 400 * MIB + 10); OK(cuCtxSetCurrent(a)); SAME(held(), 300 * MIB); STATUS(2, cuMemAlloc_v2(&p, 1800 * MIB));
    OK(cuMemAlloc_v2(&p, 10)); OK(cuMemcpyHtoD_v2(p, "peer", 5)); OK(cuMemcpyDtoD_v2(q, p, 5)); OK(cuMemcpyDtoH_v2(back, q, 5)); CHECK(!strcmp(back, "peer"));
    /* A stream of one device waits for an event of the other. */
    OK(cuStreamCreate(&s, 1)); OK(cuEventCreate(&e, 2)); handle twenty = kernel("spin_20ms"); OK(cuCtxSetCurrent(b)); OK(cuStreamCreate(&t, 1));
    begin = now_us(); launch(twenty, s); OK(cuEventRecord(e, s)); OK(cuStreamWaitEvent(t, e, 0)); OK(cuStreamSynchronize(t)); CHECK(now_us() - begin >= 20000);
    OK(cuMemRelease(h)); OK(cuCtxDestroy_v2(b)); OK(cuCtxDestroy_v2(a));
    return 0;
}
