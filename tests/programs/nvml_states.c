// The state of NVML as the program sees it, while a library with a quota uses NVML in between.
#include "host.h"

int main(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *context, *device;
    if (!library || !start()) return 3;
#define NVML(name, parameters) int(*name) parameters = (int(*) parameters)dlsym(library, #name)
    NVML(nvmlInit_v2, (void));
    NVML(nvmlInitWithFlags, (unsigned));
    NVML(nvmlShutdown, (void));
    NVML(nvmlSystemGetNVMLVersion, (char *, unsigned));
    NVML(nvmlDeviceGetCount_v2, (unsigned *));
    NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **));
    NVML(nvmlDeviceGetMemoryInfo, (void *, void *));
    const char *(*text)(int) = (const char *(*)(int))dlsym(library, "nvmlErrorString");
    u64 memory[3];
    char version[80];
    unsigned count = 0;
    say("without: count %d, text %s", nvmlDeviceGetCount_v2(&count), text(1));
    say("without: version %d, shutdown %d, count %d", nvmlSystemGetNVMLVersion(version, 80), nvmlShutdown(), nvmlDeviceGetCount_v2(&count));
    for (int round = 0; round < 2; round++) {
        int first = nvmlInit_v2(), second = nvmlInitWithFlags(0);
        int counted = nvmlDeviceGetCount_v2(&count), found = nvmlDeviceGetHandleByIndex_v2(0, &device);
        int told = nvmlDeviceGetMemoryInfo(device, memory);
        say("with: init %d %d, count %d: %u, handle %d, memory %d", first, second, counted, count, found, told);
        int once = nvmlShutdown();
        say("once less: shutdown %d, count %d, memory %d", once, nvmlDeviceGetCount_v2(&count), nvmlDeviceGetMemoryInfo(device, memory));
        int twice = nvmlShutdown();
        int made = cu.cuCtxCreate_v2(&context, 0, 0);
        say("without: shutdown %d, context %d, count %d, memory %d", twice, made, nvmlDeviceGetCount_v2(&count), nvmlDeviceGetMemoryInfo(device, memory));
    }
    return 0;
}
