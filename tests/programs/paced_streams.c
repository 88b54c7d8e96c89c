// Actions of a program between its launches. Whatever it does, the slice must be charged for the launches.
//
// paced_streams WHAT: each prints statuses and, in milliseconds, how long it took.
#include "worker_naps.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { MS = 1000000 };

// The primary context is retained and released around each launch, as libraries do, and lives on.
static void retains(int count) {
    int failed = 0;
    u64 began = now();
    for (int i = 0; i < count; i++) {
        void *same = NULL;
        failed += launch(stream) != 0;
        failed += cu.cuDevicePrimaryCtxRetain(&same, 0) != 0 || same != context;
        failed += cu.cuDevicePrimaryCtxRelease_v2(0) != 0;
    }
    failed += gpu.cuCtxSynchronize() != 0;
    say("failed %d", failed);
    say("took %llu ms", (now() - began) / MS);
}

static volatile int is_over;
static int pause_us = 70000, launches;

static void *now_and_then(void *longest) {
    void *own = NULL;
    cu.cuCtxSetCurrent(context);
    cu.cuStreamCreate(&own, NON_BLOCKING);
    while (!is_over) {
        u64 before = now();
        if (launch(own)) return NULL;
        u64 took = now() - before;
        if (took > *(u64 *)longest) *(u64 *)longest = took;
        __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
        usleep(pause_us);
    }
    return NULL;
}

// Many threads launch little each: together far less than the share.
static void threads(int count) {
    static pthread_t all[256];
    static u64 longest[256];
    u64 most = 0;
    for (int i = 0; i < count; i++) pthread_create(&all[i], NULL, now_and_then, &longest[i]);
    usleep(2000000);
    is_over = 1;
    for (int i = 0; i < count; i++) {
        pthread_join(all[i], NULL);
        if (longest[i] > most) most = longest[i];
    }
    say("longest %llu ms", most / MS);
    say("launches %d", launches);
}

static void *made;

static void last(void) {
    u64 began = now();
    int destroyed = cu.cuCtxDestroy_v2(made);
    say("destroyed %d in %llu ms", destroyed, (now() - began) / MS);
}

// An exit handler destroys a context. It runs after the library's own exit handler.
static void at_exit(void) {
    atexit(last);
    begin("100us");
    cu.cuCtxCreate_v2(&made, 0, 0);
    work = kernel("100us");
    say("launched %d", launch(NULL));
    usleep(5000);
}

static int more;

static void work_on(void) {
    int failed = 0;
    u64 began = now();
    for (int i = 0; i < more; i++) failed += launch(stream) != 0;
    failed += gpu.cuCtxSynchronize() != 0;
    say("failed %d", failed);
    say("went on for %llu", (now() - began) / MS);
}

// An exit handler launches kernels whose cost is known. It runs after the library's own exit handler.
static void goes_on(int count) {
    more = count;
    atexit(work_on);
    int failed = 0;
    for (int i = 0; i < 20; i++) failed += launch(stream) != 0;
    failed += gpu.cuCtxSynchronize() != 0;
    say("before %d", failed);
}

static void *one_of_many(void *nothing) {
    void *own = NULL;
    cu.cuCtxSetCurrent(context);
    cu.cuStreamCreate(&own, NON_BLOCKING);
    while (!is_over && !launch(own) && !launch(stream)) {}
    return nothing;
}

static void *short_life(void *nothing) {
    void *own = NULL;
    cu.cuCtxSetCurrent(context);
    int failed = cu.cuStreamCreate(&own, NON_BLOCKING) || launch(own) || gpu.cuStreamDestroy_v2(own);
    return failed ? (void *)1l : nothing;
}

// Streams end while other threads launch, and threads come and go.
static void storm(int count) {
    pthread_t long_lived[3], others[4];
    int failed = 0;
    for (int i = 0; i < 3; i++) pthread_create(&long_lived[i], NULL, one_of_many, NULL);
    for (int i = 0; i < count; i++) {
        void *code;
        for (int j = 0; j < 4; j++) pthread_create(&others[j], NULL, short_life, NULL);
        for (int j = 0; j < 4; j++) pthread_join(others[j], &code), failed += code != NULL;
    }
    is_over = 1;
    for (int i = 0; i < 3; i++) pthread_join(long_lived[i], NULL);
    say("failed %d, wait %d", failed, gpu.cuCtxSynchronize());
}

