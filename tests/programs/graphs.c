// Graphs with memory: its cost in each way to make them, and the time at which it is freed.
//
// graphs DOOR WHAT QUOTA
#include "graphs.h"

// Ways of instantiating.
static int way_0(void **to, void *of) { return graph.cuGraphInstantiate(to, of, NULL, NULL, 0); }
static int way_1(void **to, void *of) { return graph.cuGraphInstantiate_v2(to, of, NULL, NULL, 0); }
static int way_2(void **to, void *of) { return graph.cuGraphInstantiateWithFlags(to, of, 0); }
static int with(int (*call)(void **, void *, struct instantiation *), void **to, void *of) {
    struct instantiation wanted = {.result = 77};
    int code = call(to, of, &wanted);
    if (code == 2 && wanted.result != 77) say("the result was written");
    return code;
}
static int way_3(void **to, void *of) { return with(graph.cuGraphInstantiateWithParams, to, of); }
static int way_4(void **to, void *of) { return with(graph.cuGraphInstantiateWithParams_ptsz, to, of); }

static void rows(void) {
#define SERVED(symbol, base, version, flags, parameters) \
    if (strcmp(server_of((void *)graph.symbol), "libgpuslice.so")) say("not served by the library: " #symbol);
    GRAPH_FUNCTIONS(SERVED)
    static int (*const ways[])(void **, void *) = {way_0, way_1, way_2, way_3, way_4};
    static const char *const names[] = {"cuGraphInstantiate", "cuGraphInstantiate_v2", "cuGraphInstantiateWithFlags",
                                        "cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"};
    for (int i = 0; i < 5; i++) {
        void *full = simple(quota / MIB, 1, NULL), *more = simple(2, 1, NULL), *made = UNTOUCHED, *other = UNTOUCHED;
        int first = ways[i](&made, full), second = ways[i](&other, more);
        say("%s: %d, one more %d (%s), " STATE, names[i], first, second,
            other == UNTOUCHED ? "untouched" : "written", NOW);
        int run = i & 1 ? graph.cuGraphLaunch_ptsz(made, streams[0]) : graph.cuGraphLaunch(made, streams[0]);
        wait_all();
        say("  launch %d, " STATE, run, NOW);
        int end = graph.cuGraphExecDestroy(made);
        say("  destroy %d, " STATE, end, NOW);
        int trim = graph.cuDeviceGraphMemTrim(0);
        say("  trim %d, " STATE, trim, NOW);
        TELL("  again", ways[i](&other, more));
        TELL("  destroy", graph.cuGraphExecDestroy(other));
        graph.cuGraphDestroy(full), graph.cuGraphDestroy(more);
    }
}

// Ways of making a graph that allocates 64 MiB.
static void *by_node(void) { return simple(64, 0, NULL); }
static struct any_node wanted_64(void) {
    struct any_node wanted = {.kind = ALLOCATION};
    wanted.allocation.pool = (struct pool_properties){.kind = PINNED, .location = ON_DEVICE};
    wanted.allocation.bytes = 64 * MIB;
    return wanted;
}
static void *by_any(void) {
    struct any_node wanted = wanted_64();
    void *made = new_graph(), *node;
    return graph.cuGraphAddNode(&node, made, NULL, 0, &wanted) ? NULL : made;
}
static void *by_any_v2(void) {
    struct any_node wanted = wanted_64();
    void *made = new_graph(), *node;
    return graph.cuGraphAddNode_v2(&node, made, NULL, NULL, 0, &wanted) ? NULL : made;
}
static void *by_child(void) {
    struct any_node wanted = {.kind = CHILD, .child = {simple(64, 0, NULL), MOVED}};
    void *made = new_graph(), *node;
    return graph.cuGraphAddNode(&node, made, NULL, 0, &wanted) ? NULL : made;
}
static void *by_grandchild(void) {
    struct any_node wanted = {.kind = CHILD, .child = {by_child(), MOVED}};
    void *made = new_graph(), *node;
    return graph.cuGraphAddNode(&node, made, NULL, 0, &wanted) ? NULL : made;
}
static void *captured(int way) {
    u64 address = 0;
    void *made = NULL, *from = NULL;
    cu.cuDeviceGetDefaultMemPool(&from, 0);
    graph.cuStreamBeginCapture_v2(streams[0], 0);
    int code = way == 0   ? cu.cuMemAllocAsync(&address, 64 * MIB, streams[0])
               : way == 1 ? cu.cuMemAllocAsync_ptsz(&address, 64 * MIB, streams[0])
               : way == 2 ? cu.cuMemAllocFromPoolAsync(&address, 64 * MIB, from, streams[0])
                          : cu.cuMemAllocFromPoolAsync_ptsz(&address, 64 * MIB, from, streams[0]);
    int end = graph.cuStreamEndCapture(streams[0], &made);
    if (code || end) say("capture %d %d", code, end);
    return made;
}
static void *by_capture(void) { return captured(0); }
static void *by_capture_ptsz(void) { return captured(1); }
static void *by_capture_from(void) { return captured(2); }
static void *by_capture_from_ptsz(void) { return captured(3); }
static void *by_own_stream(void) {
    u64 address = 0;
    void *made = NULL;
    graph.cuStreamBeginCapture_v2_ptsz(NULL, 0);
    int code = cu.cuMemAllocAsync_ptsz(&address, 64 * MIB, NULL);
    int end = graph.cuStreamEndCapture_ptsz(NULL, &made);
    if (code || end) say("capture %d %d", code, end);
    return made;
}

static void nodes(void) {
    static const struct { const char *name; void *(*make)(void); } ways[] = {
        {"cuGraphAddMemAllocNode", by_node}, {"cuGraphAddNode", by_any}, {"cuGraphAddNode_v2", by_any_v2},
        {"child", by_child}, {"grandchild", by_grandchild}, {"cuMemAllocAsync", by_capture},
        {"cuMemAllocAsync_ptsz", by_capture_ptsz}, {"cuMemAllocFromPoolAsync", by_capture_from},
        {"cuMemAllocFromPoolAsync_ptsz", by_capture_from_ptsz}, {"the thread's own stream", by_own_stream}};
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        int code, other;
        void *first = ways[i].make(), *second = ways[i].make();
        u64 before = charged();
        void *made = instantiate(first, 0, &code), *more = instantiate(second, 0, &other);
        say("%s: made %llu, instantiate %d %d, " STATE, ways[i].name, before, code, other, NOW);
        int run = graph.cuGraphLaunch(made, streams[0]);
        wait_all();
        say("  launch %d, " STATE, run, NOW);
        // The end of the context frees the memory that the graph left alive.
        if (other == 0) graph.cuGraphExecDestroy(more);
        renew();
        say("  reset, " STATE, NOW);
    }
}

