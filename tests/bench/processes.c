/* Measures the cost of a slice for many processes. `processes COUNT` starts COUNT processes, which call cuInit at the same
 * moment and then allocate and free at the same time. Prints one line `name nanoseconds` a measurement. */
#define _GNU_SOURCE
#include "median.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, CALLS = 20000 };

static struct {
    pthread_barrier_t all;
    double init[MOST], from[MOST], to[MOST];
} *shared;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int member(int number, void *library) {
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(library, "cuMemAlloc_v2");
    int (*release)(uint64_t) = (int (*)(uint64_t))dlsym(library, "cuMemFree_v2");
    pthread_barrier_wait(&shared->all);
    double start = now();
    if (init(0)) return 1;
    shared->init[number] = now() - start;
    pthread_barrier_wait(&shared->all);
    shared->from[number] = now();
    for (int i = 0; i < CALLS; i++) {
        uint64_t address;
        if (alloc(&address, 4096) || release(address)) return 1;
    }
    shared->to[number] = now();
    pthread_barrier_wait(&shared->all);
    return 0;
}

int main(int arguments, char **argument) {
    int count = arguments == 2 ? atoi(argument[1]) : 0, failed = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (count < 1 || count > MOST || !library) return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t between;
    pthread_barrierattr_init(&between);
    pthread_barrierattr_setpshared(&between, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->all, &between, count);
    for (int i = 0; i < count; i++)
        if (fork() == 0) _exit(member(i, library));
    for (int status; wait(&status) > 0;) failed |= status;
    if (failed) return 1;
    double from = shared->from[0], to = shared->to[0];
    for (int i = 1; i < count; i++) {
        if (shared->from[i] < from) from = shared->from[i];
        if (shared->to[i] > to) to = shared->to[i];
    }
    long processors = sysconf(_SC_NPROCESSORS_ONLN), running = count < processors ? count : processors;
    printf("alloc_and_free_%d_processes %.2f\n", count, (to - from) * running / count / CALLS);
    printf("cuInit_of_%d_median %.0f\n", count, median(shared->init, count));
    printf("cuInit_of_%d_slowest %.0f\n", count, shared->init[count - 1]);
    return 0;
}
