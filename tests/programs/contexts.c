// Contexts: the bytes that they take of a quota, and the time at which they give them back. `contexts CASE`.
#include "host.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>

enum { MOST = 8 };

static u64 left(void) {
    size_t free = 0, total = 0;
    return cu.cuMemGetInfo_v2(&free, &total) == 0 ? free >> 20 : 9999;
}

// Makes as many contexts as fit, then one more after each kind of end.
static int many(void) {
    void *contexts[MOST] = {0}, *sentinel = contexts;
    int status = 0, made = 0;
    for (; made < MOST; made++) {
        contexts[made] = sentinel;
        status = cu.cuCtxCreate_v2(&contexts[made], 0, 0);
        if (status != 0) break;
    }
    say("made %d, then %d, output %s, left %llu", made, status, contexts[made] == sentinel ? "untouched" : "changed", left());
    if (made == 0) return 0;
    say("destroy %d", cu.cuCtxDestroy_v2(contexts[made - 1]));
    cu.cuCtxSetCurrent(contexts[0]);
    u64 before = left();
    say("left %llu, another %d", before, cu.cuCtxCreate_v2(&contexts[made - 1], 0, 0));
    return 0;
}

// The primary context is paid for once, for any number of retains, and given back with its last use.
static int primary(void) {
    void *own = NULL, *context = NULL;
    int create = cu.cuCtxCreate_v2(&own, 0, 0);
    say("create %d, left %llu", create, left());
    for (int i = 0; i < 2; i++) {
        int retain = cu.cuDevicePrimaryCtxRetain(&context, 0);
        say("retain %d, left %llu", retain, left());
    }
    for (int i = 0; i < 2; i++) {
        int release = cu.cuDevicePrimaryCtxRelease_v2(0);
        say("release %d, left %llu", release, left());
    }
    int retain = cu.cuDevicePrimaryCtxRetain(&context, 0), reset = cu.cuDevicePrimaryCtxReset_v2(0);
    say("retain %d, reset %d, left %llu", retain, reset, left());
    return 0;
}

static void tell_primary(const char *what, int status) {
    int (*state)(int, unsigned *, int *) = dlsym(driver, "cuDevicePrimaryCtxGetState"), is_active = -1;
    unsigned flags;
    state(0, &flags, &is_active);
    say("%s %d, active %d, left %llu", what, status, is_active, left());
}

// A reset ends the primary context and takes back no use of it.
static int reset(void) {
    void *own = NULL, *context = NULL;
    if (cu.cuCtxCreate_v2(&own, 0, 0)) return 3;
    tell_primary("retain", cu.cuDevicePrimaryCtxRetain(&context, 0));
    tell_primary("reset", cu.cuDevicePrimaryCtxReset_v2(0));
    tell_primary("retain", cu.cuDevicePrimaryCtxRetain(&context, 0));
    for (int i = 0; i < 3; i++) tell_primary("release", cu.cuDevicePrimaryCtxRelease_v2(0));
    tell_primary("retain", cu.cuDevicePrimaryCtxRetain(&context, 0));
    tell_primary("reset", cu.cuDevicePrimaryCtxReset_v2(0));
    tell_primary("release", cu.cuDevicePrimaryCtxRelease_v2(0));
    return 0;
}

// Makes a context in each form, and ends one by detaching: a context that is attached once more survives the first detachment.
static int forms(void) {
    int (*first)(void **, unsigned, int), (*third)(void **, void *, int, unsigned, int);
    int (*fourth)(void **, void *, unsigned, int), (*attach)(void **, unsigned), (*detach)(void *);
    *(void **)&first = dlsym(driver, "cuCtxCreate");
    *(void **)&third = dlsym(driver, "cuCtxCreate_v3");
    *(void **)&fourth = dlsym(driver, "cuCtxCreate_v4");
    *(void **)&attach = dlsym(driver, "cuCtxAttach");
    *(void **)&detach = dlsym(driver, "cuCtxDetach");
    void *context[3], *same;
    int status = first(&context[0], 0, 0);
    say("first %d, left %llu", status, left());
    status = third(&context[1], NULL, 0, 0, 0);
    say("third %d, left %llu", status, left());
    status = fourth(&context[2], NULL, 0, 0);
    say("fourth %d, left %llu", status, left());
    say("beyond %d %d %d", first(&same, 0, 0), third(&same, NULL, 0, 0, 0), fourth(&same, NULL, 0, 0));
    status = attach(&same, 0);
    say("attach %d %s", status, same == context[2] ? "same" : "other");
    for (int i = 0; i < 2; i++) {
        status = detach(context[2]);
        cu.cuCtxSetCurrent(context[0]);
        say("detach %d, left %llu", status, left());
    }
    return 0;
}

static int is_done;

static void *retain_and_release(void *nothing) {
    void *context;
    while (!__atomic_load_n(&is_done, __ATOMIC_ACQUIRE))
        if (cu.cuDevicePrimaryCtxRetain(&context, 0) || cu.cuDevicePrimaryCtxRelease_v2(0)) abort();
    return nothing;
}

static void *attach_and_detach(void *context) {
    int (*attach)(void **, unsigned) = dlsym(driver, "cuCtxAttach"), (*detach)(void *) = dlsym(driver, "cuCtxDetach");
    void *same;
    while (!__atomic_load_n(&is_done, __ATOMIC_ACQUIRE))
        if (cu.cuCtxSetCurrent(context) || attach(&same, 0) || same != context || detach(context)) abort();
    return NULL;
}