// Addresses that are used again cost once. Different addresses cost each.
static void reuse(void) {
    u64 a = 0, b = 0;
    int code;
    void *one = new_graph(), *two = new_graph(), *node, *made;
    node = allocate(one, NULL, 32, 0, &a);
    node = release(one, node, a);
    node = allocate(one, node, 32, 0, &b);
    release(one, node, b);
    say("behind the free: %s", a == b ? "the same address" : "another address");
    made = instantiate(one, 0, &code);
    TELL("instantiate", code);
    TELL("launch", graph.cuGraphLaunch(made, streams[0]));
    wait_all();
    TELL("destroy", graph.cuGraphExecDestroy(made));
    TELL("trim", graph.cuDeviceGraphMemTrim(0));
    node = allocate(two, NULL, 32, 0, &a);
    release(two, node, a);
    allocate(two, NULL, 32, 0, &b);
    say("beside the free: %s", a == b ? "the same address" : "another address");
    made = instantiate(two, 0, &code);
    TELL("instantiate", code);
    TELL("launch", graph.cuGraphLaunch(made, streams[0]));
}

// Memory that a graph does not free, and the calls that are allowed on it.
static void alive(void) {
    u64 address = 0, gone = 0;
    int code;
    void *of = simple(32, 0, &address), *other = simple(quota / MIB, 1, NULL), *made = instantiate(of, 0, &code), *more;
    TELL("instantiate", code);
    TELL("upload", graph.cuGraphUpload(made, streams[0]));
    TELL("launch", graph.cuGraphLaunch(made, streams[0]));
    TELL("launch again", graph.cuGraphLaunch(made, streams[0]));
    wait_all();
    TELL("trim", graph.cuDeviceGraphMemTrim(0));
    TELL("free", cu.cuMemFree_v2(address));
    TELL("free again", cu.cuMemFree_v2(address));
    TELL("trim", graph.cuDeviceGraphMemTrim(0));
    TELL("launch", graph.cuGraphLaunch(made, streams[0]));
    TELL("free in order", cu.cuMemFreeAsync(address, streams[0]));
    TELL("launch", graph.cuGraphLaunch_ptsz(made, streams[0]));
    void *freeing = new_graph(), *freer;
    release(freeing, NULL, address);
    freer = instantiate(freeing, 0, &code);
    TELL("a graph that frees: instantiate", code);
    TELL("launch it", graph.cuGraphLaunch(freer, streams[0]));
    TELL("launch", graph.cuGraphLaunch(made, streams[0]));
    wait_all();
    TELL("destroy", graph.cuGraphExecDestroy(made));
    TELL("trim", graph.cuDeviceGraphMemTrim(0));
    more = instantiate(other, 0, &code);
    TELL("the whole quota", code);
    if (code == 0) graph.cuGraphExecDestroy(more);
    else if (more != UNTOUCHED) say("the output was written");
    TELL("free", cu.cuMemFree_v2(address));
    more = instantiate(other, 0, &code);
    TELL("the whole quota", code);
    TELL("destroy", graph.cuGraphExecDestroy(more));
    made = instantiate(simple(32, 0, &gone), AUTO_FREE | UPLOAD, &code);
    TELL("free on launch: instantiate", code);
    for (int i = 0; i < 3; i++) TELL("launch", graph.cuGraphLaunch(made, streams[i & 1]));
    wait_all();
    TELL("destroy", graph.cuGraphExecDestroy(made));
    TELL("trim", graph.cuDeviceGraphMemTrim(0));
    TELL("free", cu.cuMemFree_v2(gone));
    TELL("trim", graph.cuDeviceGraphMemTrim(0));
}