static int is_named(const char *name) {
    char path[512], text[64];
    struct dirent *entry;
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    while ((entry = readdir(tasks))) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        found |= file && fgets(text, sizeof text, file) && !strncmp(text, name, strlen(name));
        if (file) fclose(file);
    }
    closedir(tasks);
    return found;
}

// All threads enter a sandbox that does not know `membarrier`, once the library uses it.
static int enter_sandbox(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof rules / sizeof *rules, .filter = rules};
    // A process that has not registered may not use the expedited form.
    while (syscall(SYS_membarrier, 1 << 3, 0, 0) || is_named("gpuslice-once")) usleep(1000);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0;
}

static pthread_barrier_t both;

static void *launches_before(void *on) {
    cu.cuCtxSetCurrent(context);
    long code = 0;
    for (int i = 0; i < 8; i++) code |= launch(on);
    pthread_barrier_wait(&both);
    // The thread does nothing until the stream is gone. Then it goes on with another stream, long enough for the library to look.
    pthread_barrier_wait(&both);
    for (int i = 0; i < 100; i++) code |= launch(stream), usleep(1000);
    return (void *)code;
}

// A stream ends on which another thread has launched, and then a stream on which this thread has launched.
static void late(void) {
    pthread_t other;
    void *streams[2], *code;
    pthread_barrier_init(&both, NULL, 2);
    for (int i = 0; i < 2; i++) cu.cuStreamCreate(&streams[i], NON_BLOCKING);
    int failed = launch(streams[0]) || launch(stream);
    if (syscall(SYS_membarrier, 0, 0, 0) < 0) {
        say("no membarrier");
        return;
    }
    say("sandbox %d", enter_sandbox());
    pthread_create(&other, NULL, launches_before, streams[1]);
    pthread_barrier_wait(&both);
    failed |= launch(streams[0]);
    u64 began = now();
    int ended = gpu.cuStreamDestroy_v2(streams[0]) | gpu.cuStreamDestroy_v2(streams[1]);
    say("ended %d in %llu ms", ended, (now() - began) / MS);
    pthread_barrier_wait(&both);
    pthread_join(other, &code);
    say("launched %d %ld, wait %d", failed, (long)code, gpu.cuCtxSynchronize());
}

static void *some(void *count) {
    cu.cuCtxSetCurrent(context);
    for (int i = 0; i < *(int *)count; i++)
        if (launch(stream)) abort();
    return NULL;
}

// Launches on order, by this thread or with `thread` by one that ends, and enters the sandbox on order.
static void sealed(void) {
    char line[64];
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        pthread_t thread;
        int is_thread = !strncmp(line, "thread", 6), number = atoi(line + 6 * is_thread);
        if (!strncmp(line, "seal", 4)) {
            say("%d", syscall(SYS_membarrier, 0, 0, 0) < 0 ? -1 : enter_sandbox());
            continue;
        }
        if (is_thread) pthread_create(&thread, NULL, some, &number), pthread_join(thread, NULL);
        else some(&number);
        say("0");
    }
}

// A green context ends while a kernel runs on a `stream` of its own, or on the default stream while the context is current. The
// primary context lives on, and the kernel with it.
static void green(const char *where) {
    int (*resource)(int, void *, unsigned) = dlsym(driver, "cuDeviceGetDevResource");
    int (*split)(void *, unsigned *, void *, void *, unsigned, unsigned) = dlsym(driver, "cuDevSmResourceSplitByCount");
    int (*describe)(void **, void *, unsigned) = dlsym(driver, "cuDevResourceGenerateDesc");
    int (*make)(void **, void *, int, unsigned) = dlsym(driver, "cuGreenCtxCreate");
    int (*make_stream)(void **, void *, unsigned, int) = dlsym(driver, "cuGreenCtxStreamCreate");
    int (*as_context)(void **, void *) = dlsym(driver, "cuCtxFromGreenCtx"), (*end)(void *) = dlsym(driver, "cuGreenCtxDestroy");
    char device[256] = {0}, parts[512], rest[256], line[16];
    void *descriptor, *made = NULL, *own = NULL, *view = NULL;
    unsigned number = 2;
    int failed = resource(0, device, 1) || split(parts, &number, device, rest, 0, 8) || describe(&descriptor, parts, 1) ||
                 make(&made, descriptor, 0, 1) || make_stream(&own, made, NON_BLOCKING, 0);
    if (strcmp(where, "unnamed")) failed |= as_context(&view, made);
    if (!strcmp(where, "default")) failed |= cu.cuCtxSetCurrent(view), own = NULL;
    failed |= launch(own);
    failed |= cu.cuCtxSetCurrent(context) || end(made) || gpu.cuCtxSynchronize();
    say("failed %d", failed);
    if (!fgets(line, sizeof line, stdin)) return;
}

