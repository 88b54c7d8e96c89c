// Answers of a driver without a GPU, before and after its start has failed.
//
// No call has a null name or output pointer where drivers are known to crash.
#include "host.h"

static const unsigned char TABLES[][16] = {
    {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
    {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc},
    {1, 2, 3},
};

static void ask(const char *when) {
    u64 address = 5, handle = 5;
    size_t left = 5, total = 5, grain = 5;
    int version = 5, count = 5, device = 5;
    void *context = (void *)5, *stream = (void *)5, *pool = (void *)5;
    const char *text = "untouched";
    struct allocation wanted = {.kind = PINNED, .location = ON_DEVICE};
#define LINE(name, arguments, format, ...) \
    if (cu.name) { \
        int status = cu.name arguments; \
        say("%s " #name ": %d, " format, when, status, __VA_ARGS__); \
    } else say("%s " #name ": not there", when)
    LINE(cuDriverGetVersion, (&version), "%d", version);
    LINE(cuDeviceGetCount, (&count), "%d", count);
    LINE(cuDeviceGet, (&device, 0), "%d", device);
    LINE(cuDeviceTotalMem_v2, (&total, 0), "%zu", total);
    LINE(cuCtxGetCurrent, (&context), "%p", context);
    LINE(cuCtxSetCurrent, (NULL), "%d", 0);
    LINE(cuDevicePrimaryCtxRetain, (&context, 0), "%p", context);
    LINE(cuCtxCreate_v2, (&context, 0, 0), "%p", context);
    LINE(cuMemAlloc_v2, (&address, 4096), "%llu", address);
    LINE(cuMemAllocPitch_v2, (&address, &left, 4, 4, 4), "%llu %zu", address, left);
    LINE(cuMemAllocManaged, (&address, 4096, 1), "%llu", address);
    LINE(cuMemCreate, (&handle, 2 << 20, &wanted, 0), "%llu", handle);
    LINE(cuMemAllocAsync, (&address, 4096, NULL), "%llu", address);
    LINE(cuMemAllocAsync_ptsz, (&address, 4096, NULL), "%llu", address);
    LINE(cuMemAllocFromPoolAsync, (&address, 4096, NULL, NULL), "%llu", address);
    LINE(cuMemFree_v2, (4096), "%d", 0);
    LINE(cuMemFreeAsync, (4096, NULL), "%d", 0);
    LINE(cuMemRelease, (4096), "%d", 0);
    LINE(cuMemUnmap, (4096, 4096), "%d", 0);
    LINE(cuMemGetInfo_v2, (&left, &total), "%zu %zu", left, total);
    LINE(cuMemGetAllocationGranularity, (&grain, &wanted, 0), "%zu", grain);
    LINE(cuDeviceGetDefaultMemPool, (&pool, 0), "%p", pool);
    LINE(cuStreamCreate, (&stream, 0), "%p", stream);
    LINE(cuStreamSynchronize, (NULL), "%d", 0);
    LINE(cuDevicePrimaryCtxRelease_v2, (0), "%d", 0);
    LINE(cuDevicePrimaryCtxReset_v2, (0), "%d", 0);
    LINE(cuGetErrorString, (2, &text), "%s", text ? text : "null");
    LINE(cuGetErrorString, (12345, &text), "%s", text ? text : "null");
    for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++) {
        const void *table = (void *)5;
        LINE(cuGetExportTable, (&table, TABLES[i]), "%s", !table ? "null" : table == (void *)5 ? "untouched" : server_of(table));
    }
}

static void ask_management(const char *when, void *library) {
    static const char *const plain[] = {"nvmlInit", "nvmlInit_v2", "nvmlShutdown"};
    unsigned count = 5;
    void *device = (void *)5;
    u64 memory[8] = {0};
    int (*get_count)(unsigned *) = (int (*)(unsigned *))dlsym(library, "nvmlDeviceGetCount_v2");
    int (*get_handle)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*get_memory)(void *, void *) = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    const char *(*text)(int) = (const char *(*)(int))dlsym(library, "nvmlErrorString");
    int status = get_count(&count);
    say("%s nvmlDeviceGetCount_v2: %d, %u", when, status, count);
    status = get_handle(0, &device);
    say("%s nvmlDeviceGetHandleByIndex_v2: %d, %p", when, status, device);
    status = get_memory(NULL, memory);
    say("%s nvmlDeviceGetMemoryInfo: %d, %llu", when, status, memory[0]);
    say("%s nvmlErrorString: %s, %s", when, text(9), text(1));
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        int (*call)(void) = (int (*)(void))dlsym(library, plain[i]);
        say("%s %s: %d", when, plain[i], call ? call() : -1);
    }
    int (*flags)(unsigned) = (int (*)(unsigned))dlsym(library, "nvmlInitWithFlags");
    for (unsigned i = 0; i < 4; i++) say("%s nvmlInitWithFlags %u: %d", when, i, flags(i));
}

int main(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!open_driver()) return say("no driver"), 3;
    ask("before");
    say("cuInit with flags: %d", cu.cuInit(1));
    say("cuInit: %d", cu.cuInit(0));
    ask("after");
    say("cuInit again: %d", cu.cuInit(0));
    if (!library) return say("no management library"), 0;
    ask_management("before", library);
    ask_management("after", library);
    return 0;
}
