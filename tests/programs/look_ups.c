// Looks the same code up again and again. If the library asked the driver for free memory each time, and a fault delays that
// call, it would take long.
#include "host.h"

extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuModuleLoadData(void **, const void *), cuModuleUnload(void *);
extern int cuModuleGetFunction(void **, void *, const char *);
extern int cuLibraryLoadData(void **, const void *, void *, void *, unsigned, void *, void *, unsigned);
extern int cuLibraryGetKernel(void **, void *, const char *), cuKernelGetFunction(void **, void *);

static const char code[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry work() { ret; }\n";

int main(void) {
    void *context, *module, *library, *kernel, *function;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    if (cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0)) return 3;
    if (cuLibraryGetKernel(&kernel, library, "work")) return 4;
    for (int round = 0; round < 2; round++) {
        if (cuModuleLoadData(&module, code)) return 5;
        u64 before = now();
        int wrong = 0;
        for (int i = 0; i < 100; i++)
            wrong |= cuModuleGetFunction(&function, module, "work") | cuKernelGetFunction(&function, kernel);
        double took = (now() - before) / 1e9;
        say("looked up %d, %s", wrong, took < 0.2 ? "never asked" : took < 8 ? "asked a few times" : "asked each time");
        if (cuModuleUnload(module)) return 6;
    }
    return 0;
}
