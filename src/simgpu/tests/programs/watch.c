// Prints what NVML tells about this process and about others.
//
// watch show          uses NVML alone: prints the sizes and the processes of every device
// watch hold BYTES    uses CUDA alone: has a context and an allocation until its input ends
// watch spin          uses CUDA alone: keeps the device busy for ten seconds, or until its input ends
// watch shares        uses NVML alone: prints how much each process uses the device over half a second
// watch agree         uses both: after every change, the figures of CUDA and of NVML must be equal to the byte
// watch count         starts and ends NVML several times, and makes a call that fails if the caller asks for it
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long u64;

struct memory {
    u64 total, free, used;
};
struct process {
    unsigned pid;
    u64 used;
    unsigned instance, part;
};

struct sample {
    u64 time;
    union {
        double wide;
        unsigned number;
    } value;
};
struct use {
    unsigned pid;
    u64 time;
    unsigned sm, memory, encoder, decoder;
};

static void *open_library(const char *name) {
    void *library = dlopen(name, RTLD_NOW);
    if (!library) fprintf(stderr, "%s\n", dlerror()), exit(3);
    return library;
}

#define FROM(library, name, parameters) int(*name) parameters = (int(*) parameters)dlsym(library, #name)
#define MUST(call)                                                                            \
    do {                                                                                      \
        int status = (call);                                                                  \
        if (status) fprintf(stderr, "%s: %d\n", #call, status), exit(1);                      \
    } while (0)

static int show(void *ml) {
    FROM(ml, nvmlInit_v2, (void));
    FROM(ml, nvmlDeviceGetCount_v2, (unsigned *));
    FROM(ml, nvmlDeviceGetHandleByIndex_v2, (unsigned, void **));
    FROM(ml, nvmlDeviceGetMemoryInfo, (void *, struct memory *));
    FROM(ml, nvmlDeviceGetComputeRunningProcesses_v3, (void *, unsigned *, struct process *));
    MUST(nvmlInit_v2());
    unsigned count = 0;
    MUST(nvmlDeviceGetCount_v2(&count));
    for (unsigned i = 0; i < count; i++) {
        void *device;
        struct memory memory;
        struct process list[64];
        unsigned length = 64;
        MUST(nvmlDeviceGetHandleByIndex_v2(i, &device));
        MUST(nvmlDeviceGetMemoryInfo(device, &memory));
        MUST(nvmlDeviceGetComputeRunningProcesses_v3(device, &length, list));
        printf("device %u: total %llu, used %llu\n", i, memory.total, memory.used);
        for (unsigned j = 0; j < length; j++) printf("process %u: %llu\n", list[j].pid, list[j].used);
    }
    return 0;
}

static int hold(void *cuda, u64 bytes) {
    FROM(cuda, cuInit, (unsigned));
    FROM(cuda, cuDevicePrimaryCtxRetain, (void **, int));
    FROM(cuda, cuCtxSetCurrent, (void *));
    FROM(cuda, cuMemAlloc_v2, (u64 *, size_t));
    void *context;
    u64 address;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&address, bytes));
    puts("holding");
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}

static int spin(void *cuda) {
    FROM(cuda, cuInit, (unsigned));
    FROM(cuda, cuDevicePrimaryCtxRetain, (void **, int));
    FROM(cuda, cuCtxSetCurrent, (void *));
    FROM(cuda, cuModuleLoadData, (void **, const void *));
    FROM(cuda, cuModuleGetFunction, (void **, void *, const char *));
    FROM(cuda, cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **));
    void *context, *module, *kernel;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n.visible .entry spin_100ms() { ret; }"));
    MUST(cuModuleGetFunction(&kernel, module, "spin_100ms"));
    for (int i = 0; i < 100; i++) MUST(cuLaunchKernel(kernel, 1024, 1, 1, 1024, 1, 1, 0, NULL, NULL, NULL));
    puts("holding");
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}

static int shares(void *ml) {
    FROM(ml, nvmlInit_v2, (void));
    FROM(ml, nvmlDeviceGetHandleByIndex_v2, (unsigned, void **));
    FROM(ml, nvmlDeviceGetSamples, (void *, int, u64, unsigned *, unsigned *, struct sample *));
    FROM(ml, nvmlDeviceGetProcessUtilization, (void *, struct use *, unsigned *, u64));
    void *device;
    struct sample samples[120];
    struct use uses[64];
    unsigned kind, count = 120;
    MUST(nvmlInit_v2());
    MUST(nvmlDeviceGetHandleByIndex_v2(0, &device));
    while (nvmlDeviceGetSamples(device, 1, 0, &kind, &count, samples)) usleep(1000), count = 120;
    u64 start = samples[count - 1].time, end = start;
    while (end < start + 500000) {
        usleep(1000);
        count = 120;
        if (!nvmlDeviceGetSamples(device, 1, end, &kind, &count, samples)) end = samples[count - 1].time;
    }
    count = 64;
    MUST(nvmlDeviceGetProcessUtilization(device, uses, &count, start));
    for (unsigned i = 0; i < count; i++) printf("process %u: %u\n", uses[i].pid, uses[i].sm);
    return 0;
}

