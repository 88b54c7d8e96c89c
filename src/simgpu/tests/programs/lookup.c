/* cuGetProcAddress returns the exported function of each known name, also of its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "driver.h"

int main(void) {
    void *f = (void *)7; int status = 9;
    OK(cuGetProcAddress_v2("cuMemAlloc", &f, 13000, 0, &status)); CHECK(f == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") && status == 0);
    OK(cuGetProcAddress_v2("cuMemAlloc", &f, 2000, 0, NULL)); CHECK(f == dlsym(RTLD_DEFAULT, "cuMemAlloc"));
    OK(cuGetProcAddress_v2("cuLaunchKernel", &f, 13041, 2, &status)); CHECK(f == dlsym(RTLD_DEFAULT, "cuLaunchKernel_ptsz"));
    OK(cuGetProcAddress_v2("cuGetProcAddress", &f, 11030, 0, &status)); CHECK(f == dlsym(RTLD_DEFAULT, "cuGetProcAddress"));
    OK(cuGetProcAddress_v2("cuGetProcAddress", &f, 12000, 0, &status)); CHECK(f == (void *)dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"));
    OK(cuGetProcAddress_v2("cuMemAlloc_v2", &f, 13000, 0, &status)); CHECK(!f && status == 1);
    OK(cuGetProcAddress_v2("", &f, 0, 0, &status)); CHECK(!f && status == 1);
    OK(cuGetProcAddress_v2("cuGraphCreate", &f, 9000, 0, &status)); CHECK(!f && status == 2);
    f = (void *)7; status = 9; STATUS(1, cuGetProcAddress_v2("cuInit", &f, 13000, 4, &status)); CHECK(f == (void *)7 && status == 9);
    STATUS(500, cuGetProcAddress("cuNothing", &f, 13000, 0)); CHECK(f == (void *)7);
    STATUS(500, cuGetProcAddress("cuGraphCreate", &f, 9000, 0)); CHECK(f == (void *)7);
    OK(cuGetProcAddress("cuInit", &f, -1, 1)); CHECK(f == dlsym(RTLD_DEFAULT, "cuInit"));
    const char *name = "x"; STATUS(1, cuGetErrorName(31337, &name)); CHECK(!name); OK(cuGetErrorName(2, &name)); CHECK(!strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY"));
    return 0;
}
