/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A monitor in C that shows the slices, their memory and their GPU time, with libgpuslice_read.
 *
 *     cc -O2 -Iinclude -o slices examples/read/slices.c -Ltarget/release -lgpuslice_read -Wl,-rpath,$PWD/target/release
 *     ./slices                     all slices that this user may read
 *     ./slices red /dev/shm/blue   these, by name or by the path of the region
 *
 * Ends with 1 if a named slice cannot be read.
 */
#include <gpuslice_read.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROCESSES = 1024 };

static void print_size(uint64_t bytes)
{
    if (bytes == GPUSLICE_NO_LIMIT)
        printf(" %8s", "-");
    else
        printf(" %8" PRIu64, bytes >> 20);
}

static int print_processes(const gpuslice_slice *slice, uint32_t device)
{
    static struct gpuslice_process_figures processes[PROCESSES];
    size_t count = 0;
    int status = gpuslice_read_processes(slice, device, processes, sizeof *processes, PROCESSES, &count);
    for (size_t at = 0; status == GPUSLICE_OK && at < count; at++) {
        printf("    pid %-8" PRIu32, processes[at].pid);
        print_size(processes[at].held);
        printf(" %8s %8s %7" PRIu64 " %7s %9" PRIu64 "\n", "", "", processes[at].refused, "", processes[at].used_ns / 1000000);
    }
    return status;
}

static int print_slice(const gpuslice_slice *slice)
{
    uint32_t devices = 0, count = 0;
    int status = gpuslice_device_count(slice, &devices);
    if (status == GPUSLICE_OK)
        status = gpuslice_process_count(slice, &count);
    if (status == GPUSLICE_OK)
        printf("%s: %" PRIu32 " devices, %" PRIu32 " processes\n", gpuslice_name(slice), devices, count);
    for (uint32_t device = 0; status == GPUSLICE_OK && device < devices; device++) {
        struct gpuslice_device_figures figures;
        status = gpuslice_read_device(slice, device, &figures, sizeof figures);
        if (status != GPUSLICE_OK)
            break;
        printf("  device %-7" PRIu32, device);
        print_size(figures.held);
        print_size(figures.memory_limit);
        print_size(figures.peak);
        printf(" %7" PRIu64 " %5" PRIu32 ".%" PRIu32 " %9" PRIu64 "\n", figures.refused, figures.share_permille / 10,
               figures.share_permille % 10, figures.used_ns / 1000000);
        status = print_processes(slice, device);
    }
    return status;
}

/* Prints a slice. If the slice cannot be read, prints the reason on standard error. Returns the status. */
static int show(const char *name)
{
    gpuslice_slice *slice = NULL;
    int status = gpuslice_open(name, &slice);
    if (status == GPUSLICE_OK)
        status = print_slice(slice);
    if (status != GPUSLICE_OK)
        fprintf(stderr, "%s: %s\n", name, gpuslice_error_text(status));
    gpuslice_close(slice);
    return status;
}

/* Returns all paths that may be regions. The caller frees them. */
static char *list(void)
{
    size_t room = 0;
    char *paths = NULL;
    int status;
    /* The list may grow between two calls. */
    while ((status = gpuslice_list(paths, room, &room)) == GPUSLICE_ERROR_ROOM) {
        free(paths);
        paths = malloc(room);
        if (paths == NULL)
            break;
    }
    if (status == GPUSLICE_OK)
        return paths;
    fprintf(stderr, "slices: %s\n", gpuslice_error_text(status));
    free(paths);
    return NULL;
}

int main(int argc, char **argv)
{
    int failed = 0;
    printf("%-16s %8s %8s %8s %7s %7s %9s\n", "SIZES IN MIB", "HELD", "LIMIT", "PEAK", "REFUSED", "SHARE %", "USED MS");
    for (int at = 1; at < argc; at++)
        failed |= show(argv[at]) != GPUSLICE_OK;
    if (argc > 1)
        return failed;
    char *paths = list();
    for (const char *path = paths; path != NULL && *path != '\0'; path += strlen(path) + 1)
        show(path); /* a path may be another user's or no region: then this prints why, and goes on */
    free(paths);
    return paths == NULL;
}
