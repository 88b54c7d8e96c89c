/* Code is loaded to the device at its first use, or at once (first argument: EAGER), in whole granules. */
#include "driver.h"

int cuLibraryGetModule(handle *, handle), cuModuleEnumerateFunctions(handle *, unsigned, handle), cuFuncIsLoaded(int *, handle);
int cuFuncLoad(handle), cuKernelGetFunction(handle *, handle);

int main(int count, char **words) {
    int eager = count > 1 && !strcmp(words[1], "EAGER"), loaded;
    setenv("CUDA_MODULE_LOADING", eager ? "EAGER" : "LAZY", 1);
    handle a = start(), b, m, f, l, k;
    size_t before = held(), table = 2 * MIB, code = 4 * MIB, late = eager ? 0 : code, early = code - late;

    OK(cuModuleLoadData(&m, PTX)); SAME(held() - before, table + early);
    OK(cuModuleEnumerateFunctions(&f, 1, m)); OK(cuFuncIsLoaded(&loaded, f)); SAME(loaded, eager); SAME(held() - before, table + early);
    OK(cuFuncLoad(f)); SAME(held() - before, table + code); OK(cuFuncIsLoaded(&loaded, f)); SAME(loaded, 1);
    OK(cuModuleUnload(m)); SAME(held() - before, 0);
    OK(cuModuleLoadData(&m, PTX)); OK(cuModuleGetFunction(&f, m, "quick")); SAME(held() - before, table + code);
    OK(cuModuleUnload(m)); SAME(held() - before, 0);

    /* A library is loaded into every context at once, or into each context at its first use there. */
    OK(cuLibraryLoadData(&l, PTX, NULL, NULL, 0, NULL, NULL, 0)); SAME(held() - before, eager ? table + code : 0);
    OK(cuCtxCreate_v2(&b, 0, 0)); size_t both = before + before; SAME(held() - both, eager ? 2 * (table + code) : 0);
    OK(cuLibraryGetModule(&m, l)); SAME(held() - both, eager ? 2 * (table + code) : table);
    OK(cuLibraryGetKernel(&k, l, "quick")); OK(cuKernelGetFunction(&f, k)); SAME(held() - both, (table + code) * (1 + eager));
    OK(cuCtxDestroy_v2(b)); OK(cuCtxSetCurrent(a)); SAME(held() - before, eager ? table + code : 0);
    launch(k, NULL); SAME(held() - before, table + code);
    OK(cuLibraryUnload(l)); SAME(held() - before, 0);
    return 0;
}
