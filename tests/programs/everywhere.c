// The library with the C library that this program is started with.
//
// everywhere QUOTA: looks the driver up, and takes a quota's worth in four pieces and one piece more. It does so in this process
// and in a forked child, from several threads. It also shows that forwarded calls arrive. It uses only functions that
// tests/bench/null_driver.c has.
#include "host.h"
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

static size_t piece;

static void take_all(const char *who) {
    u64 taken[4] = {0}, more = 0;
    int statuses[4], over;
    for (int i = 0; i < 4; i++) statuses[i] = cu.cuMemAlloc_v2(&taken[i], piece);
    over = cu.cuMemAlloc_v2(&more, piece);
    say("%s: four pieces %d %d %d %d, one more %d", who, statuses[0], statuses[1], statuses[2], statuses[3], over);
    for (int i = 0; i < 4; i++) cu.cuMemFree_v2(taken[i]);
    if (!over) cu.cuMemFree_v2(more);
}

static void *churn(void *failures) {
    for (int i = 0; i < 2000; i++) {
        u64 address = 0;
        void *(*look_up)(void *, const char *) = dlsym;
        if (look_up(driver, "cuMemAlloc_v2") != (void *)cu.cuMemAlloc_v2) __atomic_fetch_add((int *)failures, 1, 0);
        if (cu.cuMemAlloc_v2(&address, piece) || cu.cuMemFree_v2(address)) __atomic_fetch_add((int *)failures, 1, 0);
    }
    return NULL;
}

int main(int count, char **words) {
    int version = 0, failures = 0, status = 0;
    pthread_t threads[4];
    piece = count > 1 ? number(words[1]) / 4 : 0;
    say("getpid %s", dlsym(RTLD_DEFAULT, "getpid") ? "found" : "not found");
    say("nothing %s", dlsym(RTLD_DEFAULT, "no_such_function") ? "found" : "not found");
    say("an error of the loader %s", dlerror() ? "is told" : "is lost");
    if (!open_driver()) return say("no driver: %s", dlerror()), 0;
    errno = 77;
    int init = cu.cuInit(0);
    int asked = cu.cuDriverGetVersion(&version);
    say("init %d, version %d %d, errno %d", init, asked, version, errno);
    take_all("here");
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, churn, &failures);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    say("threads: %d failures", failures);
    pid_t child = fork();
    if (!child) {
        take_all("child");
        _exit(0);
    }
    waitpid(child, &status, 0);
    say("child ended with %d", status);
    take_all("again");
    return 0;
}