static int (*host_function)(void *, void (*)(void *), void *);

static void pass(void *nothing) {
    (void)nothing;
    while (!is_over) usleep(100);
}

// Two streams that the default stream blocks have a long kernel each, one after the other. The default stream has a few short
// ones before.
static void side_by_side(void) {
    void *streams[2], *longer = kernel("100ms");
    int failed = cu.cuStreamCreate(&streams[0], 0) != 0 || cu.cuStreamCreate(&streams[1], 0) != 0;
    for (int i = 0; i < 200; i++) failed += launch(NULL) != 0;
    failed += gpu.cuCtxSynchronize() != 0;
    for (int i = 0; i < 3; i++) failed += launch(NULL) != 0;
    work = longer;
    u64 began = now();
    failed += launch(streams[0]) != 0;
    usleep(30000);
    failed += launch(streams[1]) != 0 || gpu.cuCtxSynchronize() != 0;
    say("took %llu ms", (now() - began) / MS);
    say("failed %d", failed);
}

// A stream that the default stream waits for is blocked until an unrelated stream is done.
static void one_held_up(void) {
    void *streams[2];
    int failed = cu.cuStreamCreate(&streams[0], 0) != 0 || cu.cuStreamCreate(&streams[1], 0) != 0;
    alarm(20);
    for (int i = 0; i < 200; i++) failed += launch(NULL) != 0;
    failed += gpu.cuCtxSynchronize() != 0;
    for (int i = 0; i < 3; i++) failed += launch(NULL) != 0;
    failed += host_function(streams[0], pass, NULL) != 0 || launch(streams[1]) != 0;
    failed += cu.cuStreamSynchronize(streams[1]) != 0;
    is_over = 1;
    failed += gpu.cuCtxSynchronize() != 0;
    say("failed %d", failed);
}

// Now and then some launches go to one stream, and all the time a few, far apart, to another.
static void now_and_then_aside(int count) {
    void *aside = NULL;
    char line[8];
    int failed = cu.cuStreamCreate(&aside, NON_BLOCKING) != 0;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < 5; j++) failed += launch(aside) != 0;
        for (u64 end = now() + 50 * MS; now() < end;) {
            failed += launch(stream) != 0;
            for (u64 next = now() + 10000; now() < next;) {}
        }
    }
    failed += gpu.cuCtxSynchronize() != 0;
    say("failed %d", failed);
    if (!fgets(line, sizeof line, stdin)) return;
}

// Launches with a different shape each.
static void shapes(int count) {
    int failed = 0;
    u64 began = now();
    for (int i = 1; i <= count; i++) failed += launch_on(work, 1, i, 1, 32, 1, 1, 0, stream, NULL, NULL) != 0;
    failed += gpu.cuCtxSynchronize() != 0;
    say("took %llu ms", (now() - began) / MS);
    say("failed %d", failed);
}

// Launches the same forty shapes again and again.
static void steps(int count) {
    int failed = 0;
    u64 began = now();
    for (int i = 0; i < count; i++) failed += launch_on(work, 1, i % 40 + 1, 1, 32, 1, 1, 0, stream, NULL, NULL) != 0;
    failed += gpu.cuCtxSynchronize() != 0;
    say("took %llu ms", (now() - began) / MS);
    say("failed %d", failed);
}

static void nap(void *nothing) {
    (void)nothing;
    usleep(2000);
}

