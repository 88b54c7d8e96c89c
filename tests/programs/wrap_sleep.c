// A sandbox that does not let the library sleep: `clock_nanosleep` is not permitted. The library calls the kernel by `syscall`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

long syscall(long number, ...) {
    static long (*real)(long, ...);
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    Dl_info caller;
    if (number == SYS_clock_nanosleep && dladdr(__builtin_return_address(0), &caller) &&
        strstr(caller.dli_fname, "libgpuslice"))
        return errno = EPERM, -1;
    va_list rest;
    long words[6];
    va_start(rest, number);
    for (int i = 0; i < 6; i++) words[i] = va_arg(rest, long);
    va_end(rest);
    return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
