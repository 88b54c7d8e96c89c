// Graphs with memory beside captures, on several devices, among threads, and in a process that dies.
//
// graph_life DOOR WHAT QUOTA
#include "graphs.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

// A captured allocation belongs to no pool and is not charged, even without room: on a stream, and on the thread's own stream.
static int begin_capture(void *stream) {
    return stream ? graph.cuStreamBeginCapture_v2(stream, 2) : graph.cuStreamBeginCapture_v2_ptsz(NULL, 2);
}
static int end_capture(void *stream, void **made) {
    return stream ? graph.cuStreamEndCapture(stream, made) : graph.cuStreamEndCapture_ptsz(NULL, made);
}
static int allocate_on(void *stream, u64 *address) {
    return stream ? cu.cuMemAllocAsync(address, 32 * MIB, stream) : cu.cuMemAllocAsync_ptsz(address, 32 * MIB, NULL);
}
static int free_on(void *stream, u64 address) {
    return stream ? cu.cuMemFreeAsync(address, stream) : cu.cuMemFreeAsync_ptsz(address, NULL);
}
static void capture_on(void *stream) {
    u64 address[3] = {0}, full = 0;
    int code;
    void *of = NULL, *made;
    begin_capture(stream);
    code = allocate_on(stream, &address[0]);
    code |= allocate_on(stream, &address[1]);
    TELL("captured", code);
    TELL("free in the capture", free_on(stream, address[0]));
    end_capture(stream, &of);
    made = instantiate(of, 0, &code);
    TELL("instantiate", code);
    TELL("launch", graph.cuGraphLaunch(made, streams[0]));
    TELL("free in order", cu.cuMemFreeAsync(address[1], streams[0]));
    wait_all();
    TELL("destroy", graph.cuGraphExecDestroy(made));
    TELL("trim", graph.cuDeviceGraphMemTrim(0));
    TELL("the whole quota", cu.cuMemAlloc_v2(&full, quota));
    begin_capture(stream);
    TELL("captured without room", allocate_on(stream, &address[2]));
    end_capture(stream, &of);
    made = instantiate(of, 0, &code);
    TELL("instantiate", code);
    if (made != UNTOUCHED) say("the output was written");
    // The pool knows nothing of the captured and freed memory, so it has no room for this allocation.
    TELL("of the pool without room", allocate_on(stream, &address[2]));
    TELL("free", cu.cuMemFree_v2(full));
    TELL("of the pool", allocate_on(stream, &full));
    TELL("free in order", free_on(stream, full));
    if (stream) cu.cuStreamSynchronize(stream);
    else cu.cuStreamSynchronize_ptsz(NULL);
}
static void capture(void) {
    capture_on(streams[0]);
    capture_on(NULL);
}

// A capture of another thread goes on while the library makes room.
static void *capturing(void *unused) {
    void *made = NULL;
    (void)unused;
    cu.cuCtxSetCurrent(context);
    graph.cuStreamBeginCapture_v2(streams[1], 0);
    is_open = 1;
    while (is_open) usleep(200);
    return (void *)(long)graph.cuStreamEndCapture(streams[1], &made);
}
static void unspoiled(void) {
    int code;
    void *of = simple(64, 1, NULL), *next = simple(64, 1, NULL), *made = instantiate(of, 0, &code), *answer = NULL;
    graph.cuGraphLaunch(made, streams[0]), cu.cuStreamSynchronize(streams[0]);
    graph.cuGraphExecDestroy(made);
    pthread_t thread;
    is_open = 0;
    pthread_create(&thread, NULL, capturing, NULL);
    while (!is_open) usleep(200);
    say("another thread captures, " STATE, NOW);
    made = instantiate(next, 0, &code);
    is_open = 0;
    pthread_join(thread, &answer);
    say("instantiate %d, capture %ld, " STATE, code, (long)answer, NOW);
}

