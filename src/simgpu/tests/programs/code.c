/* Code: names are found, variables are device memory and hold bytes; libraries load when they are used. */
#include "driver.h"

int main(void) {
    handle m, f, l, k; ptr p; size_t n; char text[8] = "table", back[8];
    start(); size_t before = held();
    OK(cuModuleLoadData(&m, PTX)); SAME(held() - before, 1024); STATUS(500, cuModuleGetFunction(&f, m, "missing"));
    OK(cuModuleGetGlobal_v2(&p, &n, m, "table")); SAME(n, 1000); STATUS(500, cuModuleGetGlobal_v2(&p, &n, m, "quick"));
    OK(cuMemcpyHtoD_v2(p, text, 8)); OK(cuMemcpyDtoH_v2(back, p, 8)); CHECK(!strcmp(text, back)); STATUS(1, cuMemFree_v2(p));
    OK(cuModuleGetFunction(&f, m, "quick")); launch(f, NULL); OK(cuCtxSynchronize());
    OK(cuModuleUnload(m)); SAME(held() - before, 0); STATUS(400, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuLibraryLoadData(&l, PTX, NULL, NULL, 0, NULL, NULL, 0)); SAME(held() - before, 0);
    OK(cuLibraryGetKernel(&k, l, "quick")); launch(k, NULL); SAME(held() - before, 1024);
    OK(cuLibraryUnload(l)); SAME(held() - before, 0);
    STATUS(200, cuModuleLoadData(&m, "this is no code"));
    unsigned char fat[16] = {0x50, 0xed, 0x55, 0xba}; OK(cuModuleLoadData(&m, fat)); OK(cuModuleGetFunction(&f, m, "whatever"));
    return 0;
}
