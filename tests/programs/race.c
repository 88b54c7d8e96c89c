// Races of processes and threads for the last byte of a quota.
//
// race processes N PIECE | threads N PIECE | pool N PIECE | last processes N PIECE | last threads N PIECE
// race killed QUOTA | heir QUOTA
// Each racer takes pieces of PIECE bytes until one is refused, and holds them until all are done.
#include "host.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static size_t piece;
static pthread_barrier_t ready, done;
static void *context;
static atomic_int granted;

static int from_pool; // whether pieces are taken in stream order

static int take_all(int *last) {
    u64 address;
    void *stream = NULL;
    int count = 0;
    if (from_pool) cu.cuStreamCreate(&stream, 0);
    while ((*last = from_pool ? cu.cuMemAllocAsync(&address, piece, stream) : cu.cuMemAlloc_v2(&address, piece)) == 0)
        count++;
    return count;
}

static void *racer(void *unused) {
    (void)unused;
    int last = 0;
    cu.cuCtxSetCurrent(context);
    pthread_barrier_wait(&ready);
    atomic_fetch_add(&granted, take_all(&last));
    if (last != 2) say("refused with %d", last);
    pthread_barrier_wait(&done);
    return NULL;
}

static int race_threads(int count) {
    pthread_t threads[64];
    if (count > 64 || !start()) return say("no start"), 3;
    cu.cuCtxGetCurrent(&context);
    pthread_barrier_init(&ready, NULL, count);
    pthread_barrier_init(&done, NULL, count);
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, racer, NULL);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    say("granted %d", granted);
    return 0;
}

// The parent closes `go` when all children have said that they are ready, and `end` when all are done.
static void child_of_race(int report, int go, int end) {
    char byte = 'r';
    int last = 0;
    if (!start()) _exit(3);
    if (write(report, &byte, 1) != 1 || read(go, &byte, 1) != 0) _exit(4);
    int count = take_all(&last);
    if (last != 2) say("refused with %d", last);
    if (write(report, &count, sizeof count) != sizeof count || read(end, &byte, 1) != 0) _exit(5);
    _exit(0);
}

static int race_processes(int count) {
    int report[2], go[2], end[2], sum = 0, status, failed = 0;
    if (pipe(report) || pipe(go) || pipe(end)) return 4;
    for (int i = 0; i < count; i++)
        if (fork() == 0) {
            close(go[1]), close(end[1]);
            child_of_race(report[1], go[0], end[0]);
        }
    close(report[1]);
    char byte;
    for (int i = 0; i < count; i++) failed += read(report[0], &byte, 1) != 1;
    close(go[1]);
    for (int i = 0, one; i < count; i++) {
        failed += read(report[0], &one, sizeof one) != sizeof one;
        sum += one;
    }
    close(end[1]);
    while (wait(&status) > 0) failed += status != 0;
    say("granted %d, failed %d", sum, failed);
    return 0;
}

// There is room for one piece, and all racers want it. First all ask at the same instant, round by round, and exactly one must
// get it. Then each asks as often as it can, and never two may have it.
enum { ROUNDS = 20000, TURNS = 50000 };

static struct meeting {
    atomic_int arrived, winners, holders, none, several;
} *meeting;
static int racers;

// Waits for the other racers. A racer spins first, so that all leave within nanoseconds of each other. It then sleeps, because a
// racer that spins on a busy machine keeps the processor from the one that it waits for.
static void meet(int *met) {
    *met += racers;
    int arrived = atomic_fetch_add(&meeting->arrived, 1) + 1;
    if (arrived == *met) syscall(SYS_futex, &meeting->arrived, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    for (int turns = 0; (arrived = meeting->arrived) < *met;)
        if (++turns > 2000) syscall(SYS_futex, &meeting->arrived, FUTEX_WAIT, arrived, NULL, NULL, 0);
}

static void race_for_last(int leader) {
    u64 address;
    int met = 0;
    for (int round = 0; round < ROUNDS / racers; round++) {
        if (leader) meeting->winners = 0;
        meet(&met);
        int won = cu.cuMemAlloc_v2(&address, piece) == 0;
        if (won) meeting->winners++;
        meet(&met);
        if (leader && meeting->winners == 0) meeting->none++;
        if (leader && meeting->winners > 1) meeting->several++;
        if (won) cu.cuMemFree_v2(address);
        meet(&met);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        if (cu.cuMemAlloc_v2(&address, piece) != 0) continue;
        if (meeting->holders++ > 0) meeting->several++;
        meeting->holders--;
        cu.cuMemFree_v2(address);
    }
}

static void *racer_for_last(void *leader) {
    cu.cuCtxSetCurrent(context);
    race_for_last(leader != NULL);
    return NULL;
}

static int race_last(int processes, int count) {
    pthread_t threads[64];
    int status, failed = 0;
    meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (meeting == MAP_FAILED || count > 64) return 4;
    racers = count;
    if (!processes && !start()) return say("no start"), 3;
    if (!processes) cu.cuCtxGetCurrent(&context);
    for (int i = 0; i < count; i++) {
        if (!processes) pthread_create(&threads[i], NULL, racer_for_last, i ? NULL : meeting);
        else if (fork() == 0) {
            if (!start()) _exit(3);
            race_for_last(i == 0);
            _exit(0);
        }
    }
    for (int i = 0; !processes && i < count; i++) pthread_join(threads[i], NULL);
    while (processes && wait(&status) > 0) failed += status != 0;
    say("nobody %d, several %d, failed %d", meeting->none, meeting->several, failed);
    return 0;
}

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// A child takes everything and is killed. Measures how long it takes until its parent can have the memory. With `heir`, the child
// has forked a child of its own before, which lives on.
static int killed(u64 quota, int heir) {
    int report[2];
    u64 address;
    if (pipe(report)) return 4;
    pid_t child = fork();
    if (!child) {
        if (!start() || cu.cuMemAlloc_v2(&address, quota) != 0) _exit(3);
        pid_t own = heir ? fork() : 1;
        if (own && write(report[1], &own, sizeof own) != sizeof own) _exit(4);
        for (;;) pause();
    }
    pid_t grandchild = 0;
    if (read(report[0], &grandchild, sizeof grandchild) != sizeof grandchild || !start()) return say("no start"), 3;
    say("while the other lives %d", cu.cuMemAlloc_v2(&address, 1));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    long from = milliseconds(), waited = 0;
    int status;
    while ((status = cu.cuMemAlloc_v2(&address, quota)) == 2 && (waited = milliseconds() - from) < 3000) usleep(1000);
    say("afterwards %d, %s", status, waited <= 1000 ? "within a second" : "late");
    if (heir) kill(grandchild, SIGKILL);
    return 0;
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "killed")) return killed(number(words[2]), 0);
    if (count == 3 && !strcmp(words[1], "heir")) return killed(number(words[2]), 1);
    if (count == 5 && !strcmp(words[1], "last")) {
        piece = number(words[4]);
        return race_last(!strcmp(words[2], "processes"), atoi(words[3]));
    }
    if (count < 4) return 2;
    piece = number(words[3]);
    if (!strcmp(words[1], "processes")) return race_processes(atoi(words[2]));
    from_pool = !strcmp(words[1], "pool");
    if (from_pool || !strcmp(words[1], "threads")) return race_threads(atoi(words[2]));
    return 2;
}
