// Uses of the driver at each moment of a process's life.
//
// lifetimes MOMENT: each moment prints the statuses of a short use of the driver.
#include "host.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PIECE = 2 << 20 };

static const char *moment = "";

// Uses the driver for a short time: starts it, takes memory, looks, frees.
static void use(const char *when) {
    void *context = NULL;
    u64 address = 0;
    size_t left = 0, total = 0;
    if (!driver && !open_driver()) {
        say("%s: no driver", when);
        return;
    }
    int init = cu.cuInit(0);
    int retain = cu.cuDevicePrimaryCtxRetain(&context, 0);
    int current = cu.cuCtxSetCurrent(context);
    int take = cu.cuMemAlloc_v2(&address, PIECE);
    int info = cu.cuMemGetInfo_v2(&left, &total);
    int give = cu.cuMemFree_v2(address);
    say("%s: %d %d %d, take %d, info %d, give %d", when, init, retain, current, take, info, give);
}

// Takes pieces until one is refused: the part of the quota that one process may hold.
static void count_pieces(const char *when, int most) {
    u64 address;
    int taken = 0, status = 0;
    while (taken < most && (status = cu.cuMemAlloc_v2(&address, PIECE)) == 0) taken++;
    say("%s: %d pieces, then %d", when, taken, status);
}

static void *use_in_thread(void *when) { return use(when), NULL; }

static void in_thread(const char *when) {
    pthread_t thread;
    pthread_create(&thread, NULL, use_in_thread, (void *)when);
    pthread_join(thread, NULL);
}

static void at_exit(void) { use("atexit handler"); }
static void of_key(void *value) { use(value); }

static void *with_key(void *key) {
    pthread_setspecific(*(pthread_key_t *)key, "key destructor");
    return NULL;
}

static void key_destructors(void) {
    pthread_key_t first, second;
    pthread_t thread;
    pthread_key_create(&first, of_key);
    use("main");
    pthread_key_create(&second, of_key);
    pthread_create(&thread, NULL, with_key, &first);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, with_key, &second);
    pthread_join(thread, NULL);
}

static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void in_child(void (*act)(const char *), const char *when) {
    pid_t child = fork();
    if (!child) {
        act(when);
        _exit(0);
    }
    say("%s ended with %d", when, wait_for(child));
}

static void exec_self(const char *next) {
    execl("/proc/self/exe", "lifetimes", next, NULL);
    _exit(9);
}

static void vfork_then_exec(void) {
    use("before vfork");
    pid_t child = vfork();
    if (!child) {
        execl("/proc/self/exe", "lifetimes", "thread", NULL);
        _exit(9);
    }
    say("vforked child ended with %d", wait_for(child));
    use("after vfork");
}

// A child of a process that has used the driver holds nothing of its parent's memory.
static void fork_while_holding(void) {
    u64 address;
    use("parent");
    say("parent takes %d", cu.cuMemAlloc_v2(&address, PIECE));
    in_child(use, "child");
    in_child(exec_self, "count");
    count_pieces("parent", 64);
}

// The driver answers a child's request, because a child has no slot in the slice and must not use its parent's. The request is
// for physical memory, because the call names its device itself.
static void ask_for_too_much(const char *when) {
    struct allocation wanted = {.kind = PINNED, .location = ON_DEVICE};
    u64 handle;
    say("%s asks for too much: %d", when, cu.cuMemCreate(&handle, 1ull << 45, &wanted, 0));
}

static void fork_and_ask_for_too_much(void) {
    use("parent");
    in_child(ask_for_too_much, "child");
    use("parent");
}

static void count_in_new_process(void) {
    if (start()) count_pieces("new process", 64);
}

// Programs that turn into daemons close all descriptors, the library's among them. They keep their memory nevertheless.
static void close_everything(void) {
    u64 address;
    use("before closing");
    int take = cu.cuMemAlloc_v2(&address, PIECE);
    for (int descriptor = 3; descriptor < 1024; descriptor++) close(descriptor);
    say("takes %d", take);
    in_child(exec_self, "count");
    count_pieces("after closing", 64);
    in_child(exec_self, "count");
}

static sigjmp_buf back;
static void jump(int signal) { siglongjmp(back, signal); }

