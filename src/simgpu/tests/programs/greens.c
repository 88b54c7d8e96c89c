/* Green contexts: each has a part of the multiprocessors and a little memory. All else is in the primary context. */
#include "driver.h"

typedef struct { unsigned kind, padding[23], processors, smallest, alignment, rest[9]; } resource;
int cuDeviceGetDevResource(int, resource *, unsigned), cuCtxGetDevResource(handle, resource *, unsigned);
int cuGreenCtxGetDevResource(handle, resource *, unsigned), cuDevResourceGenerateDesc(handle *, resource *, unsigned);
int cuDevSmResourceSplitByCount(resource *, unsigned *, const resource *, resource *, unsigned, unsigned);
int cuGreenCtxCreate(handle *, handle, int, unsigned), cuGreenCtxDestroy(handle), cuCtxFromGreenCtx(handle *, handle);
int cuGreenCtxStreamCreate(handle *, handle, unsigned, int);

int main(void) {
    resource all, parts[4], rest, own; unsigned count = 4, flags; handle descriptor, green, other, view, primary, stream, c; ptr p;
    int active; size_t cost = 300 * MIB, little = 4 * MIB;
    OK(cuInit(0));
    STATUS(914, cuDeviceGetDevResource(0, &all, 7)); STATUS(101, cuDeviceGetDevResource(3, &all, 1));
    OK(cuDeviceGetDevResource(0, &all, 1)); SAME(all.processors, 132); SAME(all.alignment, 8);
    OK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 10)); SAME(count, 8); count = 4;
    OK(cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 10)); SAME(count, 4);
    SAME(parts[3].processors, 16); SAME(rest.processors, 132 - 64);
    STATUS(1, cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 200));
    OK(cuDevResourceGenerateDesc(&descriptor, parts, 2)); STATUS(1, cuGreenCtxCreate(&green, (handle)1, 0, 1));

    OK(cuGreenCtxCreate(&green, descriptor, 0, 1)); OK(cuDevicePrimaryCtxGetState(0, &flags, &active)); CHECK(active);
    OK(cuCtxGetCurrent(&c)); CHECK(!c); STATUS(201, cuCtxSetCurrent(green));
    OK(cuCtxFromGreenCtx(&view, green)); OK(cuCtxSetCurrent(view)); OK(cuCtxGetCurrent(&c)); CHECK(c == view);
    SAME(held(), cost + little);
    OK(cuGreenCtxGetDevResource(green, &own, 1)); SAME(own.processors, 32);
    OK(cuCtxGetDevResource(NULL, &own, 1)); SAME(own.processors, 32);
    OK(cuGreenCtxCreate(&other, descriptor, 0, 1)); SAME(held(), cost + 2 * little); OK(cuGreenCtxDestroy(other));
    STATUS(201, cuGreenCtxDestroy(other)); STATUS(1, cuGreenCtxStreamCreate(&stream, green, 0, 0));
    OK(cuGreenCtxStreamCreate(&stream, green, 1, 0)); launch(kernel("quick"), stream); OK(cuStreamSynchronize(stream));

    /* Memory that was allocated in a green context lives in the primary context. */
    OK(cuMemAlloc_v2(&p, 10 * MIB)); OK(cuDevicePrimaryCtxRetain(&primary, 0)); CHECK(primary != view);
    size_t full = held(); OK(cuGreenCtxDestroy(green)); STATUS(709, cuMemFree_v2(p));
    OK(cuCtxSetCurrent(primary)); OK(cuMemFree_v2(p)); SAME(held(), full - little - 10 * MIB);
    OK(cuCtxGetDevResource(NULL, &own, 1)); SAME(own.processors, 132);
    OK(cuDevicePrimaryCtxRelease_v2(0)); OK(cuDevicePrimaryCtxGetState(0, &flags, &active)); CHECK(!active);

    /* A reset ends green contexts, too, and their uses of the primary context. */
    OK(cuGreenCtxCreate(&green, descriptor, 0, 1)); OK(cuDevicePrimaryCtxReset_v2(0)); STATUS(201, cuGreenCtxDestroy(green));
    STATUS(201, cuDevicePrimaryCtxRelease_v2(0));
    return 0;
}
