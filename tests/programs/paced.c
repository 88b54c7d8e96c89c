// Other things that a program does while its launches are paced.
//
// paced WHAT: each prints statuses, counts and, in words, whether a time was within its bounds.
#include "paced.h"
#include <errno.h>
#include <pthread.h>

enum { KERNEL_NODE = 0, MS = 1000000 };

// Makes `count` launches. Returns the first status other than 0, or 0.
static int all(int count, void *on) {
    for (int i = 0; i < count; i++) {
        int code = launch(on);
        if (code) return code;
    }
    return 0;
}

// Counts the nodes of a graph that are kernels, and the others.
static void nodes(void *graph, size_t *kernels, size_t *others) {
    static void *list[4096];
    size_t count = 4096;
    *kernels = *others = 0;
    if (gpu.cuGraphGetNodes(graph, list, &count)) return;
    for (size_t i = 0; i < count; i++) {
        int kind = -1;
        gpu.cuGraphNodeGetType(list[i], &kind);
        *(kind == KERNEL_NODE ? kernels : others) += 1;
    }
}

static void tell_graph(const char *what, int begun, int recorded, int ended, void *graph) {
    size_t kernels = 0, others = 0;
    if (graph) nodes(graph, &kernels, &others);
    say("%s: begin %d, launches %d, end %d, %zu kernels, %zu others", what, begun, recorded, ended, kernels, others);
    if (graph) gpu.cuGraphDestroy(graph);
}

// Makes calls that look like ends of a capture and are none. The capture is relaxed, so no call spoils it.
static int disturb(void) {
    void *other = NULL, *graph = NULL;
    cu.cuStreamCreate(&other, NON_BLOCKING);
    int ended = gpu.cuStreamEndCapture(other, &graph), again = gpu.cuStreamBeginCapture_v2(stream, 2);
    int begun = gpu.cuStreamBeginCapture_v2(other, 7), legacy = gpu.cuStreamEndCapture((void *)1, &graph);
    say("disturbed: end %d, begin again %d, wrongly %d, legacy %d", ended, again, begun, legacy);
    return 0;
}

// Launches cost nothing while they are recorded, for each way to begin, on a stream whose last batch is not closed.
static void capture(void) {
    void *graph = NULL, *into = NULL;
    int begun, recorded, ended;
    u64 recording = 0, began;
#define RECORD(what, on, begin_call, end_call) \
    all(2, on), graph = NULL, begun = begin_call, began = now(), recorded = all(200, on); \
    recording += begun ? 0 : now() - began, ended = end_call; \
    tell_graph(what, begun, recorded, ended, graph);
    RECORD("first", stream, gpu.cuStreamBeginCapture(stream), gpu.cuStreamEndCapture(stream, &graph))
    for (int mode = 0; mode < 3; mode++) {
        RECORD("mode", stream, gpu.cuStreamBeginCapture_v2(stream, mode), gpu.cuStreamEndCapture(stream, &graph))
    }
    gpu.cuGraphCreate(&into, 0);
    RECORD("into a graph", stream, gpu.cuStreamBeginCaptureToGraph(stream, into, NULL, NULL, 0, 0),
           gpu.cuStreamEndCapture(stream, &graph))
    RECORD("the thread's own", (void *)2, gpu.cuStreamBeginCapture_ptsz(NULL), gpu.cuStreamEndCapture_ptsz(NULL, &graph))
    RECORD("the thread's own", (void *)2, gpu.cuStreamBeginCapture_v2_ptsz(NULL, 1),
           gpu.cuStreamEndCapture_ptsz(NULL, &graph))
    RECORD("the thread's own by its name", (void *)2, gpu.cuStreamBeginCapture_v2((void *)2, 1),
           gpu.cuStreamEndCapture((void *)2, &graph))
    // A call that ends nothing, or does not begin a capture, is no end of the open capture.
    RECORD("disturbed", stream, gpu.cuStreamBeginCapture_v2(stream, 2) || disturb(),
           gpu.cuStreamEndCapture(stream, &graph))
    // These launches run, because a capture that does not begin is none.
    RECORD("no mode", stream, gpu.cuStreamBeginCapture_v2(stream, 7), gpu.cuStreamEndCapture(stream, &graph))
    RECORD("no stream", stream, gpu.cuStreamBeginCapture_v2((void *)1, 0), gpu.cuStreamEndCapture(stream, &graph))
    say("recorded in %llu ms", recording / MS);
}