// Runs executables side by side, in one stream and in two, and ends them in any order.
static void several(void) {
    void *of[5], *made[5];
    int code[5];
    for (int i = 0; i < 5; i++) {
        of[i] = simple(32, 1, NULL);
        made[i] = instantiate(of[i], i == 1 ? UPLOAD : 0, &code[i]);
    }
    say("instantiate %d %d %d %d, one more %d, " STATE, code[0], code[1], code[2], code[3], code[4], NOW);
    for (int i = 0; i < 4; i++) code[i] = graph.cuGraphLaunch(made[i], streams[0]);
    wait_all();
    say("in one stream %d %d %d %d, " STATE, code[0], code[1], code[2], code[3], NOW);
    shut(streams[0]), graph.cuLaunchHostFunc(streams[1], stand, NULL);
    for (int i = 0; i < 4; i++) code[i] = graph.cuGraphLaunch(made[i], streams[i & 1]);
    say("in two streams %d %d %d %d, " STATE, code[0], code[1], code[2], code[3], NOW);
    is_open = 1, wait_all();
    static const int order[] = {2, 0, 3, 1};
    for (int i = 0; i < 4; i++) {
        int end = graph.cuGraphExecDestroy(made[order[i]]);
        say("destroy %d, " STATE, end, NOW);
    }
    // Cached memory is freed if it is in the way.
    for (int i = 0; i < 4; i++) made[i] = instantiate(of[i], 0, &code[i]);
    say("anew %d %d %d %d, " STATE, code[0], code[1], code[2], code[3], NOW);
    for (int i = 0; i < 4; i++) graph.cuGraphExecDestroy(made[i]);
    say("destroyed, " STATE, NOW);
}

// An executable that is destroyed while it runs needs its memory to the end.
static void running(void) {
    int code;
    u64 address = 0;
    void *of = simple(64, 1, NULL), *next = simple(64, 1, NULL), *made = instantiate(of, 0, &code), *more;
    TELL("instantiate", code);
    shut(streams[0]);
    TELL("launch", graph.cuGraphLaunch(made, streams[0]));
    TELL("destroy", graph.cuGraphExecDestroy(made));
    TELL("trim", graph.cuDeviceGraphMemTrim(0));
    more = instantiate(next, 0, &code);
    TELL("next", code);
    if (more != UNTOUCHED) say("the output was written");
    TELL("allocation", cu.cuMemAlloc_v2(&address, 64 * MIB));
    is_open = 1, wait_all();
    more = instantiate(next, 0, &code);
    TELL("done: next", code);
    TELL("launch", graph.cuGraphLaunch(more, streams[1]));
    TELL("destroy", graph.cuGraphExecDestroy(more));
    wait_all();
    // The memory that the graph has left behind makes room for other allocations.
    TELL("allocation", cu.cuMemAlloc_v2(&address, 64 * MIB));
    TELL("free", cu.cuMemFree_v2(address));
}

// A graph that cannot be made costs nothing.
static void refused(void) {
    int code, info = 0;
    u64 result[3] = {0};
    void *of = simple(32, 1, NULL), *other = simple(32, 1, NULL), *more = NULL, *node;
    void *made = instantiate(of, 0, &code);
    TELL("instantiate", code);
    TELL("launch", graph.cuGraphLaunch(made, streams[0]));
    wait_all();
    TELL("second", graph.cuGraphInstantiateWithFlags(&more, of, 0));
    TELL("flags", graph.cuGraphInstantiateWithFlags(&more, other, 64));
    TELL("no output", graph.cuGraphInstantiateWithFlags(NULL, other, 0));
    TELL("no graph", graph.cuGraphInstantiateWithFlags(&more, NULL, 0));
    TELL("update", graph.cuGraphExecUpdate(made, other, &node, &info));
    TELL("update", graph.cuGraphExecUpdate_v2(made, other, result));
    TELL("destroy", graph.cuGraphExecDestroy(made));
    TELL("destroy again", graph.cuGraphExecDestroy(made));
    TELL("trim", graph.cuDeviceGraphMemTrim(0));
    TELL("trim nothing", graph.cuDeviceGraphMemTrim(99));
    void *empty = new_graph();
    TELL("empty", graph.cuGraphInstantiateWithFlags(&more, empty, 0));
    TELL("update", graph.cuGraphExecUpdate_v2(more, empty, result));
    TELL("destroy", graph.cuGraphExecDestroy(more));
}

int main(int count, char **words) {
    static const struct part parts[] = {{"rows", rows},       {"nodes", nodes},     {"reuse", reuse},
                                        {"alive", alive},     {"several", several}, {"running", running},
                                        {"refused", refused}, {NULL, NULL}};
    return play(parts, count, words);
}
