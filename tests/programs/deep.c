// A library that reaches the driver from its own scope: linked with it, by RTLD_DEFAULT or RTLD_NEXT, or by opening it.
#include "host.h"

const char *whose(void) { return "itself"; }
const char *seen(void) { return whose(); }

#ifdef LINKED
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(u64 *, size_t);
#endif

static void *find(const char *way, const char *name) {
#ifdef LINKED
    if (!strcmp(way, "linked")) {
        if (!strcmp(name, "cuInit")) return (void *)cuInit;
        if (!strcmp(name, "cuDevicePrimaryCtxRetain")) return (void *)cuDevicePrimaryCtxRetain;
        if (!strcmp(name, "cuCtxSetCurrent")) return (void *)cuCtxSetCurrent;
        return (void *)cuMemAlloc_v2;
    }
#endif
    if (!strcmp(way, "default")) return dlsym(RTLD_DEFAULT, name);
    if (!strcmp(way, "next")) return dlsym(RTLD_NEXT, name);
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND), name);
}

// Returns the status of the first call that fails.
int take(const char *way, size_t bytes) {
    int (*init)(unsigned) = (int (*)(unsigned))find(way, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))find(way, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))find(way, "cuCtxSetCurrent");
    int (*allocate)(u64 *, size_t) = (int (*)(u64 *, size_t))find(way, "cuMemAlloc_v2");
    if (!init || !retain || !set || !allocate) return -1;
    void *context = NULL;
    u64 address = 0;
    int status = init(0);
    if (!status) status = retain(&context, 0);
    if (!status) status = set(context);
    return status ? status : allocate(&address, bytes);
}
