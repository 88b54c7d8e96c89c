// Launches that a signal handler interrupts, and mostly leaves by a jump: the program never returns to the launch.
//
// paced_jumps WHAT KERNEL_TIME [COUNT]: prints statuses and, in milliseconds, how long it took.
#include "worker_naps.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

enum { MS = 1000000 };

static sigjmp_buf out;
static void jump(int number) { siglongjmp(out, number); }

static void *interrupts(void *thread) {
    usleep(100000);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}

// Launches once, and leaves that launch after 0.1 s. Tells whether it was left.
static int leave_one(void) {
    pthread_t self = pthread_self(), other;
    volatile int is_left = 0;
    signal(SIGUSR1, jump);
    pthread_create(&other, NULL, interrupts, &self);
    if (sigsetjmp(out, 1)) is_left = 1;
    else launch(stream);
    pthread_join(other, NULL);
    return is_left;
}

// Tells whether the worker sleeps for 0.2 s without a tick, within 10 s. A worker that ticks sleeps for 1 ms at a time.
static int is_worker_asleep(void) {
    for (u64 end = now() + 10000ull * MS; now() < end;) {
        long before = naps();
        usleep(200000);
        if (before >= 0 && naps() == before) return 1;
    }
    return 0;
}

// Launches that wait for the share are left.
static void waiting(int count) {
    pthread_t self = pthread_self(), other;
    signal(SIGUSR1, jump);
    launch(stream), gpu.cuCtxSynchronize();
    u64 began = now();
    for (volatile int i = 0; i < count; i++) {
        if (sigsetjmp(out, 1) == 0) {
            pthread_create(&other, NULL, interrupts, &self);
            while (!launch(stream)) {}
            say("a launch failed");
        }
        pthread_join(other, NULL);
    }
    int failed = launch(stream);
    say("launched %d", failed);
    say("took %llu ms", (now() - began) / MS);
}

// A launch is left inside the driver. The later launches come from the same depth of the stack.
static void inside(int count) {
    launch(stream), gpu.cuCtxSynchronize();
    int is_left = leave_one();
    u64 began = now();
    for (int i = 0; i < count; i++) launch(stream);
    gpu.cuCtxSynchronize();
    say("left %d", is_left);
    say("took %llu ms", (now() - began) / MS);
}

static void *leaves_and_ends(void *nothing) {
    cu.cuCtxSetCurrent(context);
    say("left %d", leave_one());
    return nothing;
}

// A thread leaves its launch inside the driver, and ends.
static void last_of_its_thread(void) {
    pthread_t thread;
    launch(stream), gpu.cuCtxSynchronize();
    pthread_create(&thread, NULL, leaves_and_ends, NULL);
    pthread_join(thread, NULL);
    gpu.cuCtxSynchronize();
    say("asleep %d", is_worker_asleep());
}

// The first launch of a function is left inside the driver. Later launches are of a function that is known.
static void loading(int count) {
    void *known = work, *new = kernel("1ms");
    int failed = 0;
    for (int i = 0; i < 3; i++) failed += launch(stream) != 0 || gpu.cuCtxSynchronize() != 0;
    work = new;
    say("left %d", leave_one());
    work = known;
    for (int i = 0; i < count; i++) failed += launch(stream) != 0;
    say("failed %d", failed + gpu.cuCtxSynchronize());
    say("asleep %d", is_worker_asleep());
}

static volatile int is_handled;
static volatile u64 nested_took;

// Launches from a depth of the stack that no launch of the program reaches.
static void launch_deep(int number) {
    volatile char deep[64 << 10];
    deep[0] = number;
    launch(stream);
    is_handled = deep[0];
}

static void launch_nested(int number) {
    u64 began = now();
    for (int i = 0; i < 5; i++) launch(stream);
    nested_took = (now() - began) / MS + (number == 0);
}

static pid_t launching;

// Waits until the launching thread is in a system call and stays there for 20 looks.
static void await_call(long wanted) {
    for (int seen = 0; seen < 20; usleep(1000)) seen = system_call_of(launching) == wanted ? seen + 1 : 0;
}

static void *interrupts_twice(void *thread) {
    await_call(SYS_futex);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    while (!is_handled) usleep(1000);
    await_call(SYS_clock_nanosleep);
    pthread_kill(*(pthread_t *)thread, SIGUSR2);
    return NULL;
}

// A handler launches while the thread waits for its share, and another one while the thread is inside the driver afterwards.
static void handlers(void) {
    pthread_t self = pthread_self(), other;
    launching = syscall(SYS_gettid);
    signal(SIGUSR1, launch_deep), signal(SIGUSR2, launch_nested);
    // The kernel is known afterwards, so that a launch waits for the share alone.
    for (int i = 0; i < 2; i++) launch(stream), gpu.cuCtxSynchronize();
    pthread_create(&other, NULL, interrupts_twice, &self);
    while (!nested_took) launch(stream);
    pthread_join(other, NULL);
    say("handled %d", is_handled == SIGUSR1);
    say("nested %llu ms", nested_took);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    int number = count > 3 ? atoi(words[3]) : 40;
    alarm(120);
    if (!open_all("dlsym") || !begin(count > 2 ? words[2] : "2ms")) return 3;
    launch_on = dlsym(driver, "cuLaunchKernel");
    if (!strcmp(what, "waiting")) waiting(number);
    else if (!strcmp(what, "inside")) inside(number);
    else if (!strcmp(what, "last")) last_of_its_thread();
    else if (!strcmp(what, "loading")) loading(number);
    else if (!strcmp(what, "handlers")) handlers();
    else return 2;
    return 0;
}
