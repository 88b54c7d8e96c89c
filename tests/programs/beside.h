// A driver call that a second thread makes, and that a fault delays or holds back, while the first thread goes on.
#pragma once
#include "host.h"
#include <pthread.h>

static struct {
    int (*call)(void);
    void *context;
    pthread_t thread;
    _Atomic int number, is_over;
    int status;
} beside;

static void *make_beside(void *nothing) {
    cu.cuCtxSetCurrent(beside.context);
    beside.number = gettid();
    beside.status = beside.call();
    beside.is_over = 1;
    return nothing;
}

// Starts the call, in the context of this thread. Returns 0 once the other thread sleeps in the driver, and -2 if the kernel does
// not tell.
static int begin_beside(int (*call)(void)) {
    long in = -1;
    cu.cuCtxGetCurrent(&beside.context);
    beside.call = call, beside.number = beside.is_over = 0;
    if (pthread_create(&beside.thread, NULL, make_beside, NULL)) return 1;
    while (!beside.number || ((in = system_call_of(beside.number)) != SYS_clock_nanosleep && in != -2)) usleep(1000);
    return in == -2 ? -2 : 0;
}

// Waits for the call and returns its status.
static int join_beside(void) {
    pthread_join(beside.thread, NULL);
    return beside.status;
}

// Does the same for a call that the driver only delays. Returns 1000 if the call was over before this wait began.
static inline int end_beside(void) {
    int was_over = beside.is_over;
    int status = join_beside();
    return was_over ? 1000 : status;
}