static int agree(void *ml, void *cuda) {
    FROM(ml, nvmlInit_v2, (void));
    FROM(ml, nvmlDeviceGetHandleByIndex_v2, (unsigned, void **));
    FROM(ml, nvmlDeviceGetMemoryInfo, (void *, struct memory *));
    FROM(cuda, cuInit, (unsigned));
    FROM(cuda, cuDevicePrimaryCtxRetain, (void **, int));
    FROM(cuda, cuCtxSetCurrent, (void *));
    FROM(cuda, cuMemAlloc_v2, (u64 *, size_t));
    FROM(cuda, cuMemFree_v2, (u64));
    FROM(cuda, cuMemGetInfo_v2, (size_t *, size_t *));
    void *device, *context;
    u64 held[16] = {0}, seen = 0;
    MUST(nvmlInit_v2());
    MUST(nvmlDeviceGetHandleByIndex_v2(0, &device));
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    srand(1);
    for (int step = 0; step < 2000; step++) {
        u64 *place = &held[rand() % 16];
        if (*place) {
            MUST(cuMemFree_v2(*place));
            *place = 0;
        } else if (cuMemAlloc_v2(place, 1 + rand() % (64 << 20))) {
            *place = 0;
        }
        struct memory memory;
        size_t left, size;
        MUST(nvmlDeviceGetMemoryInfo(device, &memory));
        MUST(cuMemGetInfo_v2(&left, &size));
        if (memory.free != left || memory.total != size || memory.used != size - left) {
            printf("step %d: NVML %llu of %llu, CUDA %zu of %zu\n", step, memory.free, memory.total, left, size);
            return 1;
        }
        seen += memory.used;
    }
    printf("agreed, something was used: %s\n", seen ? "yes" : "no");
    return 0;
}

static int count(void *ml) {
    FROM(ml, nvmlInit, (void));
    FROM(ml, nvmlInitWithFlags, (unsigned));
    FROM(ml, nvmlShutdown, (void));
    FROM(ml, nvmlDeviceGetCount_v2, (unsigned *));
    FROM(ml, nvmlDeviceGetEccMode, (void *, unsigned *, unsigned *));
    FROM(ml, nvmlInternalGetExportTable, (const size_t **, const void *));
    const char *(*nvmlErrorString)(int) = (const char *(*)(int))dlsym(ml, "nvmlErrorString");
    unsigned devices;
    printf("shutdown before init %d\n", nvmlShutdown());
    printf("before init %d: %s\n", nvmlDeviceGetCount_v2(&devices), nvmlErrorString(1));
    printf("what is not simulated %d", nvmlDeviceGetEccMode(NULL, NULL, NULL));
    printf(", init %d", nvmlInit());
    printf(" %d", nvmlInitWithFlags(0));
    printf(", what is not simulated %d\n", nvmlDeviceGetEccMode(NULL, NULL, NULL));
    printf("use %d", nvmlDeviceGetCount_v2(&devices));
    printf(" %d", nvmlDeviceGetCount_v2(&devices));
    printf(" %d\n", nvmlDeviceGetCount_v2(&devices));
    for (int i = 0; i < 2; i++) {
        printf("shutdown %d, ", nvmlShutdown());
        printf("use %d\n", nvmlDeviceGetCount_v2(&devices));
    }
    const size_t *table = NULL;
    char id[16] = {0};
    printf("private table %d", nvmlInternalGetExportTable(&table, id));
    printf(", %zu bytes, entries %d %d\n", table[0], ((int (*)(void))table[1])(), ((int (*)(void))table[639])());
    return 0;
}

int main(int words, char **word) {
    const char *wish = words > 1 ? word[1] : "";
    if (!strcmp(wish, "show")) return show(open_library("libnvidia-ml.so.1"));
    if (!strcmp(wish, "hold")) return hold(open_library("libcuda.so.1"), words > 2 ? strtoull(word[2], NULL, 10) : 1);
    if (!strcmp(wish, "spin")) return spin(open_library("libcuda.so.1"));
    if (!strcmp(wish, "shares")) return shares(open_library("libnvidia-ml.so.1"));
    if (!strcmp(wish, "agree")) return agree(open_library("libnvidia-ml.so.1"), open_library("libcuda.so.1"));
    if (!strcmp(wish, "count")) return count(open_library("libnvidia-ml.so.1"));
    return fprintf(stderr, "show, hold BYTES, spin, shares, agree or count\n"), 2;
}