// Launches follow work in a stream that only the launching thread brings to an end. Beside it another stream has work.
static void held_up(int count) {
    void *other = NULL;
    int failed = 0;
    alarm(60);
    for (int i = 0; i < 20; i++) failed += launch(stream) != 0;
    failed += gpu.cuCtxSynchronize() != 0 || cu.cuStreamCreate(&other, NON_BLOCKING) != 0;
    failed += host_function(stream, pass, NULL) != 0;
    u64 began = now();
    for (int i = 0; i < count; i++) failed += launch(stream) != 0;
    say("queued after %llu ms", (now() - began) / MS);
    began = now();
    for (int i = 0; i < 20; i++) failed += launch(other) != 0;
    failed += cu.cuStreamSynchronize(other) != 0;
    say("beside after %llu ms", (now() - began) / MS);
    is_over = 1;
    failed += gpu.cuCtxSynchronize() != 0;
    say("failed %d", failed);
}

// A graph that took 30 ms becomes one that runs on until a launch beside it arrives.
static void outlasts(int count) {
    int (*update)(void *, void *, u64 *), (*go)(void *, void *), failed = 0;
    void *other = NULL, *made = NULL, *short_one = work;
    u64 result[4] = {0};
    char line[8];
    alarm(60);
    *(void **)&update = dlsym(driver, "cuGraphExecUpdate_v2");
    *(void **)&go = dlsym(driver, "cuGraphLaunch");
    failed += cu.cuStreamCreate(&other, NON_BLOCKING) != 0 || launch(other) != 0;
    work = kernel("30ms");
    failed += gpu.cuGraphInstantiateWithFlags(&made, captured(1), 0) != 0;
    for (int i = 0; i < 3; i++) failed += go(made, stream) != 0 || gpu.cuCtxSynchronize() != 0;
    usleep(300000);
    work = kernel("60s");
    failed += update(made, captured(1), result) != 0 || go(made, stream) != 0;
    work = short_one;
    u64 began = now();
    for (int i = 0; i < count; i++) failed += launch(other) != 0;
    say("beside after %llu ms", (now() - began) / MS);
    say("failed %d", failed);
    if (!fgets(line, sizeof line, stdin)) return;
}

static void *resets(void *nothing) {
    int (*reset)(int);
    *(void **)&reset = dlsym(driver, "cuDevicePrimaryCtxReset_v2");
    return reset(0) ? (void *)1l : nothing;
}

// Another thread resets the primary context while launches in this thread's own default stream are being measured.
static void after_reset(int count) {
    pthread_t other;
    void *code;
    int failed = 0;
    launch_on = dlsym(driver, "cuLaunchKernel_ptsz");
    for (int i = 0; i < 8; i++) failed += launch(NULL) != 0, failed += gpu.cuCtxSynchronize() != 0;
    for (int i = 0; i < 8; i++) failed += launch(NULL) != 0;
    pthread_create(&other, NULL, resets, NULL);
    pthread_join(other, &code);
    failed += code != NULL || cu.cuDevicePrimaryCtxRetain(&context, 0) != 0 || cu.cuCtxSetCurrent(context) != 0;
    work = kernel("10ms");
    u64 began = now();
    for (int i = 0; i < count; i++) failed += launch(NULL) != 0;
    failed += gpu.cuCtxSynchronize() != 0;
    say("failed %d", failed);
    say("took %llu ms", (now() - began) / MS);
}

// Between small kernels the stream waits for something other than the GPU. That is a host function: by either form of the call,
// in the default stream that blocks it, or in another stream.
static void between(const char *way, int count) {
    void *other = NULL, *event = NULL, *on = stream;
    int (*other_form)(void *, void (*)(void *), void *);
    *(void **)&other_form = dlsym(driver, "cuLaunchHostFunc_ptsz");
    int failed = cu.cuStreamCreate(&other, NON_BLOCKING) != 0 || gpu.cuEventCreate(&event, 0) != 0;
    if (!strcmp(way, "default")) failed += cu.cuStreamCreate(&on, 0) != 0;
    for (int i = 0; i < 200; i++) failed += launch(on) != 0;
    failed += gpu.cuCtxSynchronize() != 0;
    u64 began = now();
    for (int i = 0; i < count; i++) {
        failed += launch(on) != 0;
        if (!strcmp(way, "function")) {
            failed += host_function(on, nap, NULL) != 0;
        } else if (!strcmp(way, "form")) {
            failed += other_form(on, nap, NULL) != 0;
        } else if (!strcmp(way, "default")) {
            failed += host_function(NULL, nap, NULL) != 0;
        } else {
            failed += host_function(other, nap, NULL) != 0 || gpu.cuEventRecord(event, other) != 0;
            failed += gpu.cuStreamWaitEvent(on, event, 0) != 0;
        }
        // A charge delays the launches after it.
        if (i % 50 == 49) failed += cu.cuStreamSynchronize(on) != 0;
    }
    failed += gpu.cuCtxSynchronize() != 0;
    say("took %llu ms", (now() - began) / MS);
    say("failed %d", failed);
}

