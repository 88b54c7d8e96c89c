// A machine whose time of day is set all the time: ten years forth and back at every call. Counts the calls. At the end
// it writes a line to the file that CLOCKS names: the number of calls, and the number of those by gpuslice.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { TEN_YEARS = 315360000 };

static int asked, asked_by_us;

static time_t step(const void *caller) {
    Dl_info info;
    if (dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libgpuslice")) asked_by_us++;
    return __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED) % 2 ? TEN_YEARS : -TEN_YEARS;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += step(__builtin_return_address(0));
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec + step(__builtin_return_address(0));
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec exact;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &exact);
    exact.tv_sec += step(__builtin_return_address(0));
    if (place) *place = exact.tv_sec;
    return exact.tv_sec;
}

__attribute__((destructor)) static void tell(void) {
    char line[64];
    const char *path = getenv("CLOCKS");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    int length = snprintf(line, sizeof line, "%s %d\n", asked ? "asked" : "not asked", asked_by_us);
    if (file < 0 || write(file, line, length) != length) return;
    close(file);
}
