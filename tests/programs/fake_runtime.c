// A CUDA runtime and a cuBLAS that start only if the driver reports the expected size of the device, if one is expected.
//
// FAKE_EXPECTS: the size in bytes. FAKE_REFUSES: the part that always fails, `runtime` or `cublas`.
#include "host.h"

static int starts(const char *name) {
    size_t size = 0;
    const char *expects = getenv("FAKE_EXPECTS"), *refuses = getenv("FAKE_REFUSES");
    if (refuses && !strcmp(refuses, name)) return 0;
    if (!open_driver() || cu.cuInit(0) != 0 || cu.cuDeviceTotalMem_v2(&size, 0) != 0) return 0;
    return !expects || number(expects) == size;
}

int cudaGetDeviceCount(int *count) {
    *count = 1;
    return starts("runtime") ? 0 : 103;
}

int cublasCreate_v2(void **handle) {
    *handle = handle;
    return starts("cublas") ? 0 : 1;
}
