/* Events between processes: one process records an event. The other one queries it, waits for it, and outlives it. */
#include <sys/socket.h>
#include <sys/wait.h>
#include "driver.h"

typedef struct { char bytes[64]; } ipc;
int cuIpcGetEventHandle(ipc *, handle), cuIpcOpenEventHandle(handle *, ipc), cuEventDestroy_v2(handle);
int cuDeviceGetAttribute(int *, unsigned, int);
enum { NO_TIMING = 2, INTERPROCESS = 4, BOTH = 6, NON_BLOCKING = 1, IPC_EVENTS = 125 };
enum { INVALID = 1, NO_CONTEXT = 201, GONE = 205, HANDLE = 400, NOT_READY = 600 };

static int other;
static void tell(char word) { CHECK(write(other, &word, 1) == 1); }
static void hear(char word) { char got; CHECK(read(other, &got, 1) == 1); SAME(got, word); }
static void give(handle event) { ipc i; OK(cuIpcGetEventHandle(&i, event)); CHECK(write(other, &i, sizeof i) == sizeof i); }
static handle take(void) { ipc i; handle e; CHECK(read(other, &i, sizeof i) == sizeof i); OK(cuIpcOpenEventHandle(&e, i)); return e; }

static void misuse(void) {
    handle e, plain, c; ipc i; int able; float ms;
    OK(cuDeviceGetAttribute(&able, IPC_EVENTS, 0)); SAME(able, 1);
    STATUS(INVALID, cuEventCreate(&e, INTERPROCESS)); OK(cuEventCreate(&e, BOTH)); OK(cuEventCreate(&plain, NO_TIMING));
    STATUS(HANDLE, cuIpcGetEventHandle(&i, plain)); STATUS(HANDLE, cuIpcGetEventHandle(&i, (handle)8)); STATUS(INVALID, cuIpcGetEventHandle(NULL, e));
    OK(cuCtxPopCurrent_v2(&c)); STATUS(NO_CONTEXT, cuIpcGetEventHandle(&i, e)); OK(cuCtxPushCurrent_v2(c));
    OK(cuIpcGetEventHandle(&i, e)); STATUS(NO_CONTEXT, cuIpcOpenEventHandle(&plain, i)); STATUS(INVALID, cuIpcOpenEventHandle(NULL, i));
    memset(&i, 0, sizeof i); STATUS(INVALID, cuIpcOpenEventHandle(&plain, i)); STATUS(HANDLE, cuEventElapsedTime(&ms, e, e));
    OK(cuEventDestroy_v2(e)); OK(cuEventDestroy_v2(plain));
}

/* Runs the process that makes the events. */
static void maker(void) {
    handle s, e, late; gate g; start(); misuse();
    OK(cuStreamCreate(&s, NON_BLOCKING)); OK(cuEventCreate(&e, BOTH)); OK(cuEventCreate(&late, BOTH));
    give(e); hear('f');

    /* This process records the event. The other process queries it, and lets a stream wait for it. */
    shut(&g, s); OK(cuEventRecord(e, s)); STATUS(NOT_READY, cuEventQuery(e)); tell('r'); hear('q'); g.open = 1; hear('s'); OK(cuEventQuery(e));

    /* The other process records the event. This process queries it, and lets a stream wait for it. */
    tell('r'); hear('r'); STATUS(NOT_READY, cuEventQuery(e)); OK(cuStreamWaitEvent(s, e, 0)); STATUS(NOT_READY, cuStreamQuery(s)); tell('q');
    OK(cuStreamSynchronize(s)); OK(cuEventSynchronize(e));

    /* This process records the event before the other process opens it, and destroys it before the record completes. */
    shut(&g, s); OK(cuEventRecord(late, s)); give(late); hear('o'); OK(cuEventDestroy_v2(late)); STATUS(HANDLE, cuEventQuery(late)); tell('d');
    hear('q'); g.open = 1; hear('s');

    /* This process dies before the record completes. */
    shut(&g, s); OK(cuEventRecord(e, s)); tell('r'); hear('q'); _exit(0);
}

static void user(void) {
    handle s, e, late, again; gate g; ipc i; char rest; start(); OK(cuStreamCreate(&s, NON_BLOCKING));
    e = take(); OK(cuEventQuery(e)); OK(cuEventSynchronize(e)); STATUS(HANDLE, cuIpcGetEventHandle(&i, e)); tell('f');

    hear('r'); STATUS(NOT_READY, cuEventQuery(e)); OK(cuStreamWaitEvent(s, e, 0)); STATUS(NOT_READY, cuStreamQuery(s)); tell('q');
    OK(cuStreamSynchronize(s)); OK(cuEventSynchronize(e)); OK(cuEventQuery(e)); tell('s');

    hear('r'); shut(&g, s); OK(cuEventRecord(e, s)); STATUS(NOT_READY, cuEventQuery(e)); tell('r'); hear('q'); g.open = 1; OK(cuEventSynchronize(e));

    CHECK(read(other, &i, sizeof i) == sizeof i); OK(cuIpcOpenEventHandle(&late, i)); OK(cuIpcOpenEventHandle(&again, i)); CHECK(late != again);
    STATUS(NOT_READY, cuEventQuery(late)); OK(cuEventDestroy_v2(again)); tell('o'); hear('d');
    STATUS(GONE, cuIpcOpenEventHandle(&again, i)); STATUS(NOT_READY, cuEventQuery(late)); tell('q');
    OK(cuEventSynchronize(late)); OK(cuEventQuery(late)); tell('s');

    hear('r'); STATUS(NOT_READY, cuEventQuery(e)); tell('q'); CHECK(read(other, &rest, 1) == 0); OK(cuEventSynchronize(e));
    OK(cuEventRecord(e, s)); OK(cuEventSynchronize(e)); OK(cuEventDestroy_v2(e)); STATUS(HANDLE, cuEventQuery(e));
}

int main(void) {
    int pair[2], status; CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair)); int child = fork();
    other = pair[child != 0]; close(pair[child == 0]);
    if (!child) maker();
    user(); CHECK(waitpid(child, &status, 0) == child); SAME(status, 0);
    return 0;
}
