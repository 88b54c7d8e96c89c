/* The part of the driver API that these programs use, and macros that check it. It is declared here without NVIDIA's headers, so
   that the programs build on machines without them. */
#ifndef SIMGPU_TEST_DRIVER_H
#define SIMGPU_TEST_DRIVER_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t ptr;
typedef void *handle;
typedef struct { unsigned kind; int id; } location;
typedef struct { unsigned kind, handle_types; location where; void *security; unsigned char flags[8]; } memory_props;
typedef struct { unsigned kind, handle_types; location where; void *security; size_t max; unsigned char rest[56]; } pool_props;
typedef struct { location where; unsigned flags; } access_desc;
typedef struct { size_t width, height, depth; unsigned format, channels, flags; } array_desc;
typedef void (*host_fn)(void *);

int cuInit(unsigned); int cuDriverGetVersion(int *); int cuDeviceGetCount(int *); int cuDeviceGet(int *, int);
int cuGetProcAddress(const char *, void **, int, uint64_t); int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cuGetErrorName(unsigned, const char **);
int cuCtxCreate_v2(handle *, unsigned, int); int cuCtxDestroy_v2(handle); int cuCtxGetCurrent(handle *);
int cuCtxSetCurrent(handle); int cuCtxPushCurrent_v2(handle); int cuCtxPopCurrent_v2(handle *);
int cuCtxSynchronize(void); int cuCtxSetLimit(unsigned, size_t); int cuCtxGetDevice(int *);
int cuDevicePrimaryCtxRetain(handle *, int); int cuDevicePrimaryCtxRelease_v2(int); int cuDevicePrimaryCtxReset_v2(int);
int cuDevicePrimaryCtxGetState(int, unsigned *, int *);
int cuMemGetInfo(unsigned *, unsigned *); int cuMemGetInfo_v2(size_t *, size_t *); int cuDeviceTotalMem(unsigned *, int);
int cuMemAlloc(unsigned *, unsigned); int cuMemAlloc_v2(ptr *, size_t); int cuMemFree(unsigned); int cuMemFree_v2(ptr);
int cuMemAllocPitch_v2(ptr *, size_t *, size_t, size_t, unsigned); int cuMemAllocManaged(ptr *, size_t, unsigned);
int cuMemHostAlloc(void **, size_t, unsigned); int cuMemFreeHost(void *);
int cuMemGetAddressRange_v2(ptr *, size_t *, ptr); int cuPointerGetAttribute(void *, unsigned, ptr);
int cuMemcpyHtoD_v2(ptr, const void *, size_t); int cuMemcpyDtoH_v2(void *, ptr, size_t); int cuMemcpyDtoD_v2(ptr, ptr, size_t);
int cuMemcpy(ptr, ptr, size_t); int cuMemsetD8_v2(ptr, unsigned char, size_t); int cuMemsetD32_v2(ptr, unsigned, size_t);
int cuMemcpyHtoDAsync_v2(ptr, const void *, size_t, handle);
int cuMemCreate(uint64_t *, size_t, const memory_props *, uint64_t); int cuMemRelease(uint64_t);
int cuMemAddressReserve(ptr *, size_t, size_t, ptr, uint64_t); int cuMemAddressFree(ptr, size_t);
int cuMemMap(ptr, size_t, size_t, uint64_t, uint64_t); int cuMemUnmap(ptr, size_t);
int cuMemSetAccess(ptr, size_t, const access_desc *, size_t); int cuMemRetainAllocationHandle(uint64_t *, void *);
int cuMemExportToShareableHandle(void *, uint64_t, unsigned, uint64_t);
int cuMemImportFromShareableHandle(uint64_t *, void *, unsigned);
int cuIpcGetMemHandle(void *, ptr); int cuIpcCloseMemHandle(ptr);
int cuMemAllocAsync(ptr *, size_t, handle); int cuMemAllocFromPoolAsync(ptr *, size_t, handle, handle);
int cuMemFreeAsync(ptr, handle); int cuDeviceGetDefaultMemPool(handle *, int); int cuMemPoolCreate(handle *, const pool_props *);
int cuMemPoolDestroy(handle); int cuMemPoolTrimTo(handle, size_t); int cuMemPoolGetAttribute(handle, unsigned, void *);
int cuMemPoolSetAttribute(handle, unsigned, void *);
int cuArray3DCreate_v2(handle *, const array_desc *); int cuArrayDestroy(handle);
int cuMipmappedArrayCreate(handle *, const array_desc *, unsigned); int cuMipmappedArrayDestroy(handle);
int cuMipmappedArrayGetLevel(handle *, handle, unsigned);
int cuMemcpyHtoA_v2(handle, size_t, const void *, size_t); int cuMemcpyAtoH_v2(void *, handle, size_t, size_t);
int cuModuleLoadData(handle *, const void *); int cuModuleUnload(handle); int cuModuleGetFunction(handle *, handle, const char *);
int cuModuleGetGlobal_v2(ptr *, size_t *, handle, const char *);
int cuLibraryLoadData(handle *, const void *, void *, void **, unsigned, void *, void **, unsigned);
int cuLibraryGetKernel(handle *, handle, const char *); int cuLibraryUnload(handle);
int cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);
int cuStreamCreate(handle *, unsigned); int cuStreamDestroy_v2(handle); int cuStreamSynchronize(handle); int cuStreamQuery(handle);
int cuStreamWaitEvent(handle, handle, unsigned); int cuLaunchHostFunc(handle, host_fn, void *);
int cuEventCreate(handle *, unsigned); int cuEventRecord(handle, handle); int cuEventSynchronize(handle); int cuEventQuery(handle);
int cuEventElapsedTime(float *, handle, handle);
int cuStreamBeginCapture_v2(handle, unsigned); int cuStreamEndCapture(handle, handle *); int cuStreamIsCapturing(handle, int *);
int cuThreadExchangeStreamCaptureMode(unsigned *);
int cuGraphInstantiateWithFlags(handle *, handle, uint64_t); int cuGraphLaunch(handle, handle); int cuGraphUpload(handle, handle);
int cuGraphExecDestroy(handle); int cuGraphDestroy(handle); int cuGraphGetNodes(handle, handle *, size_t *);
int cuDeviceGraphMemTrim(int); int cuDeviceGetGraphMemAttribute(int, unsigned, void *);

