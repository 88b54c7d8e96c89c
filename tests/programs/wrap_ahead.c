// A machine whose monotonic clock is 31 s ahead once the file that AHEAD names exists. Children of the program have the usual
// clock.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *ahead;

__attribute__((constructor)) static void begin(void) {
    ahead = getenv("AHEAD");
    unsetenv("LD_PRELOAD");
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && clock == CLOCK_MONOTONIC && ahead && access(ahead, F_OK) == 0) now->tv_sec += 31;
    return status;
}
