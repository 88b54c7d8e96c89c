// Parts of hosts that submit work of every kind: the calls, and objects to work on.
#pragma once
#include "host.h"

enum { SIZE = 4096, NARROW = 512, HOST = 1, DEVICE = 2, ARRAY = 3, UNIFIED = 4, NON_BLOCKING = 1 };

// `CUlaunchConfig` of the driver API.
struct config {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned count;
};

// `CUDA_LAUNCH_PARAMS` of the driver API.
struct several {
    void *function;
    unsigned grid[3], block[3], shared;
    void *stream, **parameters;
};

// `CUDA_MEMCPY2D` of the driver API.
struct plane {
    struct {
        size_t x, y;
        int kind;
        const void *host;
        u64 device;
        void *array;
        size_t pitch;
    } from, to;
    size_t width, height;
};

// `CUDA_MEMCPY3D` of the driver API.
struct volume {
    struct {
        size_t x, y, z, level;
        int kind;
        const void *host;
        u64 device;
        void *array, *reserved;
        size_t pitch, height;
    } from, to;
    size_t width, height, depth;
};

// `CUDA_ARRAY_DESCRIPTOR` of the driver API.
struct shape {
    size_t width, height;
    int format;
    unsigned channels;
};

#define KERNEL_PARAMETERS \
    (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)
#define COOPERATIVE_PARAMETERS \
    (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **)
#define ROWS_PARAMETERS(value) (u64, size_t, value, size_t, size_t, void *)

// X(exported symbol, first version of cuGetProcAddress, parameters)
#define GPU_FUNCTIONS(X) \
    X(cuCtxSynchronize, 2000, (void)) \
    X(cuModuleLoadData, 2000, (void **, const void *)) \
    X(cuModuleGetFunction, 2000, (void **, void *, const char *)) \
    X(cuModuleUnload, 2000, (void *)) \
    X(cuFuncSetBlockShape, 2000, (void *, int, int, int)) \
    X(cuArrayCreate_v2, 3020, (void **, const struct shape *)) \
    X(cuMemcpyHtoD, 2000, (unsigned, const void *, unsigned)) \
    X(cuMemcpyDtoH, 2000, (void *, unsigned, unsigned)) \
    X(cuMemcpyHtoD_v2, 3020, (u64, const void *, size_t)) \
    X(cuMemcpyDtoH_v2, 3020, (void *, u64, size_t)) \
    X(cuMemcpyHtoA_v2, 3020, (void *, size_t, const void *, size_t)) \
    X(cuMemcpyAtoH_v2, 3020, (void *, void *, size_t, size_t)) \
    X(cuStreamDestroy, 2000, (void *)) \
    X(cuStreamDestroy_v2, 4000, (void *)) \
    X(cuStreamIsCapturing, 10000, (void *, int *)) \
    X(cuStreamBeginCapture, 10000, (void *)) \
    X(cuStreamBeginCapture_ptsz, 10000, (void *)) \
    X(cuStreamBeginCapture_v2, 10010, (void *, int)) \
    X(cuStreamBeginCapture_v2_ptsz, 10010, (void *, int)) \
    X(cuStreamBeginCaptureToGraph, 12030, (void *, void *, void **, void *, size_t, int)) \
    X(cuStreamBeginCaptureToGraph_ptsz, 12030, (void *, void *, void **, void *, size_t, int)) \
    X(cuStreamBeginRecaptureToGraph, 13030, (void *, int, void *, void *, void *)) \
    X(cuStreamBeginRecaptureToGraph_ptsz, 13030, (void *, int, void *, void *, void *)) \
    X(cuStreamBeginCaptureToCig, 13010, (void *, void *)) \
    X(cuStreamBeginCaptureToCig_ptsz, 13010, (void *, void *)) \
    X(cuStreamEndCapture, 10000, (void *, void **)) \
    X(cuStreamEndCapture_ptsz, 10000, (void *, void **)) \
    X(cuStreamEndCaptureToCig, 13010, (void *)) \
    X(cuStreamEndCaptureToCig_ptsz, 13010, (void *)) \
    X(cuThreadExchangeStreamCaptureMode, 10010, (int *)) \
    X(cuGraphCreate, 10000, (void **, unsigned)) \
    X(cuGraphGetNodes, 10000, (void *, void **, size_t *)) \
    X(cuGraphNodeGetType, 10000, (void *, int *)) \
    X(cuGraphDestroy, 10000, (void *)) \
    X(cuGraphInstantiateWithFlags, 11040, (void **, void *, u64)) \
    X(cuGraphExecDestroy, 10000, (void *)) \
    X(cuEventCreate, 2000, (void **, unsigned)) \
    X(cuEventRecord, 2000, (void *, void *)) \
    X(cuEventQuery, 2000, (void *)) \
    X(cuEventSynchronize, 2000, (void *)) \
    X(cuEventDestroy_v2, 4000, (void *)) \
    X(cuStreamWaitEvent, 3020, (void *, void *, unsigned))

#define GPU_MEMBER(symbol, version, parameters) int(*symbol) parameters;
static struct {
    GPU_FUNCTIONS(GPU_MEMBER)
} gpu;

#ifdef LINKED
#define DECLARE(symbol, base, version, flags, parameters) extern int symbol parameters;
#define GPU_DECLARE(symbol, version, parameters) extern int symbol parameters;
CUDA_FUNCTIONS(DECLARE)
GPU_FUNCTIONS(GPU_DECLARE)
#endif

