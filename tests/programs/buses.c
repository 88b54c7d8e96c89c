// SIGBUS of the program's own: it reaches the program as without the library.
//
// buses HANDLER SOURCE: sets a handler of this sort, starts the driver and takes memory. Then the signal comes from this source.
// The program prints the handler's arguments and its own end.
#include "host.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static sigjmp_buf back;
static volatile char *page;
static volatile int jumps;

// Returns the set of blocked signals as a number.
static unsigned long blocked(void) {
    sigset_t set;
    unsigned long bits = 0;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    for (int signal = 1; signal < 32; signal++)
        if (sigismember(&set, signal)) bits |= 1ul << signal;
    return bits;
}

static char other_stack[1 << 16];
static int on_other_stack(void) {
    char here;
    return &here >= other_stack && &here < other_stack + sizeof other_stack;
}

static void told(int signal, int code, const volatile void *address, int value) {
    const char *where = address == page ? "the page" : "elsewhere";
    say("handler: signal %d, code %d, at %s, value %d, blocked %lx, %s stack", signal, code, where, value, blocked(),
        on_other_stack() ? "other" : "usual");
}

static void leave(void) {
    if (jumps++ < 2) siglongjmp(back, 1);
    _exit(5);
}

static void plain(int signal) {
    told(signal, 0, page, 0);
    leave();
}
static void detailed(int signal, siginfo_t *info, void *context) {
    if (!context) _exit(6);
    int sent = info->si_code <= 0;
    told(signal, info->si_code, sent ? page : info->si_addr, sent ? info->si_value.sival_int : 0);
    leave();
}
// Returns to the program, so that a signal that is no fault does not end it.
static void returning(int signal, siginfo_t *info, void *context) {
    (void)context;
    told(signal, info->si_code, page, info->si_code <= 0 ? info->si_value.sival_int : 0);
    if (info->si_code > 0 && jumps++ > 2) _exit(5);
}

static void set(const char *name) {
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    if (sigaltstack(&stack, NULL)) _exit(9);
    action.sa_sigaction = detailed;
    if (!strcmp(name, "default")) return;
    if (!strcmp(name, "ignore")) action.sa_handler = SIG_IGN, action.sa_flags = 0;
    else if (!strcmp(name, "plain")) action.sa_handler = plain, action.sa_flags = 0;
    else if (!strcmp(name, "mask")) sigaddset(&action.sa_mask, SIGUSR1);
    else if (!strcmp(name, "nodefer")) action.sa_flags |= SA_NODEFER;
    else if (!strcmp(name, "once")) action.sa_flags |= SA_RESETHAND;
    else if (!strcmp(name, "stack")) action.sa_flags |= SA_ONSTACK;
    else if (!strcmp(name, "returning")) action.sa_sigaction = returning;
    else if (strcmp(name, "detailed")) _exit(9);
    if (sigaction(SIGBUS, &action, NULL)) _exit(9);
}

static void make_page(void) {
    int file = memfd_create("short", 0);
    if (file < 0 || ftruncate(file, 4096)) _exit(9);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED || ftruncate(file, 0)) _exit(9);
}

static void *touch(void *unused) {
    (void)unused;
    if (!sigsetjmp(back, 1)) page[0] = 1;
    return NULL;
}

static void come(const char *source) {
    if (!strcmp(source, "fault")) page[0] = 1;
    else if (!strcmp(source, "kill")) kill(getpid(), SIGBUS);
    else if (!strcmp(source, "raise")) raise(SIGBUS);
    else if (!strcmp(source, "queue")) sigqueue(getpid(), SIGBUS, (union sigval){.sival_int = 42});
    else if (!strcmp(source, "thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, touch, NULL);
        pthread_join(thread, NULL);
    } else if (!strcmp(source, "blocked")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGBUS);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        page[0] = 1;
    } else _exit(9);
}

int main(int count, char **words) {
    u64 address;
    if (count < 3) return 2;
    // A handler that is set later gets the signal as well, and the library's handler is gone.
    int late = !strncmp(words[1], "late_", 5);
    if (!late) set(words[1]);
    if (!start() || cu.cuMemAlloc_v2(&address, 1 << 20)) return 3;
    if (late) set(words[1] + 5);
    make_page();
    // The driver may have left another value, for example of a lock that it waited for.
    errno = ENOTTY;
    for (int i = 0; i < 2; i++) {
        if (!sigsetjmp(back, 1)) come(words[2]);
        say("goes on, blocked %lx, errno %d", blocked(), errno);
    }
    say("gives %d", cu.cuMemFree_v2(address));
    return 0;
}