// A stream joins a capture by an event, while a batch of its own is not closed. Then both wait long enough for the library to
// close the batch.
static void join(void) {
    void *other, *mark, *back, *graph = NULL;
    cu.cuStreamCreate(&other, NON_BLOCKING), gpu.cuEventCreate(&mark, 0), gpu.cuEventCreate(&back, 0);
    for (int i = 0; i < 20; i++) {
        all(3, other), all(3, stream);
        int begun = gpu.cuStreamBeginCapture_v2(stream, i % 3);
        int recorded = launch(stream);
        int forked = gpu.cuEventRecord(mark, stream) || gpu.cuStreamWaitEvent(other, mark, 0);
        recorded |= all(2, other);
        usleep(30000);
        int joined = gpu.cuEventRecord(back, other) || gpu.cuStreamWaitEvent(stream, back, 0);
        recorded |= launch(stream);
        int ended = gpu.cuStreamEndCapture(stream, &graph);
        if (forked || joined) say("fork %d, join %d", forked, joined);
        tell_graph("joined", begun, recorded, ended, graph);
    }
}

static volatile int is_over;
static void *launching(void *on) {
    cu.cuCtxSetCurrent(context);
    int code = 0;
    while (!is_over && !code) code = launch(on);
    return (void *)(long)code;
}

// One thread captures in global mode, again and again, while others launch.
static void beside(void) {
    pthread_t threads[3];
    void *streams[3], *graph = NULL, *code;
    int spoiled = 0, wrong = 0;
    for (int i = 0; i < 3; i++) {
        cu.cuStreamCreate(&streams[i], NON_BLOCKING);
        pthread_create(&threads[i], NULL, launching, streams[i]);
    }
    for (int i = 0; i < 300; i++) {
        size_t kernels = 0, others = 0;
        all(1, stream);
        int failed = gpu.cuStreamBeginCapture_v2(stream, 0) || all(5, stream);
        usleep(1000);
        failed |= gpu.cuStreamEndCapture(stream, &graph);
        if (failed) { spoiled++; continue; }
        nodes(graph, &kernels, &others);
        wrong += kernels != 5 || others != 0;
        gpu.cuGraphDestroy(graph);
    }
    is_over = 1;
    say("300 captures, %d spoiled, %d with other nodes", spoiled, wrong);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], &code), say("others %ld", (long)code);
}

// Contexts and streams end under running work, and others get their handles.
static void ends(void) {
    for (int i = 0; i < 6; i++) {
        void *made = NULL;
        int create = cu.cuCtxCreate_v2(&made, 0, 0);
        work = kernel("1ms");
        int stream_made = cu.cuStreamCreate(&stream, i % 2);
        int launched = all(8, stream), beside = all(4, NULL), own = all(4, (void *)2);
        int ended = i % 3 == 0 ? gpu.cuStreamDestroy_v2(stream) : 0;
        int destroyed = cu.cuCtxDestroy_v2(made);
        say("context %d %d, launches %d %d %d, ends %d %d, then %d", create, stream_made, launched, beside, own, ended,
            destroyed, launch(NULL));
    }
    for (int i = 0; i < 6; i++) {
        int set = cu.cuDevicePrimaryCtxRetain(&context, 0) || cu.cuCtxSetCurrent(context);
        work = kernel("1ms");
        int stream_made = cu.cuStreamCreate(&stream, 0);
        int launched = all(8, stream), beside = all(4, NULL);
        int reset = cu.cuDevicePrimaryCtxReset_v2(0);
        say("primary %d %d, launches %d %d, reset %d, then %d", set, stream_made, launched, beside, reset, launch(NULL));
    }
}

static void streams(void) {
    for (int i = 0; i < 400; i++) {
        void *short_lived = NULL;
        int made = cu.cuStreamCreate(&short_lived, i % 2 ? NON_BLOCKING : 0);
        int launched = all(i % 4, short_lived);
        int ended = i % 8 < 4 ? gpu.cuStreamDestroy_v2(short_lived) : gpu.cuStreamDestroy(short_lived);
        int again = i % 50 == 0 ? launch(short_lived) : -1;
        if (made || launched || ended || again != -1) {
            say("stream %d: %d, launches %d, end %d, then %d", i, made, launched, ended, again);
        }
    }
    say("the last wait %d", gpu.cuCtxSynchronize());
}

// Launches and prints only statuses, for tests in which other calls fail.
static void plain(int count) {
    int code = all(count, stream), own = all(count / 4, NULL);
    say("launches %d %d, wait %d", code, own, gpu.cuCtxSynchronize());
}

// A launch leaves `errno` alone, whether it waits or not.
static void keeps(void) {
    int kept = 0;
    for (int i = 0; i < 300; i++) {
        errno = 4321;
        int code = launch(stream);
        kept += code == 0 && errno == 4321;
    }
    say("errno is kept by %d", kept);
}

static void *short_life(void *nothing) {
    cu.cuCtxSetCurrent(context);
    return nothing ? nothing : (void *)(long)launch(stream);
}

