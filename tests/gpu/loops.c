/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the cost of calls: loops around functions of the driver, whose addresses are arguments. Returns nanoseconds, or a
 * status below zero. */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

int64_t forwarded(int (*get_device)(int *), int count)
{
    int64_t start = now();
    for (int turn = 0, device; turn < count; turn++) {
        int status = get_device(&device);
        if (status != 0)
            return -status;
    }
    return now() - start;
}

int64_t alloc_free(int (*alloc)(uint64_t *, size_t), int (*give)(uint64_t), size_t bytes, int count)
{
    int64_t start = now();
    for (int turn = 0; turn < count; turn++) {
        uint64_t address;
        int status = alloc(&address, bytes);
        if (status == 0)
            status = give(address);
        if (status != 0)
            return -status;
    }
    return now() - start;
}

/* The body of a function that evaluates `call` `count` times, `round` at a time, and returns the nanoseconds. It waits for the stream
   after each round, outside of the measurement. */
#define IN_ROUNDS_OF(round, call) \
    int64_t total = 0; \
    for (int done = 0; done < count; done += (round)) { \
        int64_t start = now(); \
        for (int turn = 0; turn < (round); turn++) { \
            int status = (call); \
            if (status != 0) \
                return -status; \
        } \
        total += now() - start; \
        int status = synchronize(stream); \
        if (status != 0) \
            return -status; \
    } \
    return total

/* Few events are queued at a time, so the loop measures the call and not the GPU. */
int64_t records(int (*record)(void *, void *), int (*synchronize)(void *), void *event, void *stream, int count)
{
    IN_ROUNDS_OF(64, record(event, stream));
}

typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

/* Never more launches are in flight than the queue has room for, so the loop measures the call and not the GPU. */
int64_t launches(launch_t launch, int (*synchronize)(void *), void *kernel, void *stream, int count)
{
    IN_ROUNDS_OF(256, launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}
