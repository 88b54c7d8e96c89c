// A busy member, and faults of its region.
//
// survivor THREADS: takes 8 MiB, says `ready`, and lets its threads take and free until they are refused for good. On a line it
// prints the status of that refusal, the statuses of further allocations, and whether all memory can be freed.
#include "host.h"
#include <pthread.h>

enum { PIECE = 8 << 20, MEBIBYTE = 1 << 20, MOST = 16 };

static void *context;

static void *busy(void *status) {
    u64 address;
    if (cu.cuCtxSetCurrent(context)) exit(4);
    do {
        *(int *)status = cu.cuMemAlloc_v2(&address, 4096);
        if (*(int *)status == 0 && cu.cuMemFree_v2(address)) exit(5);
    } while (*(int *)status == 0 || *(int *)status == 2);
    return NULL;
}

int main(int count, char **words) {
    pthread_t threads[MOST];
    int ended[MOST] = {0}, running = count > 1 ? atoi(words[1]) : 0;
    char line[16];
    u64 held, address;
    void *other;
    if (running > MOST || !start() || cu.cuCtxGetCurrent(&context) || cu.cuMemAlloc_v2(&held, PIECE)) return 3;
    for (int i = 0; i < running; i++) pthread_create(&threads[i], NULL, busy, &ended[i]);
    say("ready");
    for (int i = 0; i < running; i++) pthread_join(threads[i], NULL);
    for (int i = 1; i < running; i++)
        if (ended[i] != ended[0]) ended[0] = -1;
    if (running) say("refused");
    if (!fgets(line, sizeof line, stdin)) return 6;
    int first = cu.cuMemAlloc_v2(&address, MEBIBYTE), second = cu.cuMemAlloc_v2(&address, MEBIBYTE);
    int (*graph)(void *, void *, u64);
    *(void **)&graph = dlsym(driver, "cuGraphInstantiateWithFlags");
    say("threads %d, then %d %d, create %d, graph %d, init %d", ended[0], first, second,
        cu.cuCtxCreate_v2(&other, 0, 0), graph(NULL, NULL, 0), cu.cuInit(0));
    say("gives %d", cu.cuMemFree_v2(held));
    return 0;
}
