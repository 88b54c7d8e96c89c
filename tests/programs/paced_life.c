// Ends, forks and signals of a process while its launches are paced.
//
// paced_life WHAT KERNEL: each prints its observations. They are the same with and without a limit if the test says so.
#include "paced.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { THREADS = 4 };

static volatile int is_over, launches;
static const char *self, *kernel_name;

static void *launching(void *on) {
    cu.cuCtxSetCurrent(context);
    int code = 0;
    while (!is_over && !code) code = launch(on), __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
    return (void *)(long)code;
}

static pthread_t threads[THREADS];

// Starts threads that launch as fast as they may. They have begun when this returns.
static void begin_threads(void) {
    for (int i = 0; i < THREADS; i++) {
        void *own = NULL;
        cu.cuStreamCreate(&own, NON_BLOCKING);
        pthread_create(&threads[i], NULL, launching, own);
    }
    while (__atomic_load_n(&launches, __ATOMIC_RELAXED) < 30) usleep(500);
}

static void end_threads(void) {
    void *code;
    is_over = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], &code), say("thread %ld", (long)code);
}

static void at_exit(void) { say("at exit %d", launch(stream)); }
static void at_quick_exit_(void) { say("at quick exit"); }

static void *ends_by_exit(void *nothing) { return usleep(20000), exit(5), nothing; }

static void end(const char *how) {
    atexit(at_exit);
    at_quick_exit(at_quick_exit_);
    begin_threads();
    if (!strcmp(how, "exit")) exit(3);
    if (!strcmp(how, "_exit")) _exit(4);
    if (!strcmp(how, "quick_exit")) quick_exit(6);
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "exec")) execl(self, self, "after", kernel_name, NULL);
    if (!strcmp(how, "thread")) {
        pthread_t other;
        pthread_create(&other, NULL, ends_by_exit, NULL);
        pthread_join(other, NULL);
    }
    if (!strcmp(how, "first")) {
        // The main thread ends first. Another thread ends the process, because the driver's own threads would keep it alive for
        // ever.
        pthread_t other;
        pthread_create(&other, NULL, ends_by_exit, NULL);
        pthread_exit(NULL);
    }
    // "return"
}

// Forks children of a process whose launches wait.
static void children(void) {
    begin_threads();
    for (int i = 0; i < 24; i++) {
        int status = -1, before = launches;
        pid_t child = i % 4 == 3 ? vfork() : fork();
        if (!child) {
            if (i % 4 == 0) _exit(10);
            if (i % 4 == 1) _exit(launch(stream) == 0 ? 11 : 12);
            execl(self, self, "after", kernel_name, NULL);
            _exit(13);
        }
        waitpid(child, &status, 0);
        while (__atomic_load_n(&launches, __ATOMIC_RELAXED) == before) usleep(500);
        say("child %d: %x", i % 4, status);
    }
    end_threads();
}

// Counts the workers of the library, and checks that each of its threads has all signals blocked.
static void other_threads(const char *when) {
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0, open = 0;
    while ((entry = readdir(tasks))) {
        char path[300], line[256], name[64] = "";
        u64 blocked = 0;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof line, file)) {
            if (!strncmp(line, "Name:", 5)) sscanf(line + 5, "%63s", name);
            if (!strncmp(line, "SigBlk:", 7)) blocked = strtoull(line + 7, NULL, 16);
        }
        if (file) fclose(file);
        if (strncmp(name, "gpuslice", 8)) continue;
        count += !strcmp(name, "gpuslice"); // the worker: the others come and go
        // The library leaves five signals open: the two that cannot be blocked, the two that the C library keeps for itself, and
        // SIGBUS. If SIGBUS were blocked, a shortened region would end the process.
        open += (blocked | 0x180040140) != ~(u64)0 || blocked & 0x40;
    }
    closedir(tasks);
    say("%s: %d threads of the library, %d with open signals", when, count, open);
}

static int descriptors(void) {
    DIR *open_files = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(open_files)) count++;
    closedir(open_files);
    return count;
}