// Launches a kernel on each of two devices with one call. One device has a far smaller share than the other.
static void both_devices(const char *time, int count) {
    int (*on_all)(struct several *, unsigned, unsigned);
    *(void **)&on_all = dlsym(driver, "cuLaunchCooperativeKernelMultiDevice");
    struct several all[2] = {{work, {1, 1, 1}, {32, 1, 1}, 0, stream, NULL}};
    void *there = NULL;
    char line[8];
    int failed = cu.cuDevicePrimaryCtxRetain(&there, 1) != 0 || cu.cuCtxSetCurrent(there) != 0;
    all[1] = all[0];
    all[1].function = kernel(time);
    failed += cu.cuStreamCreate(&all[1].stream, NON_BLOCKING) != 0;
    // This kernel uses up the device's saved time.
    failed += launch_on(kernel("40ms"), 1, 1, 1, 32, 1, 1, 0, all[1].stream, NULL, NULL) != 0;
    failed += cu.cuStreamSynchronize(all[1].stream) != 0 || cu.cuCtxSetCurrent(context) != 0;
    for (int i = 0; i < count; i++) failed += on_all(all, 2, 0) != 0;
    failed += cu.cuStreamSynchronize(stream) != 0 || cu.cuStreamSynchronize(all[1].stream) != 0;
    say("failed %d", failed);
    if (!fgets(line, sizeof line, stdin)) return;
}

static volatile pid_t ending;

static void *destroys(void *which) {
    ending = syscall(SYS_gettid);
    return (void *)(long)cu.cuCtxDestroy_v2(which);
}

// A context ends while a kernel runs in it and one in another context, in which short kernels are launched afterwards.
static void ends(void) {
    pthread_t other;
    char line[16];
    void *code, *short_one = work, *of_all = context, *first, *long_one = kernel("3s");
    int failed = cu.cuCtxCreate_v2(&first, 0, 0);
    long in = -1;
    void *shorter = kernel("300ms");
    // Both kernels are unknown, so both are launched at once.
    failed |= cu.cuCtxSetCurrent(of_all);
    work = long_one;
    failed |= launch(stream) || cu.cuCtxSetCurrent(first);
    work = shorter;
    failed |= launch(NULL) || cu.cuCtxSetCurrent(of_all);
    usleep(50000);
    pthread_create(&other, NULL, destroys, first);
    // The thread that destroys the context sleeps in the driver, or the kernel does not tell.
    while (!ending || ((in = system_call_of(ending)) != SYS_clock_nanosleep && in != -2)) usleep(1000);
    say(in == -2 ? "untold" : "ending %d", failed);
    if (!fgets(line, sizeof line, stdin)) return;
    pthread_join(other, &code);
    work = short_one;
    for (int i = 0; i < 100; i++) failed |= launch(stream);
    failed |= gpu.cuCtxSynchronize();
    say("launched %d, destroyed %ld", failed, (long)code);
    if (!fgets(line, sizeof line, stdin)) return;
}

static void *elsewhere;
static volatile int is_loaded;
static int longest_pause;

