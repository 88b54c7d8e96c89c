/* Measures a launch that need not wait. `launches NAME [SHAPES]` prints one line `name nanoseconds` for each number of threads:
 * the median over short bursts of launches, so far apart that no limit binds. The launches have SHAPES different shapes in turn,
 * one by default. `launches idle` prints the time of the first launch after ten seconds without any. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

/* A kernel takes a tenth of a microsecond: all threads together ask for less than half of the GPU. */
enum { MOST_THREADS = 16, BURST = 8, BURSTS = 20000, WARMING = 4000, MOST_SHAPES = 4096, EVERY_NS = 2000, LONGEST = 1 << 16, IDLE_S = 10 };

static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*make_stream)(void **, unsigned);
static uint64_t pause_cycles;
static double cycle_ns;
static unsigned shapes = 1;
static __thread unsigned shape;
static uint32_t seen[LONGEST]; /* bursts, by the cycles that they took */

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static unsigned next_shape(void) {
    shape = shape + 1 < shapes ? shape + 1 : 0;
    return shape + 1;
}

/* Returns the cycles of `count` launches, one right after the other. */
static uint64_t launches(int count, void *stream) {
    unsigned ignored;
    uint64_t start = __rdtscp(&ignored);
    while (count-- > 0)
        if (launch((void *)4096, next_shape(), 1, 1, 128, 1, 1, 0, stream, NULL, NULL)) abort();
    return __rdtscp(&ignored) - start;
}

static void *thread(void *nothing) {
    void *stream;
    uint64_t next = __rdtsc();
    if (make_stream(&stream, 1)) abort();
    for (int i = 0; i < WARMING + BURSTS; i++) {
        while (__rdtsc() < next) _mm_pause();
        next = __rdtsc() + pause_cycles;
        uint64_t took = launches(BURST, stream);
        if (i >= WARMING) __atomic_fetch_add(&seen[took < LONGEST ? took : LONGEST - 1], 1, __ATOMIC_RELAXED);
    }
    return nothing;
}

static void with_threads(const char *name, int threads) {
    pthread_t ids[MOST_THREADS];
    long half = (long)threads * BURSTS / 2;
    int median = 0;
    memset(seen, 0, sizeof seen);
    pause_cycles = threads * EVERY_NS / cycle_ns;
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, thread, NULL);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    while ((half -= seen[median]) > 0) median++;
    printf("%s_%d_threads %.1f\n", name, threads, median * cycle_ns / BURST);
}

static void measure_cycles(void) {
    double start = now();
    uint64_t cycles = __rdtsc();
    usleep(50000);
    cycle_ns = (now() - start) / (__rdtsc() - cycles);
}

static void after_idle(void) {
    void *stream;
    make_stream(&stream, 1);
    launches(WARMING, stream);
    sleep(IDLE_S);
    printf("launch_after_idle %.0f\n", launches(1, stream) * cycle_ns);
}

int main(int count, char **arguments) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (count > 2) shapes = atoi(arguments[2]);
    if (count < 2 || shapes < 1 || shapes > MOST_SHAPES || !library) return 2;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    *(void **)&launch = dlsym(library, "cuLaunchKernel");
    *(void **)&make_stream = dlsym(library, "cuStreamCreate");
    if (init(0)) return 1;
    measure_cycles();
    if (!strcmp(arguments[1], "idle")) return after_idle(), 0;
    for (int threads = 1; threads <= MOST_THREADS; threads *= threads < 4 ? 2 : 4) with_threads(arguments[1], threads);
    return 0;
}