// A library takes and gives back uses of a context again and again, while the program makes and ends things in the context.
static int beside(void *(*library)(void *)) {
    struct { size_t width, height; int format; unsigned channels; } shape = {1024, 1024, 0x20, 1};
    int (*make)(void **, const void *) = dlsym(driver, "cuArrayCreate_v2"), (*end)(void *) = dlsym(driver, "cuArrayDestroy");
    pthread_t thread;
    void *context, *array;
    int refused = 0;
    if (library == attach_and_detach ? cu.cuCtxCreate_v2(&context, 0, 0) : cu.cuDevicePrimaryCtxRetain(&context, 0)) return 3;
    if (cu.cuCtxSetCurrent(context)) return 3;
    u64 before = left(), address;
    pthread_create(&thread, NULL, library, context);
    for (int i = 0; i < 20000; i++)
        if (cu.cuMemAlloc_v2(&address, 4 << 20)) refused++;
        else if (cu.cuMemFree_v2(address)) return 4;
        else if (i % 4) continue;
        else if (make(&array, &shape)) refused++;
        else if (end(array)) return 5;
    __atomic_store_n(&is_done, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    say("refused %d, lost %llu", refused, before - left());
    return 0;
}

static void *detaches(void *context) {
    int (*detach)(void *) = dlsym(driver, "cuCtxDetach");
    return (void *)(long)(cu.cuCtxSetCurrent(context) || detach(context));
}

// Several threads give back their uses of a context at once. The last of them ends it.
static int together(void) {
    enum { THREADS = 3 };
    int (*attach)(void **, unsigned) = dlsym(driver, "cuCtxAttach"), (*pop)(void **) = dlsym(driver, "cuCtxPopCurrent_v2");
    pthread_t threads[THREADS];
    void *context, *other, *same, *status;
    u64 address, lost = 0;
    int failed = 0;
    if (cu.cuCtxCreate_v2(&context, 0, 0)) return 3;
    for (int i = 0; i < 300; i++) {
        u64 before = left();
        if (cu.cuCtxCreate_v2(&other, 0, 0) || cu.cuMemAlloc_v2(&address, 8 << 20)) return 4;
        for (int j = 1; j < THREADS; j++) failed += attach(&same, 0);
        failed += pop(&same);
        for (int j = 0; j < THREADS; j++) pthread_create(&threads[j], NULL, detaches, other);
        for (int j = 0; j < THREADS; j++) pthread_join(threads[j], &status), failed += status != NULL;
        lost += before - left();
    }
    say("failed %d, lost %llu", failed, lost);
    return 0;
}

static void *remakes(void *nothing) {
    void *context;
    u64 address;
    for (int i = 0; i < 1500; i++)
        if (cu.cuDevicePrimaryCtxRetain(&context, 0) || cu.cuCtxSetCurrent(context)
            || cu.cuMemAlloc_v2(&address, 1 << 20) || cu.cuDevicePrimaryCtxRelease_v2(0)) abort();
    return nothing;
}

// Threads end a context and make it anew, with the same handle and addresses, while others do the same.
static int remade(void) {
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    void *context;
    if (cu.cuCtxCreate_v2(&context, 0, 0)) return 3;
    u64 before = left();
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, remakes, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    say("lost %llu", before - left());
    return 0;
}

// Two threads ask for a context. One waits for the other, which the driver delays, and a signal interrupts it.
static _Atomic int number_of[2], is_back[2];
static void *asks(void *which) {
    long own = (long)which;
    void *context = NULL;
    number_of[own] = gettid();
    errno = 77;
    int code = cu.cuDevicePrimaryCtxRetain(&context, 0), error = errno;
    is_back[own] = 1;
    return (void *)(long)(code ? code : error);
}
static int sleeps(int thread) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    fclose(file);
    return state == 'S';
}
static void interrupt(int signal) { (void)signal; }
static int interrupted(void) {
    struct sigaction action = {.sa_handler = interrupt};
    pthread_t threads[2];
    void *left_errno[2];
    int seen = 0;
    sigaction(SIGUSR1, &action, NULL);
    for (long i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, asks, (void *)i);
        while (!is_back[i] && !(number_of[i] && sleeps(number_of[i]))) usleep(1000);
    }
    while (!is_back[0]) {
        if (sleeps(number_of[1])) pthread_kill(threads[1], SIGUSR1), seen = 1;
        usleep(1000);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &left_errno[i]);
    say("waited %d, errno %ld %ld", seen, (long)left_errno[0], (long)left_errno[1]);
    return 0;
}

int main(int count, char **words) {
    if (count < 2 || !open_driver()) return 2;
    say("init %d", cu.cuInit(0));
    if (!strcmp(words[1], "forms")) return forms();
    if (!strcmp(words[1], "reset")) return reset();
    if (!strcmp(words[1], "beside")) return beside(retain_and_release);
    if (!strcmp(words[1], "together")) return together();
    if (!strcmp(words[1], "remade")) return remade();
    if (!strcmp(words[1], "interrupted")) return interrupted();
    if (!strcmp(words[1], "attached")) return beside(attach_and_detach);
    return !strcmp(words[1], "many") ? many() : primary();
}
