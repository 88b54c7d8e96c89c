// A preload of another author between the library and the management library. At the end it prints how often NVML was
// initialised, shut down, and asked for processes.
#include "host.h"

static int inits, shutdowns, lists;

// This wraps the management library, so it loads that library at once.
__attribute__((constructor)) static void load(void) {
    dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_GLOBAL);
}

__attribute__((destructor)) static void tell(void) {
    say("nvml: %d inits, %d shutdowns, %d lists", inits, shutdowns, lists);
}

#define NEXT(name, parameters) int (*next) parameters = (int (*) parameters)dlsym(RTLD_NEXT, #name)

int nvmlInit_v2(void) {
    NEXT(nvmlInit_v2, (void));
    return __atomic_add_fetch(&inits, 1, __ATOMIC_RELAXED), next();
}

int nvmlShutdown(void) {
    NEXT(nvmlShutdown, (void));
    return __atomic_add_fetch(&shutdowns, 1, __ATOMIC_RELAXED), next();
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, void *entries) {
    NEXT(nvmlDeviceGetComputeRunningProcesses_v2, (void *, unsigned *, void *));
    return __atomic_add_fetch(&lists, 1, __ATOMIC_RELAXED), next(device, count, entries);
}
