/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program in C that uses the CUDA driver API, and the quota that it sees.
 *
 * The program knows nothing of gpuslice. It copies numbers to the device and back, fills the device until the driver says that
 * it is full, frees a part, and goes on. With a command as its argument it runs the command while the device is full.
 *
 *     cc -O2 -o quota quota.c -l:libcuda.so.1
 *
 * CUDA's header is not needed: this file declares the functions that it uses, with the names that the driver exports.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef unsigned long long CUdeviceptr;

enum { CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2 };

CUresult cuInit(unsigned flags);
CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);

enum { MIB = 1 << 20, PIECES = 8 };

static void check(CUresult status, const char *call)
{
    const char *name = NULL;
    if (status == CUDA_SUCCESS)
        return;
    cuGetErrorName(status, &name);
    fprintf(stderr, "%s: %s\n", call, name != NULL ? name : "unknown status");
    exit(1);
}

#define CHECK(call) check((call), #call)

static size_t free_mib(void)
{
    size_t free = 0, total = 0;
    CHECK(cuMemGetInfo_v2(&free, &total));
    return free / MIB;
}

static void copy(void)
{
    unsigned sent[1024], received[1024] = {0};
    CUdeviceptr address = 0;
    for (unsigned number = 0; number < 1024; number++)
        sent[number] = number;
    CHECK(cuMemAlloc_v2(&address, sizeof sent));
    CHECK(cuMemcpyHtoD_v2(address, sent, sizeof sent));
    CHECK(cuMemcpyDtoH_v2(received, address, sizeof received));
    CHECK(cuMemFree_v2(address));
    printf("1024 numbers there and back: %s\n", memcmp(sent, received, sizeof sent) == 0 ? "the same" : "different");
}

/* Allocates pieces until the driver has no memory left, and returns their number. */
static int fill(CUdeviceptr *pieces, size_t bytes)
{
    int granted = 0;
    while (granted <= PIECES) {
        CUresult status = cuMemAlloc_v2(&pieces[granted], bytes);
        if (status == CUDA_ERROR_OUT_OF_MEMORY)
            break;
        check(status, "cuMemAlloc_v2");
        granted++;
    }
    printf("%d pieces of %zu MiB granted, then CUDA_ERROR_OUT_OF_MEMORY\n", granted, bytes / MIB);
    return granted;
}

int main(int argc, char **argv)
{
    CUdevice device = 0;
    CUcontext context = NULL;
    CUdeviceptr pieces[PIECES + 1];
    size_t size = 0;

    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuDeviceTotalMem_v2(&size, device));
    printf("device 0: %zu MiB, %zu MiB free\n", size / MIB, free_mib());

    copy();
    int granted = fill(pieces, size / PIECES);
    printf("%zu MiB free\n", free_mib());
    if (argc > 1 && (fflush(stdout), system(argv[1])) != 0)
        return 1;

    CHECK(cuMemFree_v2(pieces[--granted]));
    printf("one piece freed: %zu MiB free\n", free_mib());
    CHECK(cuMemAlloc_v2(&pieces[granted++], size / PIECES));
    printf("one more piece granted: %zu MiB free\n", free_mib());

    while (granted > 0)
        CHECK(cuMemFree_v2(pieces[--granted]));
    printf("all freed: %zu MiB free\n", free_mib());
    CHECK(cuDevicePrimaryCtxRelease_v2(device));
    return 0;
}
