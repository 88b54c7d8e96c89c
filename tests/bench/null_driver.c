/* A driver that does nothing, so that what a call costs on the way to it can be measured. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next = 1 << 20;

int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return memset(uuid, device + 1, 16), 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)80 << 30, device; }
int cuCtxGetCurrent(void **context) { return *context = &next, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }
int cuMemFree_v2(uint64_t address) { return address == 0; }

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    *address = __atomic_fetch_add(&next, (bytes + 511) & ~(size_t)511, __ATOMIC_RELAXED);
    return 0;
}

/* Nobody has any business making a context here. */
int cuDevicePrimaryCtxRetain(void **context, int device) { abort(); }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { abort(); }
int cuCtxCreate_v4(void **context, void *parameters, unsigned flags, int device) { abort(); }
