// What do hosts share that make graphs with memory?
//
// A line tells the statuses of calls, what the process is charged, and what the driver's graph pool holds, in MiB.
#pragma once
#include "host.h"

// CUDA_MEM_ALLOC_NODE_PARAMS.
struct allocation_node {
    struct pool_properties pool;
    void *access;
    size_t accesses, bytes;
    u64 address;
};

// CUgraphNodeParams: its head, and as much behind it as there may be.
struct any_node {
    int kind, reserved[3];
    union {
        struct allocation_node allocation;
        struct { void *graph; int ownership; } child;
        u64 words[30];
    };
};

// CUDA_GRAPH_INSTANTIATE_PARAMS.
struct instantiation {
    u64 flags;
    void *stream, *node;
    int result;
};

enum { CHILD = 4, ALLOCATION = 10, FREE = 11, AUTO_FREE = 1, UPLOAD = 2, MOVED = 1, NON_BLOCKING = 1 };
enum { GRAPH_RESERVED = 2 };

#define GRAPH_FUNCTIONS(X) \
    X(cuGraphInstantiate, "cuGraphInstantiate", 10000, 0, (void **, void *, void **, char *, size_t)) \
    X(cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, 0, (void **, void *, void **, char *, size_t)) \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, 0, (void **, void *, u64)) \
    X(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, 0, \
      (void **, void *, struct instantiation *)) \
    X(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, 2, \
      (void **, void *, struct instantiation *)) \
    X(cuGraphExecUpdate, "cuGraphExecUpdate", 10020, 0, (void *, void *, void **, int *)) \
    X(cuGraphExecUpdate_v2, "cuGraphExecUpdate", 12000, 0, (void *, void *, u64 *)) \
    X(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, 0, (void *)) \
    X(cuDeviceGraphMemTrim, "cuDeviceGraphMemTrim", 11040, 0, (int)) \
    X(cuDeviceGetGraphMemAttribute, "cuDeviceGetGraphMemAttribute", 11040, 0, (int, int, u64 *)) \
    X(cuGraphCreate, "cuGraphCreate", 10000, 0, (void **, unsigned)) \
    X(cuGraphDestroy, "cuGraphDestroy", 10000, 0, (void *)) \
    X(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040, 0, \
      (void **, void *, void **, size_t, struct allocation_node *)) \
    X(cuGraphAddMemFreeNode, "cuGraphAddMemFreeNode", 11040, 0, (void **, void *, void **, size_t, u64)) \
    X(cuGraphAddNode, "cuGraphAddNode", 12020, 0, (void **, void *, void **, size_t, struct any_node *)) \
    X(cuGraphAddNode_v2, "cuGraphAddNode", 12030, 0, (void **, void *, void **, void *, size_t, struct any_node *)) \
    X(cuGraphLaunch, "cuGraphLaunch", 10000, 0, (void *, void *)) \
    X(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, 2, (void *, void *)) \
    X(cuGraphUpload, "cuGraphUpload", 11010, 0, (void *, void *)) \
    X(cuGraphUpload_ptsz, "cuGraphUpload", 11010, 2, (void *, void *)) \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, 0, (void *, int)) \
    X(cuStreamEndCapture, "cuStreamEndCapture", 10000, 0, (void *, void **)) \
    X(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, 2, (void *, int)) \
    X(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, 2, (void *, void **)) \
    X(cuLaunchHostFunc, "cuLaunchHostFunc", 10000, 0, (void *, void (*)(void *), void *))

static struct {
    GRAPH_FUNCTIONS(MEMBER)
} graph;

static int (*by_version)(const char *, void **, int, u64, int *);

static void *look_up(const char *base, int version, u64 flags) {
    void *found = NULL;
    int status = -1;
    return by_version(base, &found, version, flags, &status) == 0 && status == 0 ? found : NULL;
}

#ifdef LINKED
#define DECLARE(symbol, base, version, flags, parameters) extern int symbol parameters;
CUDA_FUNCTIONS(DECLARE)
GRAPH_FUNCTIONS(DECLARE)
#endif

// Fills both tables by a door: linked, dlsym, cuGetProcAddress.
static int enter(const char *door) {
#ifdef LINKED
#define LINK(symbol, base, version, flags, parameters) cu.symbol = symbol;
#define LINK_GRAPH(symbol, base, version, flags, parameters) graph.symbol = symbol;
    (void)door;
    CUDA_FUNCTIONS(LINK)
    GRAPH_FUNCTIONS(LINK_GRAPH)
    return 1;
#else
    int by_look_up = !strcmp(door, "cuGetProcAddress");
    if (!open_driver()) return 0;
    *(void **)&by_version = dlsym(driver, "cuGetProcAddress_v2");
#define LOOK_UP(symbol, base, version, flags, parameters) \
    *(void **)&graph.symbol = by_look_up ? look_up(base, version, flags) : dlsym(driver, #symbol);
    GRAPH_FUNCTIONS(LOOK_UP)
#define LOOK_UP_TOO(symbol, base, version, flags, parameters) \
    if (by_look_up) *(void **)&cu.symbol = look_up(base, version, flags);
    CUDA_FUNCTIONS(LOOK_UP_TOO)
    return 1;
#endif
}

#define MIB ((u64)1 << 20)
#define UNTOUCHED ((void *)0xa5a5a5a5)

static u64 quota;
static void *context, *streams[2];

// What the slice is charged, and what the graph pool of a device holds.
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

// A call, its status, and what is charged and held when it is done.
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

// Adds an allocation of so many MiB on a device behind a node; returns its node.
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

// A graph that allocates so many MiB, and frees them or not.
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

// Holds a stream until it is opened.
static volatile int is_open;
static void stand(void *nothing) {
    (void)nothing;
    while (!is_open) usleep(200);
}
static void shut(void *stream) {
    is_open = 0;
    graph.cuLaunchHostFunc(stream, stand, NULL);
}

// The context ends with everything in it, and there is a new one.
static void renew(void) {
    cu.cuDevicePrimaryCtxReset_v2(0);
    cu.cuDevicePrimaryCtxRetain(&context, 0), cu.cuCtxSetCurrent(context);
    for (int i = 0; i < 2; i++) cu.cuStreamCreate(&streams[i], NON_BLOCKING);
}

// Enters, and has a context and streams.
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