// Prints the threads while launches are paced, and after a while without launches.
static void thread_count(void) {
    sigset_t mask, before;
    struct sigaction action, first;
    memset(&mask, 0, sizeof mask), memset(&before, 0, sizeof before);
    sigprocmask(SIG_SETMASK, NULL, &before), sigaction(SIGUSR1, NULL, &first);
    other_threads("before");
    for (int i = 0; i < 200; i++) launch(stream);
    gpu.cuCtxSynchronize();
    int open_files = descriptors();
    other_threads("then");
    for (int i = 0; i < 200; i++) launch(stream);
    gpu.cuCtxSynchronize();
    usleep(200000);
    other_threads("later");
    sigprocmask(SIG_SETMASK, NULL, &mask), sigaction(SIGUSR1, NULL, &action);
    say("mask %s, action %s, descriptors %s", memcmp(&mask, &before, sizeof mask) ? "changed" : "kept",
        action.sa_handler != first.sa_handler || action.sa_flags != first.sa_flags ? "changed" : "kept", descriptors() > open_files ? "more" : "no more");
}

static volatile int by_program, by_others;
static void handler(int signal) {
    char name[32] = "";
    int file = open("/proc/thread-self/comm", O_RDONLY);
    int length = read(file, name, sizeof name - 1);
    close(file);
    (void)signal;
    if (length > 0 && !strncmp(name, "gpuslice", 8)) by_others++;
    else by_program++;
}

// Thousands of signals reach a process whose launches wait. They interrupt no launch and come to the program's own threads.
static void signals(void) {
    struct itimerval often = {{0, 700}, {0, 700}};
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGALRM, &action, NULL), sigaction(SIGUSR1, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    int failed = 0;
    for (int i = 0; i < 400; i++) failed += launch(stream) != 0, kill(getpid(), SIGUSR1);
    // Only the library's thread could take these.
    sigset_t all;
    sigfillset(&all), pthread_sigmask(SIG_BLOCK, &all, NULL);
    int before = by_others;
    for (int i = 0; i < 400; i++) failed += launch(stream) != 0, kill(getpid(), SIGUSR1);
    say("failed %d, %s signals, %d elsewhere, %d of them blocked", failed, by_program > 100 ? "many" : "few", by_others,
        by_others - before);
}

// A SIGBUS that is sent to a process whose threads all block it stays pending until a thread takes it.
static void waiting_bus(void) {
    sigset_t bus, pending;
    siginfo_t said;
    struct timespec none = {0, 0};
    sigemptyset(&bus), sigaddset(&bus, SIGBUS), pthread_sigmask(SIG_BLOCK, &bus, NULL);
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 50; j++) launch(stream);
        if (i % 2) sigqueue(getpid(), SIGBUS, (union sigval){.sival_int = 42});
        else kill(getpid(), SIGBUS);
        for (int j = 0; j < 50; j++) launch(stream);
        sigpending(&pending);
        int waits = sigismember(&pending, SIGBUS), taken = sigtimedwait(&bus, &said, &none);
        say("waits %d, taken %d, code %d, value %d", waits, taken, said.si_code, i % 2 ? said.si_value.sival_int : 0);
    }
}

// Does the same as `waiting_bus`, and then checks that everything is as before after a while.
static void bus_and_after(void) {
    waiting_bus();
    for (int i = 0; i < 50; i++) launch(stream);
    usleep(20000);
    other_threads("after");
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    self = words[0], kernel_name = count > 2 ? words[2] : "1ms";
    setvbuf(stdout, NULL, _IONBF, 0);
    if (!open_all("dlsym") || !begin(kernel_name)) return 8;
    launch_on = dlsym(driver, "cuLaunchKernel");
    if (!strcmp(what, "after")) return say("after exec %d %d", launch(stream), gpu.cuCtxSynchronize()), 9;
    if (!strcmp(what, "children")) children();
    else if (!strcmp(what, "threads")) thread_count();
    else if (!strcmp(what, "signals")) signals();
    else if (!strcmp(what, "bus")) waiting_bus();
    else if (!strcmp(what, "after_bus")) bus_and_after();
    else end(what);
    return 0;
}
