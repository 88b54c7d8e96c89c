/* A driver that does nothing, so that the cost of a call on the way to it can be measured. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t next = 1 << 20;

int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
/* The environment sets the number of devices. The first one is used. */
int cuDeviceGetCount(int *count) {
    const char *devices = getenv("NULL_DEVICES");
    return *count = devices ? atoi(devices) : 1, 0;
}
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return memset(uuid, device + 1, 16), 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)80 << 30, device < 0; }
int cuCtxGetCurrent(void **context) { return *context = &next, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }
int cuMemFree_v2(uint64_t address) { return address == 0; }

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    *address = __atomic_fetch_add(&next, (bytes + 511) & ~(size_t)511, __ATOMIC_RELAXED);
    return 0;
}

/* Streams of kernels that take 100 ns each, as far as events show. */
enum { KERNEL = 100, NOT_READY = 600 };
typedef struct { uint64_t launched, free_from; } *stream_t;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

int cuStreamCreate(stream_t *stream, unsigned flags) { return !(*stream = calloc(1, sizeof **stream)); }
int cuStreamGetCtx(stream_t stream, void **context) { return cuCtxGetCurrent(context); }
int cuStreamIsCapturing(stream_t stream, int *state) { return *state = 0; }
int cuCtxPushCurrent_v2(void *context) { return 0; }
int cuCtxPopCurrent_v2(void **context) { return cuCtxGetCurrent(context); }
int cuEventCreate(uint64_t **event, unsigned flags) { return !(*event = calloc(1, sizeof **event)); }
int cuEventQuery(uint64_t *event) { return now() < *event ? NOT_READY : 0; }
int cuEventElapsedTime(float *ms, uint64_t *from, uint64_t *to) { return *ms = (double)(int64_t)(*to - *from) / 1e6, 0; }

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, stream_t stream, void **parameters, void **extra) {
    stream->launched++;
    return 0;
}

int cuEventRecord(uint64_t *event, stream_t stream) {
    uint64_t busy_until = stream->free_from + stream->launched * KERNEL, at = now();
    stream->launched = 0;
    *event = stream->free_from = busy_until > at ? busy_until : at;
    return 0;
}

/* The programs must make no context here. */
int cuDevicePrimaryCtxRetain(void **context, int device) { abort(); }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { abort(); }
int cuCtxCreate_v4(void **context, void *parameters, unsigned flags, int device) { abort(); }

/* Finds the newest forms of two names, and no other name. */
int cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) {
    int allocates = !strcmp(name, "cuMemAlloc"), launches = !strcmp(name, "cuLaunchKernel");
    *found = allocates ? (void *)cuMemAlloc_v2 : launches ? (void *)cuLaunchKernel : NULL;
    return *found ? 0 : 500;
}
