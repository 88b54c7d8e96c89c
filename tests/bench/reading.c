/* Measures one read of the named slice, in nanoseconds a call: the median of the means of nine rounds. */
#include "median.h"

#include <gpuslice_read.h>

#include <stdio.h>
#include <time.h>

enum { ROUNDS = 9, CALLS = 2000, PROCESSES = 1024 };

static gpuslice_slice *slice;
static struct gpuslice_process_figures processes[PROCESSES];

static int device(void)
{
    struct gpuslice_device_figures figures;
    return gpuslice_read_device(slice, 0, &figures, sizeof figures);
}

static int all_processes(void)
{
    return gpuslice_read_processes(slice, 0, processes, sizeof *processes, PROCESSES, NULL);
}

static int epoch(void)
{
    uint64_t number;
    return gpuslice_epoch(slice, &number);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void measure(const char *what, int (*call)(void))
{
    double mean[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int count = 0; count < CALLS; count++)
            if (call() != GPUSLICE_OK)
                return;
        mean[round] = (now() - start) / CALLS;
    }
    printf("%s %.0f\n", what, median(mean, ROUNDS));
}

/* Path of the slice that `open_and_close` opens. */
static const char *path;

static int open_and_close(void)
{
    gpuslice_slice *other;
    int status = gpuslice_open(path, &other);
    gpuslice_close(other);
    return status;
}

int main(int argc, char **argv)
{
    uint32_t count = 0;
    if (argc != 2 || gpuslice_open(argv[1], &slice) != GPUSLICE_OK)
        return 2;
    path = gpuslice_path(slice);
    gpuslice_process_count(slice, &count);
    printf("processes %u\n", count);
    measure("read_open_and_close", open_and_close);
    measure("read_nothing_but_check", epoch);
    measure("read_device", device);
    measure("read_processes", all_processes);
    gpuslice_close(slice);
    return 0;
}
