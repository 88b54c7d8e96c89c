// Ways in which a process ends or seems to end.
//
// deaths WAY: takes 8 MiB, prints `holds`, waits for a line, and then ends in this way. A daemon prints its number and closes all
// descriptors once it holds its memory.
#include "host.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { PIECE = 8 << 20, CHILDREN = 20, DUMPED = 64 << 20 };

static void await(void) {
    char line[16];
    if (!fgets(line, sizeof line, stdin)) _exit(9);
}

static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

static volatile int last_words;

static void *busy(void *unused) {
    (void)unused;
    void *context = NULL;
    u64 address;
    cu.cuDevicePrimaryCtxRetain(&context, 0);
    cu.cuCtxSetCurrent(context);
    while (!last_words)
        if (cu.cuMemAlloc_v2(&address, 4096) == 0) cu.cuMemFree_v2(address);
    return NULL;
}

static pthread_t workers[4];
static void be_busy(void) {
    for (int i = 0; i < 4; i++) pthread_create(&workers[i], NULL, busy, NULL);
}
static void rest(void) {
    last_words = 1;
    for (int i = 0; i < 4; i++) pthread_join(workers[i], NULL);
}

static void *leave(void *unused) {
    (void)unused;
    _exit(4);
}
static void leave_in_a_thread(void) {
    pthread_t thread;
    be_busy();
    pthread_create(&thread, NULL, leave, NULL);
    for (;;) pause();
}

static void leave_on_signal(int signal) { _exit(signal == SIGALRM ? 4 : 9); }
static void leave_in_a_handler(void) {
    signal(SIGALRM, leave_on_signal);
    ualarm(3000, 0);
    busy(NULL);
}

static pthread_t main_thread;
static void *outlive(void *unused) {
    (void)unused;
    void *context = NULL;
    u64 address;
    cu.cuDevicePrimaryCtxRetain(&context, 0);
    cu.cuCtxSetCurrent(context);
    // The process goes on without its main thread, and the driver's threads would keep it alive for ever.
    pthread_join(main_thread, NULL);
    _exit(cu.cuMemAlloc_v2(&address, 4096));
}
static void leave_the_main_thread(void) {
    pthread_t thread;
    main_thread = pthread_self();
    pthread_create(&thread, NULL, outlive, NULL);
    pthread_exit(NULL);
}

static int overflow(int depth) {
    volatile char room[4096];
    room[0] = (char)depth;
    return depth < 1 << 30 ? overflow(depth + 1) + room[0] : 0;
}

static void touch_what_is_not_there(void) {
    int file = memfd_create("short", 0);
    if (file < 0 || ftruncate(file, 4096)) _exit(9);
    volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED || ftruncate(file, 0)) _exit(9);
    page[0] = 1;
}

static void become_another_program(void) {
    be_busy();
    execl("/bin/true", "true", NULL);
    _exit(9);
}

static void spawn_children(void) {
    extern char **environ;
    char *words[] = {"true", NULL};
    be_busy();
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child;
        if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environ) || wait_for(child)) _exit(8);
    }
    rest();
}

static void fork_children(void) {
    be_busy();
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = i & 1 ? fork() : vfork();
        if (child == 0) _exit(0);
        if (child < 0 || wait_for(child)) _exit(8);
    }
    rest();
}

// A child of a killed parent holds no memory and has no slot.
static void leave_a_child(void) {
    int hold[2];
    if (pipe(hold)) _exit(9);
    if (fork() == 0) {
        close(hold[1]);
        char byte;
        // Lives until its standard input ends, which the test holds.
        while (read(0, &byte, 1) > 0) {}
        _exit(0);
    }
    kill(getpid(), SIGKILL);
}

static void close_the_driver(void) {
    if (dlclose(driver)) _exit(9);
}

static void stand_still(void) { await(); }
static void be_suspended(void) {
    be_busy();
    await();
    rest();
}

static void interrupt(void) { __asm__ volatile("int3"); }
static void die_of(int signal) { kill(getpid(), signal); }
static void by_term(void) { die_of(SIGTERM); }
static void by_xcpu(void) { die_of(SIGXCPU); }
static void by_segv(void) { *(volatile int *)8 = 1; }
// The kernel writes 64 MiB of the process into a file before it frees any of its memory.
static void with_a_core(void) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    char *memory = malloc(DUMPED);
    if (!memory || setrlimit(RLIMIT_CORE, &all)) _exit(9);
    memset(memory, 1, DUMPED);
    abort();
}
static void by_overflow(void) { _exit(overflow(0)); }
static void by_exit(void) { exit(4); }
static void by_quick_exit(void) { quick_exit(4); }
static void by_exit_now(void) { _exit(4); }

static const struct way {
    const char *name;
    void (*act)(void);
} ways[] = {
    {"return", stand_still},          {"exit", by_exit},         {"quick_exit", by_quick_exit},
    {"exit_now", by_exit_now},        {"thread", leave_in_a_thread}, {"handler", leave_in_a_handler},
    {"main_thread", leave_the_main_thread}, {"abort", abort},    {"trap", interrupt},
    {"term", by_term},                {"limit", by_xcpu},        {"segment", by_segv},
    {"overflow", by_overflow},        {"bus", touch_what_is_not_there}, {"exec", become_another_program},
    {"spawn", spawn_children},        {"fork", fork_children},   {"child", leave_a_child},
    {"unload", close_the_driver},     {"suspended", be_suspended},
    {"core", with_a_core},
};

static int take_and_tell(void) {
    u64 address;
    return start() && cu.cuMemAlloc_v2(&address, PIECE) == 0;
}

// Forks twice, leads a session of its own, and has no descriptor left.
static int become_a_daemon(void) {
    pid_t child = fork();
    if (child) return wait_for(child) == 0 ? 0 : 9;
    setsid();
    if (fork()) _exit(0);
    if (!take_and_tell()) _exit(9);
    say("%d", getpid());
    alarm(300);
    for (int descriptor = 0; descriptor < 1024; descriptor++) close(descriptor);
    for (;;) pause();
}

int main(int count, char **words) {
    if (count < 2) return 2;
    if (!strcmp(words[1], "daemon")) return become_a_daemon();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(words[1], ways[i].name)) continue;
        if (!take_and_tell()) return 3;
        say("holds");
        await();
        ways[i].act();
        return 0;
    }
    return 2;
}
