// Parts that all hosts share: the prototypes that they use, a way to find functions, and a way to print.
//
// No CUDA header is needed: this file declares each function that a host calls once, with the version at which cuGetProcAddress
// hands it out.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;

// `CUmemAllocationProp` of the driver API.
struct allocation {
    int kind, handles, location, id;
    void *security;
    unsigned char flags[8];
};

// `CUmemPoolProps` of the driver API.
struct pool_properties {
    int kind, handles, location, id;
    void *security;
    size_t most;
    unsigned char rest[56];
};

// `CUDA_MEM_ALLOC_NODE_PARAMS` of the driver API.
struct allocation_node {
    struct pool_properties pool;
    void *access;
    size_t accesses, bytes;
    u64 address;
};

// `CUmemLocation` of the driver API.
struct place { int kind, id; };

enum { PINNED = 1, ON_DEVICE = 1, ON_HOST = 2, POOL_THRESHOLD = 4, POOL_RESERVED = 5 };

// X(exported symbol, name known to cuGetProcAddress, its first version, flags, parameters)
#define CUDA_FUNCTIONS(X) \
    X(cuInit, "cuInit", 2000, 0, (unsigned)) \
    X(cuDriverGetVersion, "cuDriverGetVersion", 2020, 0, (int *)) \
    X(cuDeviceGetCount, "cuDeviceGetCount", 2000, 0, (int *)) \
    X(cuDeviceGet, "cuDeviceGet", 2000, 0, (int *, int)) \
    X(cuDeviceTotalMem, "cuDeviceTotalMem", 2000, 0, (unsigned *, int)) \
    X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, 0, (size_t *, int)) \
    X(cuMemGetInfo, "cuMemGetInfo", 2000, 0, (unsigned *, unsigned *)) \
    X(cuMemGetInfo_v2, "cuMemGetInfo", 3020, 0, (size_t *, size_t *)) \
    X(cuCtxCreate_v2, "cuCtxCreate", 3020, 0, (void **, unsigned, int)) \
    X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0, (void *)) \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", 4000, 0, (void **)) \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, 0, (void *)) \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, 0, (void **, int)) \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, 0, (int)) \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, 0, (int)) \
    X(cuMemAlloc, "cuMemAlloc", 2000, 0, (unsigned *, unsigned)) \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, 0, (u64 *, size_t)) \
    X(cuMemAllocPitch, "cuMemAllocPitch", 2000, 0, (unsigned *, unsigned *, unsigned, unsigned, unsigned)) \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, 0, (u64 *, size_t *, size_t, size_t, unsigned)) \
    X(cuMemAllocManaged, "cuMemAllocManaged", 6000, 0, (u64 *, size_t, unsigned)) \
    X(cuMemFree, "cuMemFree", 2000, 0, (unsigned)) \
    X(cuMemFree_v2, "cuMemFree", 3020, 0, (u64)) \
    X(cuMemCreate, "cuMemCreate", 10020, 0, (u64 *, size_t, const struct allocation *, u64)) \
    X(cuMemRelease, "cuMemRelease", 10020, 0, (u64)) \
    X(cuMemAddressReserve, "cuMemAddressReserve", 10020, 0, (u64 *, size_t, size_t, u64, u64)) \
    X(cuMemAddressFree, "cuMemAddressFree", 10020, 0, (u64, size_t)) \
    X(cuMemMap, "cuMemMap", 10020, 0, (u64, size_t, size_t, u64, u64)) \
    X(cuMemUnmap, "cuMemUnmap", 10020, 0, (u64, size_t)) \
    X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, 0, (u64 *, void *)) \
    X(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", 10020, 0, \
      (size_t *, const struct allocation *, int)) \
    X(cuMemAllocAsync, "cuMemAllocAsync", 11020, 0, (u64 *, size_t, void *)) \
    X(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, 2, (u64 *, size_t, void *)) \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, 0, (u64 *, size_t, void *, void *)) \
    X(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, 2, (u64 *, size_t, void *, void *)) \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, 0, (u64, void *)) \
    X(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, 2, (u64, void *)) \
    X(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020, 0, (void **, int)) \
    X(cuMemPoolCreate, "cuMemPoolCreate", 11020, 0, (void **, const struct pool_properties *)) \
    X(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, 0, (void *)) \
    X(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, 0, (void *, size_t)) \
    X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020, 0, (void *, int, void *)) \
    X(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 11020, 0, (void *, int, void *)) \
    X(cuStreamCreate, "cuStreamCreate", 2000, 0, (void **, unsigned)) \
    X(cuStreamSynchronize, "cuStreamSynchronize", 2000, 0, (void *)) \
    X(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, 2, (void *)) \
    X(cuGetErrorString, "cuGetErrorString", 6000, 0, (int, const char **)) \
    X(cuGetExportTable, "cuGetExportTable", 3000, 0, (const void **, const void *)) \
    X(cuGetProcAddress, "cuGetProcAddress", 11030, 0, (const char *, void **, int, u64)) \
    X(cuGetProcAddress_v2, "cuGetProcAddress", 12000, 0, (const char *, void **, int, u64, int *))

#define MEMBER(symbol, base, version, flags, parameters) int(*symbol) parameters;
static struct {
    CUDA_FUNCTIONS(MEMBER)
} cu __attribute__((unused));

// Returns the monotonic clock, in nanoseconds.
__attribute__((unused)) static u64 now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

// Finds one function: by its exported name, or by the name and version that cuGetProcAddress knows.
typedef void *(*finder)(const char *symbol, const char *base, int version, u64 flags);

__attribute__((unused)) static void find_all(finder find) {
#define FIND(symbol, base, version, flags, parameters) cu.symbol = find(#symbol, base, version, flags);
    CUDA_FUNCTIONS(FIND)
}

__attribute__((unused)) static void *driver;

__attribute__((unused)) static void *find_in_driver(const char *symbol, const char *base, int version, u64 flags) {
    (void)base, (void)version, (void)flags;
    return dlsym(driver, symbol);
}

// Opens the driver as most programs do: by dlopen with its usual name, and by dlsym for each function.
__attribute__((unused)) static int open_driver(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 0;
    find_all(find_in_driver);
    return cu.cuInit != NULL;
}

// Opens the driver, starts it, and makes the primary context of device 0 current.
__attribute__((unused)) static int start(void) {
    void *context = NULL;
    if (!open_driver() || cu.cuInit(0) != 0) return 0;
    return cu.cuDevicePrimaryCtxRetain(&context, 0) == 0 && cu.cuCtxSetCurrent(context) == 0;
}

// Returns the file name of the object in which an address lies.
__attribute__((unused)) static const char *server_of(const void *address) {
    Dl_info info;
    if (!address) return "nobody";
    if (!dladdr(address, &info) || !info.dli_fname) return "unknown";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

// Prints one line, written at once, because several processes may share the output.
__attribute__((unused, format(printf, 1, 2))) static void say(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    if ((size_t)length > sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    if (write(1, line, length) != length) _exit(9);
}

__attribute__((unused)) static u64 number(const char *text) {
    return strtoull(text, NULL, 0);
}

// Returns the number of the system call in which a thread of this process is. It is -1 outside of one, and -2 if the kernel does
// not tell. A thread that waits for its share is in SYS_futex, and one that the driver delays in SYS_clock_nanosleep.
__attribute__((unused)) static long system_call_of(int thread) {
    char path[64];
    long number = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    FILE *file = fopen(path, "r");
    if (!file) return -2;
    if (fscanf(file, "%ld", &number) != 1) number = -1;
    fclose(file);
    return number;
}
