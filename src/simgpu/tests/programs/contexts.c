/* Contexts: each costs memory, and its end frees all memory in it. */
#include "driver.h"

static int active_primary(void) { unsigned flags; int active; OK(cuDevicePrimaryCtxGetState(0, &flags, &active)); return active; }

int main(void) {
    handle a, b, c, primary; ptr p, q; int device, active; unsigned flags; size_t cost;
    STATUS(3, cuCtxCreate_v2(&a, 0, 0));
    STATUS(1, cuInit(1)); OK(cuInit(0)); OK(cuInit(0));
    STATUS(201, cuMemAlloc_v2(&p, 1)); STATUS(201, cuCtxGetDevice(&device)); STATUS(101, cuCtxCreate_v2(&a, 0, 7));
    OK(cuCtxGetCurrent(&c)); CHECK(!c);

    OK(cuCtxCreate_v2(&a, 0, 0)); cost = held(); CHECK(cost == 300 * MIB);
    OK(cuCtxCreate_v2(&b, 0, 0)); SAME(held(), 2 * cost);
    OK(cuMemAlloc_v2(&p, 10 * MIB));
    OK(cuCtxPopCurrent_v2(&c)); CHECK(c == b); OK(cuCtxGetCurrent(&c)); CHECK(c == a);
    OK(cuMemAlloc_v2(&q, 20 * MIB)); SAME(held(), 2 * cost + 30 * MIB);
    OK(cuCtxDestroy_v2(b)); SAME(held(), cost + 20 * MIB); STATUS(201, cuCtxDestroy_v2(b));
    STATUS(1, cuMemFree_v2(p));

    /* The heap, the stacks and the buffers of a context are device memory, too. */
    OK(cuCtxSetLimit(2, 108 * MIB)); SAME(held(), cost + 120 * MIB);
    OK(cuCtxSetLimit(2, 8 * MIB)); SAME(held(), cost + 20 * MIB);

    /* A primary context lives until its last use is released. */
    OK(cuDevicePrimaryCtxRetain(&primary, 0)); OK(cuDevicePrimaryCtxRetain(&c, 0)); CHECK(c == primary);
    SAME(held(), 2 * cost + 20 * MIB); OK(cuCtxPushCurrent_v2(primary)); OK(cuMemAlloc_v2(&p, 5 * MIB));
    OK(cuDevicePrimaryCtxRelease_v2(0)); SAME(held(), 2 * cost + 25 * MIB);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active)); CHECK(active);
    OK(cuDevicePrimaryCtxRelease_v2(0)); STATUS(709, cuMemAlloc_v2(&p, 1)); OK(cuCtxPopCurrent_v2(&c));
    SAME(held(), cost + 20 * MIB); STATUS(201, cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxRetain(&c, 0)); CHECK(c == primary); OK(cuDevicePrimaryCtxRetain(&c, 0));
    OK(cuDevicePrimaryCtxReset_v2(0)); SAME(held(), cost + 20 * MIB);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active)); CHECK(!active);

    /* A reset releases no use: two uses are left. The next retain makes the context again, for all of them. */
    OK(cuDevicePrimaryCtxRetain(&c, 0)); CHECK(c == primary); SAME(held(), 2 * cost + 20 * MIB);
    OK(cuDevicePrimaryCtxRelease_v2(0)); OK(cuDevicePrimaryCtxRelease_v2(0)); SAME(held(), 2 * cost + 20 * MIB);
    OK(cuDevicePrimaryCtxReset_v2(0)); OK(cuDevicePrimaryCtxRelease_v2(0)); STATUS(201, cuDevicePrimaryCtxRelease_v2(0));
    SAME(held(), cost + 20 * MIB);

    /* The handle of a primary context can be made current while the context is inactive; it works after the next retain. */
    OK(cuCtxSetCurrent(primary)); OK(cuCtxGetCurrent(&c)); CHECK(c == primary); SAME(active_primary(), 0);
    STATUS(709, cuMemAlloc_v2(&p, 1)); STATUS(709, cuCtxSynchronize()); STATUS(709, cuCtxGetDevice(&device));
    OK(cuCtxPushCurrent_v2(primary)); STATUS(709, cuMemAlloc_v2(&p, 1)); OK(cuCtxPopCurrent_v2(&c)); CHECK(c == primary);
    OK(cuDevicePrimaryCtxRetain(&c, 0)); CHECK(c == primary); OK(cuMemAlloc_v2(&p, MIB)); SAME(held(), 2 * cost + 21 * MIB);
    OK(cuDevicePrimaryCtxReset_v2(0)); OK(cuCtxGetCurrent(&c)); CHECK(c == primary); STATUS(709, cuMemAlloc_v2(&p, 1));
    OK(cuDevicePrimaryCtxRelease_v2(0)); OK(cuCtxSetCurrent(a)); SAME(held(), cost + 20 * MIB);

    /* The handle of any other ended context cannot be made current. */
    OK(cuCtxCreate_v2(&b, 0, 0)); OK(cuCtxDestroy_v2(b)); STATUS(201, cuCtxSetCurrent(b)); STATUS(201, cuCtxPushCurrent_v2(b));
    OK(cuCtxGetCurrent(&c)); CHECK(c == a); STATUS(201, cuCtxPushCurrent_v2(NULL));

    STATUS(201, cuCtxSetCurrent((handle)0x1234)); OK(cuCtxSetCurrent(NULL)); STATUS(201, cuMemAlloc_v2(&p, 1));
    return 0;
}
