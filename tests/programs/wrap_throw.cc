// A preload of another author that stands between the library and the driver. An allocation of one size throws an exception after
// the driver has made it. An allocation of another size sleeps where a thread can be cancelled.
#include <dlfcn.h>
#include <stddef.h>
#include <time.h>

enum { THROWS = 12288, SLEEPS = 20480 };

extern "C" int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    typedef int (*function)(unsigned long long *, size_t);
    static function next;
    if (!next) next = reinterpret_cast<function>(dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
    if (bytes == THROWS && next && next(address, bytes) == 0) throw 42;
    if (bytes == SLEEPS) {
        struct timespec long_time = {30, 0};
        nanosleep(&long_time, nullptr);
    }
    return next ? next(address, bytes) : 999;
}
