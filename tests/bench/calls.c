/* What do calls cost? Prints one line `name nanoseconds` a measurement: the least of several rounds, which is the
 * figure that noise of the machine disturbs least. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 7, MOST_THREADS = 16 };

static int (*version)(int *);
static int (*alloc)(uint64_t *, size_t);
static int (*release)(uint64_t);
static void *library;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void forwarded(long count) {
    for (int value; count-- > 0;) version(&value);
}

static void allocated(long count) {
    for (uint64_t address; count-- > 0;) {
        if (alloc(&address, 4096) != 0) abort();
        release(address);
    }
}

static void looked_up(long count) {
    while (count-- > 0)
        if (!dlsym(library, "cuMemAlloc_v2")) abort();
}

static void looked_up_elsewhere(long count) {
    while (count-- > 0)
        if (!dlsym(RTLD_DEFAULT, "printf")) abort();
}

static void report(const char *name, void (*work)(long), long count) {
    double best = 1e300;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        work(count);
        double each = (now() - start) / count;
        if (each < best) best = each;
    }
    printf("%s %.2f\n", name, best);
}

static void *thread(void *count) {
    allocated((long)count);
    return NULL;
}

static void with_threads(const char *name, int threads, long count) {
    double best = 1e300;
    pthread_t ids[MOST_THREADS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, thread, (void *)count);
        for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
        double each = (now() - start) / count / threads;
        if (each < best) best = each;
    }
    printf("%s %.2f\n", name, best);
}

static void among(const char *name, long live) {
    uint64_t *kept = malloc(live * sizeof *kept);
    for (long i = 0; i < live; i++)
        if (alloc(&kept[i], 4096) != 0) abort();
    report(name, allocated, 200000);
    for (long i = 0; i < live; i++) release(kept[i]);
    free(kept);
}

int main(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    version = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
    alloc = (int (*)(uint64_t *, size_t))dlsym(library, "cuMemAlloc_v2");
    release = (int (*)(uint64_t))dlsym(library, "cuMemFree_v2");
    if (init(0) != 0) return 1;
    report("forwarded_call", forwarded, 20000000);
    report("alloc_and_free_among_1", allocated, 1000000);
    among("alloc_and_free_among_1000", 1000);
    among("alloc_and_free_among_1000000", 1000000);
    with_threads("alloc_and_free_2_threads", 2, 200000);
    with_threads("alloc_and_free_16_threads", 16, 50000);
    report("dlsym_of_ours", looked_up, 200000);
    report("dlsym_of_others", looked_up_elsewhere, 200000);
    return 0;
}