// Captures in the mode that forbids most, on one stream. Meanwhile another thread takes and frees memory in the order of another
// stream; then the capturing thread does. The captured work runs afterwards.
static int ran;
static void runs(void *nothing) {
    (void)nothing;
    ran++;
}
static int begin_beside(void) {
    int code = graph.cuStreamBeginCapture_v2(streams[1], 0);
    return code ? code : graph.cuLaunchHostFunc(streams[1], runs, NULL);
}
static void end_beside(int begun) {
    void *of = NULL, *made = NULL;
    int end = graph.cuStreamEndCapture(streams[1], &of), made_it = -1, launched = -1;
    ran = 0;
    if (!end) made = instantiate(of, 0, &made_it);
    if (!made_it) launched = graph.cuGraphLaunch(made, streams[1]);
    cu.cuStreamSynchronize(streams[1]);
    say("capture %d, end %d, instantiate %d, launch %d, ran %d", begun, end, made_it, launched, ran);
}
static int taken_by(int way, u64 bytes) {
    static void *own;
    u64 address = 0;
    void *on = way % 2 ? NULL : streams[0];
    if (!own) cu.cuDeviceGetDefaultMemPool(&own, 0);
    int code = way == 0   ? cu.cuMemAllocAsync(&address, bytes, on)
               : way == 1 ? cu.cuMemAllocAsync_ptsz(&address, bytes, on)
               : way == 2 ? cu.cuMemAllocFromPoolAsync(&address, bytes, own, on)
                          : cu.cuMemAllocFromPoolAsync_ptsz(&address, bytes, own, on);
    if (code) return code;
    return way % 2 ? cu.cuMemFreeAsync_ptsz(address, on) : cu.cuMemFreeAsync(address, on);
}
static void take_beside(void) {
    int codes = 0;
    for (int way = 0; way < 4; way++) codes |= taken_by(way, 1 << 20);
    int beyond = taken_by(0, quota + MIB), wait = cu.cuStreamSynchronize(streams[0]);
    say("beside %d, beyond the quota %d, wait %d", codes, beyond, wait);
}
static void *captures_beside(void *unused) {
    (void)unused;
    cu.cuCtxSetCurrent(context);
    int begun = begin_beside();
    __atomic_store_n(&is_open, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&is_open, __ATOMIC_ACQUIRE)) usleep(200);
    end_beside(begun);
    return NULL;
}
static void beside(void) {
    pthread_t thread;
    is_open = 0;
    pthread_create(&thread, NULL, captures_beside, NULL);
    while (!__atomic_load_n(&is_open, __ATOMIC_ACQUIRE)) usleep(200);
    take_beside();
    __atomic_store_n(&is_open, 0, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    int begun = begin_beside();
    take_beside();
    end_beside(begun);
}

// Small graphs, before and after the driver has shown by how much its pool grows.
static void small(void) {
    void *of[3], *made[3];
    int code[3];
    for (int i = 0; i < 3; i++) of[i] = simple(2, 1, NULL);
    for (int i = 0; i < 2; i++) made[i] = instantiate(of[i], 0, &code[i]);
    say("instantiate %d %d, " STATE, code[0], code[1], NOW);
    shut(streams[0]), graph.cuLaunchHostFunc(streams[1], stand, NULL);
    for (int i = 0; i < 2; i++) code[i] = graph.cuGraphLaunch(made[i], streams[i]);
    say("launch %d %d, pool %llu", code[0], code[1], pool());
    made[2] = instantiate(of[2], 0, &code[2]);
    say("one more %d, " STATE, code[2], NOW);
    is_open = 1, wait_all();
}

// Makes a graph that allocates on two devices.
static void devices(void) {
    int code;
    void *of = new_graph(), *more = new_graph(), *big = new_graph(), *made, *other;
    allocate(of, NULL, 64, 0, NULL), allocate(of, NULL, 32, 1, NULL);
    allocate(more, NULL, 32, 1, NULL);
    allocate(big, NULL, 64, 0, NULL), allocate(big, NULL, 64, 1, NULL);
    // The first device has room and the second has not, so no reservation stays on the first.
    instantiate(big, 0, &code);
    TELL("too much for the second", code);
    made = instantiate(of, 0, &code);
    TELL("both", code);
    other = instantiate(more, 0, &code);
    TELL("one more on the second", code);
    if (other != UNTOUCHED) say("the output was written");
    TELL("launch", graph.cuGraphLaunch(made, streams[0]));
    wait_all();
    renew();
    other = instantiate(more, 0, &code);
    TELL("reset, one more on the second", code);
}

// Several threads make, launch and destroy graphs and trim the pool at the same time, in random order.
static volatile int failures, refusals, launches;
static void expect(const char *what, int code, int wanted) {
    if (code == wanted) return;
    __sync_fetch_and_add(&failures, 1);
    say("%s %d", what, code);
}
// Works for a millisecond.
static void work(void *nothing) {
    (void)nothing;
    usleep(1000);
}
// Makes 200 random graphs in one thread, and launches each up to three times. An instantiation may be refused because the other
// threads have the quota. Any other status but 0 is a failure.
static void *churn(void *number_) {
    unsigned seed = (unsigned)(long)number_;
    void *stream = NULL, *made[3] = {0};
    cu.cuCtxSetCurrent(context);
    cu.cuStreamCreate(&stream, NON_BLOCKING);
    for (int round = 0; round < 200; round++) {
        u64 address = 0, plain = 0;
        int frees = rand_r(&seed) & 1, slot = round % 3, code;
        void *of = simple(2 + 2 * (rand_r(&seed) % 20), frees, &address);
        if (made[slot]) expect("destroy", graph.cuGraphExecDestroy(made[slot]), 0);
        made[slot] = instantiate(of, rand_r(&seed) & UPLOAD, &code);
        if (code == 2) __sync_fetch_and_add(&refusals, 1);
        else expect("instantiate", code, 0);
        if (code) made[slot] = NULL;
        for (int i = 0; made[slot] && i < 3; i++) {
            expect("work", graph.cuLaunchHostFunc(stream, work, NULL), 0);
            expect("launch", graph.cuGraphLaunch(made[slot], stream), 0);
            __sync_fetch_and_add(&launches, 1);
            if (!frees) expect("free", cu.cuMemFreeAsync(address, stream), 0);
        }
        for (int i = 0; i < 3; i++)
            if (made[i] && i != slot && rand_r(&seed) % 4 == 0) {
                expect("destroy", graph.cuGraphExecDestroy(made[i]), 0);
                made[i] = NULL;
            }
        if (rand_r(&seed) % 3 == 0 && cu.cuMemAlloc_v2(&plain, 4 * MIB) == 0) cu.cuMemFree_v2(plain);
        if (rand_r(&seed) % 8 == 0) graph.cuDeviceGraphMemTrim(0);
        if (rand_r(&seed) % 4 == 0) cu.cuStreamSynchronize(stream);
        graph.cuGraphDestroy(of);
    }
    for (int i = 0; i < 3; i++)
        if (made[i]) graph.cuGraphExecDestroy(made[i]);
    cu.cuStreamSynchronize(stream);
    return NULL;
}
static void threads(void) {
    pthread_t all[6];
    for (long i = 0; i < 6; i++) pthread_create(&all[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < 6; i++) pthread_join(all[i], NULL);
    graph.cuDeviceGraphMemTrim(0);
    say("failures %d, some launched %s, some refused %s, " STATE, failures, launches ? "yes" : "no",
        refusals ? "yes" : "no", NOW);
}

// A process that is killed leaves nothing of its executables: of those that live, run, or are gone.
static int killed(const char *door) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        int code;
        begin(door);
        for (int i = 0; i < 2; i++) {
            void *made = instantiate(simple(32, i, NULL), 0, &code);
            shut(streams[0]);
            graph.cuGraphLaunch(made, streams[0]);
            if (i) graph.cuGraphExecDestroy(made);
        }
        say("before: " STATE, NOW);
        raise(SIGKILL);
    }
    waitpid(child, &status, 0);
    begin(door);
    int code;
    instantiate(simple(quota / MIB, 1, NULL), 0, &code);
    say("after: the whole quota %d, " STATE, code, NOW);
    return 0;
}

int main(int count, char **words) {
    static const struct part parts[] = {{"capture", capture}, {"unspoiled", unspoiled}, {"small", small},  {"beside", beside},
                                        {"devices", devices}, {"threads", threads},     {NULL, NULL}};
    if (count == 4 && !strcmp(words[2], "killed")) return quota = number(words[3]), killed(words[1]);
    return play(parts, count, words);
}