// Threads end with unused GPU time, and the next threads get that time.
static void lives(void) {
    pthread_t thread;
    void *code;
    u64 began = now();
    for (int i = 0; i < 400; i++) {
        pthread_create(&thread, NULL, short_life, NULL);
        pthread_join(thread, &code);
        if (code) say("launch %d: %ld", i, (long)code);
    }
    say("400 threads, %llu ms", (now() - began) / MS);
}

// For each line, makes that many launches. Prints how long all took and how long the longest took, in microseconds. `other`
// launches one of another kernel before.
static void waits(const char *other_time) {
    char line[64];
    void *usual = work, *other = other_time ? kernel(other_time) : work;
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        u64 began = now(), longest = 0;
        int is_behind = !strncmp(line, "other", 5);
        for (int i = is_behind ? -1 : 0, count = atoi(line + 5 * is_behind); i < count; i++) {
            u64 before = now();
            work = i < 0 ? other : usual;
            if (launch(stream)) return;
            if (now() - before > longest) longest = now() - before;
        }
        say("%llu %llu", (now() - began) / 1000, longest / 1000);
    }
}

// For each line, fills memory as often as the line says: `run` fills at once, `cap` captures the fills.
static void fills(void) {
    int (*fill)(u64, unsigned char, size_t, void *) = dlsym(driver, "cuMemsetD8Async");
    char line[64];
    u64 filled = 0;
    if (cu.cuMemAlloc_v2(&filled, SIZE)) return;
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        void *graph = NULL;
        int is_captured = line[0] == 'c', code = is_captured ? gpu.cuStreamBeginCapture_v2(stream, 0) : 0;
        for (int i = atoi(line + 4); i > 0; i--) code |= fill(filled, 4, SIZE, stream);
        code |= is_captured ? gpu.cuStreamEndCapture(stream, &graph) : gpu.cuCtxSynchronize();
        say("%d", code);
    }
}

// `CUDA_MEMCPY3D_BATCH_OP` of the driver API.
struct box_end { int kind; u64 place, row, rows, location; };
struct box { struct box_end from, to; size_t width, height, depth; int order; unsigned flags; };

enum { PIECES = 64 };

// Copies between addresses that only the driver can tell apart. Each order has two words: `device` or `host`, and the way.
static void moves(void) {
    int (*one)(u64, u64, size_t, void *) = dlsym(driver, "cuMemcpyAsync");
    int (*with)(u64, u64, size_t, void *, void *) = dlsym(driver, "cuMemcpyWithAttributesAsync");
    int (*one_box)(struct box *, u64, void *) = dlsym(driver, "cuMemcpy3DWithAttributesAsync");
    int (*first)(u64 *, u64 *, size_t *, size_t, void *, size_t *, size_t, size_t *, void *) = NULL;
    int (*second)(u64 *, u64 *, size_t *, size_t, void *, size_t *, size_t, void *) = NULL;
    int (*boxes)(size_t, struct box *, size_t *, u64, void *) = NULL, (*boxes_2)(size_t, struct box *, u64, void *) = NULL;
    char line[64], where[32], how[32], *here = malloc(PIECES * SIZE);
    u64 source = 0, target = 0, to[PIECES], from[PIECES];
    size_t sizes[PIECES], attribute_of = 0, failed;
    long attributes[8] = {1};
    struct box all[PIECES];
    if (cu.cuMemAlloc_v2(&source, PIECES * SIZE) || cu.cuMemAlloc_v2(&target, PIECES * SIZE)) return;
    say("ready");
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%31s %31s", where, how) == 2) {
        int code = 0, is_own = strstr(how, "_ptsz") != NULL;
        void *on = is_own ? NULL : stream;
        *(void **)&first = dlsym(driver, is_own ? "cuMemcpyBatchAsync_ptsz" : "cuMemcpyBatchAsync");
        *(void **)&second = dlsym(driver, is_own ? "cuMemcpyBatchAsync_v2_ptsz" : "cuMemcpyBatchAsync_v2");
        *(void **)&boxes = dlsym(driver, is_own ? "cuMemcpy3DBatchAsync_ptsz" : "cuMemcpy3DBatchAsync");
        *(void **)&boxes_2 = dlsym(driver, is_own ? "cuMemcpy3DBatchAsync_v2_ptsz" : "cuMemcpy3DBatchAsync_v2");
        for (int i = 0; i < PIECES; i++) {
            from[i] = source + i * SIZE, sizes[i] = SIZE;
            to[i] = (where[0] == 'd' ? target : (u64)here) + i * SIZE;
            all[i] = (struct box){{1, from[i], 0, 0, 0}, {1, to[i], 0, 0, 0}, SIZE / 4, 2, 2, 1, 0};
        }
        if (!strncmp(how, "one", 3)) for (int i = 0; i < PIECES; i++) code |= one(to[i], from[i], SIZE, on);
        else if (!strncmp(how, "with", 4)) for (int i = 0; i < PIECES; i++) code |= with(to[i], from[i], SIZE, attributes, on);
        else if (!strncmp(how, "box1", 4)) for (int i = 0; i < PIECES; i++) code |= one_box(&all[i], 0, on);
        else for (int i = 0; i < PIECES; i++) {
            if (!strncmp(how, "batch_v2", 8)) code |= second(to, from, sizes, PIECES, attributes, &attribute_of, 1, on);
            else if (!strncmp(how, "batch", 5)) code |= first(to, from, sizes, PIECES, attributes, &attribute_of, 1, &failed, on);
            else if (!strncmp(how, "boxes_v2", 8)) code |= boxes_2(PIECES, all, 0, on);
            else code |= boxes(PIECES, all, &failed, 0, on);
        }
        say("%d", code | gpu.cuCtxSynchronize());
    }
}

