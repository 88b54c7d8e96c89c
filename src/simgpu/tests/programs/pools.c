/* Stream-ordered memory: the device is charged for the reserved bytes of a pool, not for the bytes of its allocations. */
#include "driver.h"

static uint64_t get(handle pool, unsigned what) { uint64_t v; OK(cuMemPoolGetAttribute(pool, what, &v)); return v; }
enum { THRESHOLD = 4, RESERVED, RESERVED_HIGH, USED, USED_HIGH };

int main(void) {
    handle pool, own, s, t; ptr a, b, c; uint64_t all = ~0ull, zero = 0; gate g;
    start(); OK(cuStreamCreate(&s, 0)); OK(cuStreamCreate(&t, 0));
    size_t before = held();
    OK(cuDeviceGetDefaultMemPool(&pool, 0)); SAME(get(pool, RESERVED), 0);
    OK(cuMemAllocAsync(&a, 1 * MIB, s)); SAME(held() - before, 32 * MIB); SAME(get(pool, USED), 1 * MIB);
    OK(cuMemAllocAsync(&b, 3 * MIB, s)); SAME(held() - before, 32 * MIB);

    /* An allocation after a free takes no new memory. With threshold 0 the next synchronisation gives the memory back. */
    OK(cuMemFreeAsync(a, s)); OK(cuMemAllocAsync(&a, 1 * MIB, s)); SAME(held() - before, 32 * MIB);
    OK(cuMemFreeAsync(a, s)); OK(cuMemFreeAsync(b, s)); SAME(held() - before, 32 * MIB);
    OK(cuStreamSynchronize(s)); SAME(held() - before, 0); SAME(get(pool, RESERVED_HIGH), 32 * MIB);

    /* Memory up to the threshold stays until a trim. */
    OK(cuMemPoolSetAttribute(pool, THRESHOLD, &all));
    OK(cuMemAllocAsync(&a, 100 * MIB, s)); OK(cuMemFreeAsync(a, s)); OK(cuCtxSynchronize());
    SAME(held() - before, 128 * MIB); SAME(get(pool, USED), 0);
    OK(cuMemPoolTrimTo(pool, 0)); SAME(held() - before, 0); OK(cuMemPoolSetAttribute(pool, THRESHOLD, &zero));

    /* A free takes effect in the order of its stream: another stream cannot get the block before that. */
    OK(cuMemAllocAsync(&a, 32 * MIB, s)); shut(&g, s); OK(cuMemFreeAsync(a, s)); SAME(get(pool, USED), 32 * MIB);
    OK(cuMemAllocAsync(&b, 32 * MIB, t)); CHECK(a != b); SAME(held() - before, 64 * MIB);
    OK(cuMemAllocAsync(&c, 32 * MIB, s)); CHECK(a == c);
    g.open = 1; OK(cuMemFreeAsync(b, t)); OK(cuMemFree_v2(c)); OK(cuCtxSynchronize()); SAME(held() - before, 0); SAME(get(pool, USED), 0);

    /* A destroyed pool keeps its living allocations. A pool of host memory takes no device memory. */
    pool_props props = {.kind = 1, .where = {1, 0}};
    OK(cuMemPoolCreate(&own, &props)); OK(cuMemAllocFromPoolAsync(&a, 5, own, s)); SAME(held() - before, 32 * MIB);
    OK(cuMemPoolDestroy(own)); SAME(held() - before, 32 * MIB); STATUS(1, cuMemPoolTrimTo(own, 0));
    OK(cuMemFreeAsync(a, s)); OK(cuStreamSynchronize(s)); SAME(held() - before, 0);
    props.where.kind = 2; OK(cuMemPoolCreate(&own, &props)); OK(cuMemAllocFromPoolAsync(&a, 100 * MIB, own, s));
    SAME(held() - before, 0); OK(cuMemFreeAsync(a, s)); OK(cuStreamSynchronize(s)); OK(cuMemPoolDestroy(own));
    STATUS(1, cuMemPoolDestroy(pool));

    a = 77; STATUS(2, cuMemAllocAsync(&a, (size_t)17 << 30, s)); SAME(a, 77); SAME(held() - before, 0);
    return 0;
}
