// A sandbox that does not let the library sleep: `clock_nanosleep` is not permitted.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
    Dl_info caller;
    if (dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "libgpuslice")) return EPERM;
    return syscall(SYS_clock_nanosleep, clock, flags, time, left) ? errno : 0;
}
