// Parts of hosts whose launches wait for a share.
#pragma once
#include "launches.h"
#include <sys/syscall.h>

// cuLaunchKernel, or another form of it.
static int (*launch_on) KERNEL_PARAMETERS;

// Launches one block of the kernel that `begin` has made.
static int launch(void *on) { return launch_on(work, 1, 1, 1, 32, 1, 1, 0, on, NULL, NULL); }

// Returns the number of the system call in which a thread of this process is. It is -1 outside of one, and -2 if the kernel does not
// tell. A thread that waits for its share is in SYS_futex, and one that the driver delays in SYS_clock_nanosleep.
__attribute__((unused)) static long system_call_of(int thread) {
    char path[64];
    long number = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
    FILE *file = fopen(path, "r");
    if (!file) return -2;
    if (fscanf(file, "%ld", &number) != 1) number = -1;
    fclose(file);
    return number;
}