#define MIB ((size_t)1 << 20)

/* Ends the program unless the call returns the status `want`. */
#define STATUS(want, call) do { int got_ = (call); if (got_ != (want)) { \
    fprintf(stderr, "%s:%d: %s returned %d, not %d\n", __FILE__, __LINE__, #call, got_, (int)(want)); exit(1); } } while (0)
#define OK(call) STATUS(0, call)
#define CHECK(fact) do { if (!(fact)) { fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #fact); exit(1); } } while (0)
#define SAME(a, b) do { long long a_ = (long long)(a), b_ = (long long)(b); if (a_ != b_) { \
    fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #a, a_, b_); exit(1); } } while (0)

/* Returns the bytes that all processes hold of the current device. */
static inline size_t held(void) { size_t left, all; OK(cuMemGetInfo_v2(&left, &all)); return all - left; }

static inline int64_t now_us(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

/* Starts the driver, and makes a current context. */
static inline handle start(void) { handle c; OK(cuInit(0)); OK(cuCtxCreate_v2(&c, 0, 0)); return c; }

static const char PTX[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 table[1000];\n"
    ".visible .entry spin_5ms() { ret; }\n.visible .entry spin_20ms() { ret; }\n.visible .entry quick() { ret; }\n";

/* Holds a stream until it is opened. Work behind it does not run before, however slow the machine is. */
typedef struct { volatile int open; } gate;
static inline void pass_(void *data) { while (!((gate *)data)->open) usleep(100); }
static inline void shut(gate *g, handle stream) { g->open = 0; OK(cuLaunchHostFunc(stream, pass_, g)); }

static inline handle kernel(const char *name) {
    static handle module; handle f; if (!module) OK(cuModuleLoadData(&module, PTX));
    OK(cuModuleGetFunction(&f, module, name)); return f;
}
static inline void launch(handle f, handle stream) { OK(cuLaunchKernel(f, 264, 1, 1, 1024, 1, 1, 0, stream, NULL, NULL)); }
#endif
