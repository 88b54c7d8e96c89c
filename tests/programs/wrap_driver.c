// A preload of another author: counts allocations of the driver, and passes them on by RTLD_NEXT.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static unsigned long calls;

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    static int (*next)(unsigned long long *, size_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    calls++;
    return next ? next(address, bytes) : 999;
}

unsigned long wrapped_allocations(void) { return calls; }
