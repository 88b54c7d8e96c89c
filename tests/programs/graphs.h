// Parts that hosts with graphs and memory share.
//
// A line has the statuses of calls, the charge of the process, and the memory of the driver's graph pool, in MiB.
#pragma once
#include "graph_calls.h"

#define MIB ((u64)1 << 20)
#define UNTOUCHED ((void *)0xa5a5a5a5)

static u64 quota;
static void *context, *streams[2];

// The charge of the slice, and the memory that the graph pool of a device holds.
static u64 charged(void) {
    size_t left = 0, whole = 0;
    cu.cuMemGetInfo_v2(&left, &whole);
    return (whole - left) / MIB;
}
static u64 pool(void) {
    u64 bytes = 0;
    graph.cuDeviceGetGraphMemAttribute(0, GRAPH_RESERVED, &bytes);
    return bytes / MIB;
}
#define STATE "charged %llu, pool %llu"
#define NOW charged(), pool()

// Makes a call and prints its status, then the charge and the pool's memory.
#define TELL(what, call) \
    do { \
        int code_ = (call); \
        say(what " %d, " STATE, code_, NOW); \
    } while (0)

static void *new_graph(void) {
    void *made = NULL;
    graph.cuGraphCreate(&made, 0);
    return made;
}

// Adds an allocation of `mib` MiB on a device behind a node. Returns its node.
static void *allocate(void *in, void *behind, u64 mib, int device, u64 *address) {
    struct allocation_node wanted = {.pool = {.kind = PINNED, .location = ON_DEVICE, .id = device}, .bytes = mib * MIB};
    void *node = NULL;
    int code = graph.cuGraphAddMemAllocNode(&node, in, &behind, behind != NULL, &wanted);
    if (code) say("cuGraphAddMemAllocNode %d", code);
    if (address) *address = wanted.address;
    return node;
}
static void *release(void *in, void *behind, u64 address) {
    void *node = NULL;
    int code = graph.cuGraphAddMemFreeNode(&node, in, &behind, behind != NULL, address);
    if (code) say("cuGraphAddMemFreeNode %d", code);
    return node;
}

// Returns a graph that allocates `mib` MiB, and frees them if `frees`.
static void *simple(u64 mib, int frees, u64 *address) {
    u64 own;
    void *made = new_graph(), *node = allocate(made, NULL, mib, 0, &own);
    if (frees) release(made, node, own);
    if (address) *address = own;
    return made;
}

static void *instantiate(void *of, u64 flags, int *code) {
    void *made = UNTOUCHED;
    *code = graph.cuGraphInstantiateWithFlags(&made, of, flags);
    return made;
}

static void wait_all(void) {
    for (int i = 0; i < 2; i++) cu.cuStreamSynchronize(streams[i]);
}

// Holds a stream until `is_open` is set.
static volatile int is_open;
static void stand(void *nothing) {
    (void)nothing;
    while (!is_open) usleep(200);
}
static void shut(void *stream) {
    is_open = 0;
    graph.cuLaunchHostFunc(stream, stand, NULL);
}

// Ends the context with everything in it, and makes a new one.
static void renew(void) {
    cu.cuDevicePrimaryCtxReset_v2(0);
    cu.cuDevicePrimaryCtxRetain(&context, 0), cu.cuCtxSetCurrent(context);
    for (int i = 0; i < 2; i++) cu.cuStreamCreate(&streams[i], NON_BLOCKING);
}

// Enters by a door, and makes a context and streams.
static int begin(const char *door) {
    return enter(door) && !cu.cuInit(0) && !cu.cuDevicePrimaryCtxRetain(&context, 0) && !cu.cuCtxSetCurrent(context) &&
           !cu.cuStreamCreate(&streams[0], NON_BLOCKING) && !cu.cuStreamCreate(&streams[1], NON_BLOCKING);
}

struct part {
    const char *name;
    void (*run)(void);
};

// DOOR WHAT QUOTA
static int play(const struct part *parts, int count, char **words) {
    if (count < 4) return 2;
    quota = number(words[3]);
    if (!begin(words[1])) return 3;
    for (; parts->name; parts++)
        if (!strcmp(words[2], parts->name)) return parts->run(), 0;
    return 4;
}
