/* Measures the cost of calls. Prints one line `name nanoseconds` a measurement: the median of several rounds. */
#define _GNU_SOURCE
#include "median.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 7, MOST_THREADS = 16, MANY = 1000000 };

static int (*version)(int *);
static int (*alloc)(uint64_t *, size_t);
static int (*release)(uint64_t);
static void *library;
static uint64_t *kept;

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void take(uint64_t *address) {
    if (alloc(address, 4096)) abort();
}

static void forwarded(long count) {
    for (int value; count-- > 0;) version(&value);
}

static void allocated(long count) {
    for (uint64_t address; count-- > 0;) {
        take(&address);
        release(address);
    }
}

static void replaced(long count) {
    static long place;
    for (; count-- > 0; place = (place + 1) % MANY) {
        release(kept[place]);
        take(&kept[place]);
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
    double each[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now(CLOCK_THREAD_CPUTIME_ID);
        work(count);
        each[round] = (now(CLOCK_THREAD_CPUTIME_ID) - start) / count;
    }
    printf("%s %.2f\n", name, median(each, ROUNDS));
}

static void *thread(void *count) {
    allocated((long)count);
    return NULL;
}

/* Measures the time of a call in each of several threads. If threads share processors, only the time on a processor counts. */
static void with_threads(const char *name, int threads, long count) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN), running = threads < processors ? threads : processors;
    double each[ROUNDS];
    pthread_t ids[MOST_THREADS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now(CLOCK_MONOTONIC);
        for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, thread, (void *)count);
        for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
        each[round] = (now(CLOCK_MONOTONIC) - start) * running / threads / count;
    }
    printf("%s %.2f\n", name, median(each, ROUNDS));
}

static void among(const char *name, long live) {
    for (long i = 0; i < live; i++) take(&kept[i]);
    report(name, allocated, 100000);
    for (long i = 0; i < live; i++) release(kept[i]);
}

/* Measures with a million live allocations. Makes them one by one and prints the time of the slowest. Then replaces them in a
 * random order, so that the processor's caches do not help. */
static void among_a_million(void) {
    double slowest = 0;
    for (long i = 0; i < MANY; i++) {
        double start = now(CLOCK_THREAD_CPUTIME_ID);
        take(&kept[i]);
        double time = now(CLOCK_THREAD_CPUTIME_ID) - start;
        if (time > slowest) slowest = time;
    }
    printf("slowest_of_1000000_allocs %.2f\n", slowest);
    report("alloc_and_free_among_1000000", allocated, 100000);
    uint64_t random = 1;
    for (long i = MANY - 1; i > 0; i--) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        long other = (random >> 33) % (i + 1);
        uint64_t address = kept[i];
        kept[i] = kept[other];
        kept[other] = address;
    }
    report("any_replaced_of_1000000", replaced, 100000);
}

int main(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    version = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
    alloc = (int (*)(uint64_t *, size_t))dlsym(library, "cuMemAlloc_v2");
    release = (int (*)(uint64_t))dlsym(library, "cuMemFree_v2");
    kept = calloc(MANY, sizeof *kept);
    if (init(0) || !kept) return 1;
    report("forwarded_call", forwarded, 5000000);
    report("dlsym_of_ours", looked_up, 100000);
    report("dlsym_of_others", looked_up_elsewhere, 100000);
    report("alloc_and_free_among_1", allocated, 200000);
    among("alloc_and_free_among_1000", 1000);
    with_threads("alloc_and_free_2_threads", 2, 100000);
    with_threads("alloc_and_free_16_threads", 16, 20000);
    among_a_million();
    return 0;
}