// Finds a function by its exported name: the export itself, or the look-up's answer for its base name and its version.
__attribute__((unused)) static void *find(const char *door, const char *symbol, int version) {
    if (!strcmp(door, "dlsym")) return dlsym(driver, symbol);
    char base[128];
    void *found = NULL;
    int told = -1;
    u64 flags = 0;
    snprintf(base, sizeof base, "%s", symbol);
    size_t length = strlen(base);
    if (length > 5 && (!strcmp(base + length - 5, "_ptsz") || !strcmp(base + length - 5, "_ptds"))) {
        base[length -= 5] = 0;
        flags = 2;
    }
    if (length > 3 && base[length - 3] == '_' && base[length - 2] == 'v') base[length - 3] = 0;
    if (!strcmp(door, "first")) return cu.cuGetProcAddress(base, &found, version, flags) ? NULL : found;
    return cu.cuGetProcAddress_v2(base, &found, version, flags, &told) || told ? NULL : found;
}

__attribute__((unused)) static int open_all(const char *door) {
#ifdef LINKED
#define LINK(symbol, base, version, flags, parameters) cu.symbol = symbol;
#define GPU_LINK(symbol, version, parameters) gpu.symbol = symbol;
    (void)door;
    CUDA_FUNCTIONS(LINK)
    GPU_FUNCTIONS(GPU_LINK)
    return 1;
#else
    if (!open_driver()) return 0;
#define GPU_FIND(symbol, version, parameters) *(void **)&gpu.symbol = find(door, #symbol, version);
    GPU_FUNCTIONS(GPU_FIND)
    return 1;
#endif
}

static void *context, *stream, *module, *work, *arrays[2], *executable;
static u64 memory[2];
static unsigned narrow[2];
static unsigned char rows[SIZE];
static struct config config;
static struct several several;
static struct plane plane;
static struct volume volume;

// Makes a kernel that runs for the time in its name.
__attribute__((unused)) static void *kernel(const char *time) {
    char text[256], name[64];
    void *made = NULL;
    snprintf(name, sizeof name, "spin_%s", time);
    snprintf(text, sizeof text, ".version 8.0\n.target sm_80\n.visible .entry %s() { ret; }\n", name);
    if (gpu.cuModuleLoadData(&module, text) || gpu.cuModuleGetFunction(&made, module, name)) return NULL;
    return made;
}

__attribute__((unused)) static int begin(const char *time) {
    return cu.cuInit(0) == 0 && cu.cuDevicePrimaryCtxRetain(&context, 0) == 0 && cu.cuCtxSetCurrent(context) == 0 &&
           cu.cuStreamCreate(&stream, NON_BLOCKING) == 0 && (work = kernel(time)) != NULL;
}

// Captures a graph of `nodes` kernels, one behind the other.
__attribute__((unused)) static void *captured(int nodes) {
    void *made = NULL;
    if (gpu.cuStreamBeginCapture_v2(stream, 0)) return NULL;
    int (*launch) KERNEL_PARAMETERS = dlsym(driver ? driver : RTLD_DEFAULT, "cuLaunchKernel");
    for (int i = 0; i < nodes; i++) launch(work, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    return gpu.cuStreamEndCapture(stream, &made) ? NULL : made;
}

// Makes an object of every kind to work on. Returns 0 if a part is not available.
__attribute__((unused)) static int prepare(const char *time) {
    struct shape flat = {.width = 64, .height = 0, .format = 1, .channels = 1};
    if (!begin(time)) return say("no kernel"), 0;
    for (int i = 0; i < 2; i++) {
        int one = cu.cuMemAlloc_v2(&memory[i], SIZE), two = cu.cuMemAlloc(&narrow[i], NARROW);
        int three = gpu.cuArrayCreate_v2(&arrays[i], &flat);
        if (one || two || three) return say("no memory: %d %d %d", one, two, three), 0;
    }
    for (int i = 0; i < SIZE; i++) rows[i] = i * 7;
    if (gpu.cuMemcpyHtoD_v2(memory[0], rows, SIZE) || gpu.cuMemcpyHtoA_v2(arrays[0], 0, rows, 64)) return 0;
    if (gpu.cuMemcpyHtoD(narrow[0], rows + 9, NARROW)) return 0;
    gpu.cuFuncSetBlockShape(work, 32, 1, 1);
    config = (struct config){.grid = {5, 1, 1}, .block = {32, 1, 1}, .stream = stream};
    several = (struct several){.function = work, .grid = {2, 1, 1}, .block = {32, 1, 1}, .stream = stream};
    plane.from.kind = plane.to.kind = volume.from.kind = volume.to.kind = DEVICE;
    plane.from.device = volume.from.device = memory[0], plane.to.device = volume.to.device = memory[1];
    plane.from.pitch = plane.to.pitch = volume.from.pitch = volume.to.pitch = 64;
    volume.from.height = volume.to.height = 4;
    plane.width = volume.width = 32, plane.height = 8, volume.height = 4, volume.depth = 2;
    void *graph = captured(3);
    if (!graph || gpu.cuGraphInstantiateWithFlags(&executable, graph, 0)) return say("no graph"), 0;
    return 1;
}
