// Calls that make graphs with memory, by the door that a host asks for.
#pragma once
#include "host.h"

// `CUgraphNodeParams` of the driver API: its head, and as many words behind it as a node may use.
struct any_node {
    int kind, reserved[3];
    union {
        struct allocation_node allocation;
        struct { void *graph; int ownership; } child;
        u64 words[30];
    };
};

// `CUDA_GRAPH_INSTANTIATE_PARAMS` of the driver API.
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

__attribute__((unused)) static int (*by_version)(const char *, void **, int, u64, int *);

__attribute__((unused)) static void *look_up(const char *base, int version, u64 flags) {
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
