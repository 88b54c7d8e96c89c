// The device's memory as the management library reports it.
//
// management [take BYTES [INDEX]]: with `take`, the program holds BYTES on the driver's first device meanwhile. It asks NVML
// about the device with this index in NVML's own order.
#include "host.h"

struct memory {
    u64 total, free, used;
};
struct memory_v2 {
    unsigned version;
    u64 total, reserved, free, used;
};

int main(int count, char **words) {
    void *device = NULL, *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return say("no library"), 3;
#define NVML(name, parameters) int(*name) parameters = (int(*) parameters)dlsym(library, #name)
    NVML(nvmlInit, (void));
    NVML(nvmlInit_v2, (void));
    NVML(nvmlInitWithFlags, (unsigned));
    NVML(nvmlShutdown, (void));
    NVML(nvmlDeviceGetHandleByIndex, (unsigned, void **));
    NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **));
    NVML(nvmlDeviceGetMemoryInfo, (void *, struct memory *));
    NVML(nvmlDeviceGetMemoryInfo_v2, (void *, struct memory_v2 *));
    say("nvmlDeviceGetMemoryInfo by %s", server_of((void *)nvmlDeviceGetMemoryInfo));
    unsigned index = count > 3 ? atoi(words[3]) : 0;
    say("before init %d", nvmlDeviceGetHandleByIndex_v2(0, &device));
    if (count > 2) {
        u64 address = 0;
        int started = start();
        int take = started ? cu.cuMemAlloc_v2(&address, number(words[2])) : -1;
        size_t left = 0, total = 0;
        int info = started ? cu.cuMemGetInfo_v2(&left, &total) : -1;
        say("started %d, take %d, info %d: total %zu, free %zu", started, take, info, total, left);
    }
    int old = nvmlInit();
    int new = nvmlInit_v2();
    int flags = nvmlInitWithFlags(0);
    say("init %d %d %d", old, new, flags);
    int first = nvmlDeviceGetHandleByIndex(index, &device);
    int second = nvmlDeviceGetHandleByIndex_v2(index, &device);
    say("handle %d %d", first, second);
    struct memory memory = {0};
    int status = nvmlDeviceGetMemoryInfo(device, &memory);
    say("memory %d: total %llu, free %llu, used %llu", status, memory.total, memory.free, memory.used);
    struct memory_v2 more = {.version = 0x02000028};
    status = nvmlDeviceGetMemoryInfo_v2(device, &more);
    say("memory v2 %d: total %llu, free %llu, used %llu, adds up %s", status, more.total, more.free, more.used,
        more.total == more.free + more.used + more.reserved ? "yes" : "no");
    struct memory_v2 wrong = {.version = 7};
    say("wrong version %d", nvmlDeviceGetMemoryInfo_v2(device, &wrong));
    say("shutdown %d", nvmlShutdown());
    return 0;
}