// Leaves a driver call by a jump out of a signal handler. An injected fault delays the call.
static void jump_out(void) {
    u64 address;
    if (!start()) return;
    signal(SIGALRM, jump);
    int signal = sigsetjmp(back, 1);
    if (!signal) {
        ualarm(100000, 0);
        say("not interrupted: %d", cu.cuMemAllocManaged(&address, PIECE, 1));
        ualarm(0, 0);
    }
    say("came back by signal %d", signal);
    count_pieces("after the jump", 64);
}

// Function that the driver runs in a thread of its own. A program that calls the driver there breaks a rule, and may wait for
// ever if the call waits for the stream. These calls do not.
static void in_stream(void *unused) {
    (void)unused;
    int version = 0, count = 0;
    size_t left = 0, total = 0;
    int first = cu.cuDriverGetVersion(&version);
    int second = cu.cuDeviceGetCount(&count);
    say("host function: %d %d %d", first, second, cu.cuMemGetInfo_v2(&left, &total));
}
static void host_function(void) {
    int (*launch)(void *, void (*)(void *), void *);
    void *stream = NULL;
    use("before");
    *(void **)&launch = dlsym(driver, "cuLaunchHostFunc");
    int make = cu.cuStreamCreate(&stream, 0);
    int run = launch(stream, in_stream, NULL);
    say("stream %d, host function %d, wait %d", make, run, cu.cuStreamSynchronize(stream));
    use("after");
}

static void reopen(void) {
    for (int i = 0; i < 3; i++) {
        use("open");
        say("close %d", dlclose(driver));
        driver = NULL;
    }
    void *first = dlopen("libcuda.so.1", RTLD_NOW), *second = dlopen("libcuda.so.1", RTLD_NOW);
    say("handles are %s", first == second ? "one" : "two");
    say("closed %d %d", dlclose(first), dlclose(second));
    use("opened again");
}

static void *busy(void *unused) {
    (void)unused;
    void *context = NULL;
    u64 address;
    cu.cuDevicePrimaryCtxRetain(&context, 0);
    cu.cuCtxSetCurrent(context);
    for (;;)
        if (cu.cuMemAlloc_v2(&address, 4096) == 0) cu.cuMemFree_v2(address);
    return NULL;
}

static void exit_while_busy(void) {
    pthread_t thread;
    if (!start()) return;
    for (int i = 0; i < 4; i++) pthread_create(&thread, NULL, busy, NULL);
    u64 address;
    for (int i = 0; i < 100; i++)
        if (cu.cuMemAlloc_v2(&address, 4096) == 0) cu.cuMemFree_v2(address);
    say("leaves");
}

__attribute__((constructor)) static void before_main(int count, char **words, char **environment) {
    (void)environment;
    if (count > 1 && !strcmp(words[1], "constructor")) use("constructor");
    if (count > 1) moment = words[1];
}

__attribute__((destructor)) static void after_main(void) {
    if (!strcmp(moment, "destructor")) use("destructor");
}

int main(int count, char **words) {
    if (count < 2) return 2;
    const char *is = words[1];
    if (!strcmp(is, "constructor") || !strcmp(is, "destructor")) use("main");
    else if (!strcmp(is, "destructor_only")) moment = "destructor";
    else if (!strcmp(is, "thread")) in_thread("thread"), use("main"), in_thread("thread");
    else if (!strcmp(is, "atexit")) atexit(at_exit), use("main"), atexit(at_exit);
    else if (!strcmp(is, "atexit_only")) atexit(at_exit);
    else if (!strcmp(is, "key")) key_destructors();
    else if (!strcmp(is, "fork_first")) in_child(use, "child"), use("parent"), in_child(use, "child");
    else if (!strcmp(is, "fork_holding")) fork_while_holding();
    else if (!strcmp(is, "fork_too_much")) fork_and_ask_for_too_much();
    else if (!strcmp(is, "close")) close_everything();
    else if (!strcmp(is, "exec")) use("before exec"), exec_self("thread");
    else if (!strcmp(is, "vfork")) vfork_then_exec();
    else if (!strcmp(is, "jump")) jump_out();
    else if (!strcmp(is, "host_function")) host_function();
    else if (!strcmp(is, "reopen")) reopen();
    else if (!strcmp(is, "exit_busy")) exit_while_busy();
    else if (!strcmp(is, "count")) count_in_new_process();
    else return 2;
    return 0;
}
