// A preload of another author, behind the library. The first two launches return 3 ms after the driver has given them to the GPU,
// as if their thread had lost its processor.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

typedef int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch next;
static atomic_int launches;

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **parameters, void **extra) {
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "cuLaunchKernel");
    int code = next(function, x, y, z, bx, by, bz, shared, stream, parameters, extra);
    struct timespec time = {.tv_nsec = 3000000};
    if (atomic_fetch_add(&launches, 1) < 2) nanosleep(&time, NULL);
    return code;
}

int wrapped_launches(void) { return launches; }