// Launches in a context of another device until the code is loaded. Its kernel is known there.
static void *launches_elsewhere(void *in) {
    int failed = cu.cuCtxSetCurrent(in);
    u64 before = now();
    while (!is_loaded && !failed) {
        failed = launch_on(elsewhere, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
        u64 after = now();
        if ((after - before) / 1000000 > (u64)longest_pause) longest_pause = (after - before) / 1000000;
        before = after;
    }
    return (void *)(long)failed;
}

// Code is loaded into a context in which a long kernel runs. A thread launches on another device meanwhile. If `is_open`, the
// loading thread has just launched short kernels on another stream, whose batch is still open.
static void loads(int is_open) {
    pthread_t thread;
    void *other, *code, *beside = NULL;
    int failed = cu.cuCtxCreate_v2(&other, 0, 1);
    elsewhere = kernel("1ms");
    for (int i = 0; i < 20; i++) failed |= launch_on(elsewhere, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    failed |= gpu.cuCtxSynchronize() || cu.cuCtxSetCurrent(context) || cu.cuStreamCreate(&beside, NON_BLOCKING);
    void *brief = kernel("20us");
    for (int i = 0; i < 20; i++) failed |= launch_on(brief, 1, 1, 1, 32, 1, 1, 0, beside, NULL, NULL);
    failed |= gpu.cuCtxSynchronize();
    work = kernel("1s");
    pthread_create(&thread, NULL, launches_elsewhere, other);
    usleep(50000);
    for (int i = 0; is_open && i < 5; i++) failed |= launch_on(brief, 1, 1, 1, 32, 1, 1, 0, beside, NULL, NULL);
    failed |= launch(stream);
    if (!is_open) usleep(50000);
    long before = naps();
    u64 began = now();
    failed |= kernel("2ms") == NULL;
    int loading = (now() - began) / 1000000;
    long ticks = naps() - before;
    is_loaded = 1;
    pthread_join(thread, &code);
    say("failed %d, launches %ld", failed, (long)code);
    say("loaded in %d", loading);
    say("longest %d", longest_pause);
    say("ticks %ld", ticks);
}

// Launches that may begin before the previous one has ended, or may not, with a pause before them.
static void chained(int id) {
    struct { int id, padding; unsigned value[16]; } attribute = {id, 0, {1}};
    struct config config = {{1, 1, 1}, {32, 1, 1}, 0, stream, &attribute, id != 0};
    int (*launch_as)(const struct config *, void *, void **, void **) = dlsym(driver, "cuLaunchKernelEx");
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        failed += launch(stream) != 0 || gpu.cuCtxSynchronize() != 0;
        usleep(50000);
    }
    for (int i = 0; i < 12; i++) failed += launch_as(&config, work, NULL, NULL) != 0;
    failed += gpu.cuCtxSynchronize() != 0;
    say("failed %d", failed);
}

// Makes launches that are each measured alone, behind a first one.
static void stocked(int count) {
    char line[16];
    int failed = launch(stream) != 0 || gpu.cuCtxSynchronize() != 0;
    usleep(50000);
    say("stocked %d", failed);
    if (!fgets(line, sizeof line, stdin)) return;
    for (int i = 0; i < count; i++) failed += launch(stream) != 0;
    failed += gpu.cuCtxSynchronize() != 0;
    say("failed %d", failed);
    if (!fgets(line, sizeof line, stdin)) return;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    int number = count > 3 ? atoi(words[3]) : 40;
    if (count > 4) pause_us = atoi(words[4]);
    if (!open_all("dlsym")) return 3;
    launch_on = dlsym(driver, "cuLaunchKernel");
    *(void **)&host_function = dlsym(driver, "cuLaunchHostFunc");
    if (!strcmp(what, "exit")) return at_exit(), 0;
    if (!begin(count > 2 ? words[2] : "2ms")) return 3;
    if (!strcmp(what, "retains")) retains(number);
    else if (!strcmp(what, "threads")) threads(number);
    else if (!strcmp(what, "storm")) storm(number);
    else if (!strcmp(what, "late")) late();
    else if (!strcmp(what, "sealed")) sealed();
    else if (!strcmp(what, "green")) green(count > 3 ? words[3] : "stream");
    else if (!strcmp(what, "side-by-side")) side_by_side();
    else if (!strcmp(what, "one-held-up")) one_held_up();
    else if (!strcmp(what, "aside")) now_and_then_aside(number);
    else if (!strcmp(what, "shapes")) shapes(number);
    else if (!strcmp(what, "steps")) steps(number);
    else if (!strcmp(what, "held-up")) held_up(number);
    else if (!strcmp(what, "outlasts")) outlasts(number);
    else if (!strcmp(what, "after-reset")) after_reset(number);
    else if (!strcmp(what, "between")) between(count > 4 ? words[4] : "", number);
    else if (!strcmp(what, "both-devices")) both_devices(words[2], number);
    else if (!strcmp(what, "chained")) chained(number);
    else if (!strcmp(what, "stocked")) stocked(number);
    else if (!strcmp(what, "ends")) ends();
    else if (!strcmp(what, "loads")) loads(number);
    else if (!strcmp(what, "goes-on")) goes_on(number);
    else return 2;
    return 0;
}
