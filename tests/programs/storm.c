// Busy processes, each killed at a random instant.
//
// storm PROCESSES THREADS SEED [MOST [LARGEST]]: forks processes whose threads take and free memory of every kind at random. A
// command is a line with microseconds. The program then kills all processes, each at an instant of its own within that time, and
// starts new ones. `0` ends. After each round it prints how many processes were killed, and how many had ended before. With MOST
// the processes end by themselves after MOST calls, and are counted instead. No allocation has more than LARGEST bytes.
#include "chance.h"
#include "graph_calls.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum { KEPT = 8, PROCESSES = 256, GRANULE = 2 << 20 };

static u64 most, largest = 256 << 10;
static int threads;
static void *context;

// A piece of memory, and the way to free it.
struct piece {
    enum { NONE, LINEAR, POOLED, PHYSICAL, MAPPED } kind;
    u64 address, handle;
};

static int take_physical(struct piece *piece, int map) {
    struct allocation wanted = {.kind = PINNED, .location = ON_DEVICE};
    if (cu.cuMemCreate(&piece->handle, GRANULE, &wanted, 0)) return 0;
    piece->kind = PHYSICAL;
    if (!map || cu.cuMemAddressReserve(&piece->address, GRANULE, 0, 0, 0)) return 1;
    if (cu.cuMemMap(piece->address, GRANULE, 0, piece->handle, 0)) _exit(7);
    if (cu.cuMemRelease(piece->handle)) _exit(7);
    piece->kind = MAPPED;
    return 1;
}

static void take(struct piece *piece, u64 *chance, void *stream) {
    u64 bytes = 1 + draw(chance, largest);
    size_t row;
    int is = draw(chance, 16);
    if (is < 4 && !cu.cuMemAlloc_v2(&piece->address, bytes)) piece->kind = LINEAR;
    else if (is == 4 && !cu.cuMemAllocPitch_v2(&piece->address, &row, 100, 1 + bytes / 512, 4)) piece->kind = LINEAR;
    else if (is == 5 && !cu.cuMemAllocManaged(&piece->address, bytes, 1)) piece->kind = LINEAR;
    else if (is >= 6 && is < 13 && !cu.cuMemAllocAsync(&piece->address, bytes, stream)) piece->kind = POOLED;
    else if (is >= 13) take_physical(piece, is & 1);
}

static void give(struct piece *piece, void *stream) {
    int status = 0;
    if (piece->kind == LINEAR) status = cu.cuMemFree_v2(piece->address);
    if (piece->kind == POOLED) status = cu.cuMemFreeAsync(piece->address, stream);
    if (piece->kind == PHYSICAL) status = cu.cuMemRelease(piece->handle);
    if (piece->kind == MAPPED)
        status = cu.cuMemUnmap(piece->address, GRANULE) || cu.cuMemAddressFree(piece->address, GRANULE);
    if (status) _exit(8);
    piece->kind = NONE;
}

// Makes, runs and ends a graph that allocates and frees.
static void run_graph(u64 *chance, void *stream) {
    void *made, *executable, *node, *end;
    struct allocation_node wanted = {.pool = {.kind = PINNED, .location = ON_DEVICE}, .bytes = 1 + draw(chance, largest)};
    if (graph.cuGraphCreate(&made, 0) || graph.cuGraphAddMemAllocNode(&node, made, NULL, 0, &wanted)) _exit(9);
    if (graph.cuGraphAddMemFreeNode(&end, made, &node, 1, wanted.address)) _exit(9);
    if (graph.cuGraphInstantiateWithFlags(&executable, made, 0) == 0) {
        if (graph.cuGraphLaunch(executable, stream) || graph.cuGraphExecDestroy(executable)) _exit(9);
        if (draw(chance, 2)) graph.cuDeviceGraphMemTrim(0);
    }
    if (graph.cuGraphDestroy(made)) _exit(9);
}

static void *busy(void *seed) {
    u64 chance = (u64)(size_t)seed;
    struct piece kept[KEPT] = {{0}};
    void *stream = NULL, *own = NULL;
    if (cu.cuCtxSetCurrent(context) || cu.cuStreamCreate(&stream, 1)) _exit(3);
    for (u64 calls = 0; !most || calls < most; calls++) {
        struct piece *piece = &kept[draw(&chance, KEPT)];
        if (piece->kind == NONE) take(piece, &chance, stream);
        else give(piece, stream);
        if (draw(&chance, 64) == 0) cu.cuStreamSynchronize(stream);
        if (draw(&chance, 64) == 0) run_graph(&chance, stream);
        if (draw(&chance, 24)) continue;
        // Makes a context for a moment, with memory in it.
        u64 address;
        if (cu.cuCtxCreate_v2(&own, 0, 0) == 0) {
            cu.cuMemAlloc_v2(&address, 1 + draw(&chance, largest));
            cu.cuCtxDestroy_v2(own);
            cu.cuCtxSetCurrent(context);
        }
    }
    return NULL;
}

static pid_t process(u64 seed) {
    pid_t child = fork();
    if (child < 0) exit(5);
    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(0);
    if (cu.cuInit(0)) _exit(3);
    int status;
    // A context needs memory as well, and others may have all of it.
    while ((status = cu.cuDevicePrimaryCtxRetain(&context, 0)) == 2) sched_yield();
    if (status) _exit(4);
    pthread_t other[64];
    for (int i = 1; i < threads; i++)
        if (pthread_create(&other[i], NULL, busy, (void *)(size_t)(seed + i))) _exit(6);
    busy((void *)(size_t)seed);
    for (int i = 1; i < threads; i++) pthread_join(other[i], NULL);
    _exit(0);
}

static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

static void pass(u64 microseconds) {
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&time, NULL);
}

int main(int count, char **words) {
    char line[64];
    pid_t children[PROCESSES];
    if (count < 4 || !enter("dlsym")) return 2;
    int processes = number(words[1]);
    threads = number(words[2]);
    u64 chance = number(words[3]);
    if (count > 4) most = number(words[4]);
    if (count > 5) largest = number(words[5]);
    if (processes > PROCESSES || threads > 64) return 2;
    say("ready");
    while (fgets(line, sizeof line, stdin) && number(line)) {
        int killed = 0, ended = 0, wrong = 0;
        for (int i = 0; i < processes; i++) children[i] = process(draw(&chance, 1u << 30) << 8);
        for (int i = 0; i < processes; i++) {
            if (!most) pass(draw(&chance, number(line)));
            if (!most) kill(children[i], SIGKILL);
            int status = wait_for(children[i]);
            if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) killed++;
            else if (status == 0) ended++;
            else say("ended with %x", status), wrong++;
        }
        say("%d %d %d", killed, ended, wrong);
    }
    return 0;
}