// Copies by lists that are missing.
static void absent(void) {
    int (*with)(struct box *, u64, void *), (*with_own)(struct box *, u64, void *);
    *(void **)&with = dlsym(driver, "cuMemcpy3DWithAttributesAsync");
    *(void **)&with_own = dlsym(driver, "cuMemcpy3DWithAttributesAsync_ptsz");
    for (int is_own = 0; is_own < 2; is_own++) {
        int (*first)(u64 *, u64 *, size_t *, size_t, void *, size_t *, size_t, size_t *, void *);
        int (*second)(u64 *, u64 *, size_t *, size_t, void *, size_t *, size_t, void *);
        int (*boxes)(size_t, struct box *, size_t *, u64, void *), (*boxes_2)(size_t, struct box *, u64, void *);
        *(void **)&first = dlsym(driver, is_own ? "cuMemcpyBatchAsync_ptsz" : "cuMemcpyBatchAsync");
        *(void **)&second = dlsym(driver, is_own ? "cuMemcpyBatchAsync_v2_ptsz" : "cuMemcpyBatchAsync_v2");
        *(void **)&boxes = dlsym(driver, is_own ? "cuMemcpy3DBatchAsync_ptsz" : "cuMemcpy3DBatchAsync");
        *(void **)&boxes_2 = dlsym(driver, is_own ? "cuMemcpy3DBatchAsync_v2_ptsz" : "cuMemcpy3DBatchAsync_v2");
        // First all lists are missing, then one of them.
        for (int which = 0; which < 4; which++) {
            u64 some[2] = {0};
            size_t none[2] = {0}, attribute_of = 0, failed;
            long attributes[8] = {1};
            u64 *to = which == 0 || which == 1 ? NULL : some, *from = which == 0 || which == 2 ? NULL : some;
            size_t *sizes = which == 0 || which == 3 ? NULL : none;
            void *on = is_own ? NULL : stream;
            int one = first(to, from, sizes, 2, attributes, &attribute_of, 1, &failed, on);
            say("%d %d: %d %d", is_own, which, one, second(to, from, sizes, 2, attributes, &attribute_of, 1, on));
        }
        int one = boxes(2, NULL, NULL, 0, is_own ? NULL : stream), two = boxes_2(2, NULL, 0, is_own ? NULL : stream);
        say("%d: %d %d %d", is_own, one, two, is_own ? with_own(NULL, 0, NULL) : with(NULL, 0, stream));
    }
}

// Launches in the usual way, between two lines that can be found in a list of system calls.
static void hot(int count) {
    all(count, stream), gpu.cuCtxSynchronize(), all(count / 4, stream);
    say("hot launches begin");
    int code = all(count, stream);
    say("hot launches end %d", code);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!open_all("dlsym") || !begin(count > 2 ? words[2] : "2ms")) return 3;
    launch_on = dlsym(driver, "cuLaunchKernel");
    if (!strcmp(what, "capture")) capture();
    else if (!strcmp(what, "join")) join();
    else if (!strcmp(what, "beside")) beside();
    else if (!strcmp(what, "ends")) ends();
    else if (!strcmp(what, "streams")) streams();
    else if (!strcmp(what, "plain")) plain(count > 3 ? atoi(words[3]) : 400);
    else if (!strcmp(what, "keeps")) keeps();
    else if (!strcmp(what, "lives")) lives();
    else if (!strcmp(what, "waits")) waits(count > 3 ? words[3] : NULL);
    else if (!strcmp(what, "fills")) fills();
    else if (!strcmp(what, "moves")) moves();
    else if (!strcmp(what, "absent")) absent();
    else if (!strcmp(what, "hot")) hot(4000);
    else return 2;
    return 0;
}
