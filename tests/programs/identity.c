// Devices that CUDA and the management library show, and their sizes.
//
// identity WORD...: does one thing after the other.
//   cuda: starts CUDA and prints each of its devices: number, UUID, size.
//   nvml: prints each device of the management library, instances too: place, UUID, size, used and free bytes.
//   take NUMBER BYTES: takes memory of CUDA's device with this number.
//   hold: says so, and waits until its input ends.
#include "host.h"

struct memory {
    u64 total, free, used;
};

static void cuda(void) {
    int count = 0, status = open_driver() ? cu.cuInit(0) : -1;
    if (status != 0) return say("cuda %d", status);
    int (*identity)(unsigned char *, int) = (int (*)(unsigned char *, int))dlsym(driver, "cuDeviceGetUuid_v2");
    cu.cuDeviceGetCount(&count);
    for (int device = 0; device < count; device++) {
        unsigned char uuid[16] = {0};
        char text[40];
        size_t total = 0;
        identity(uuid, device);
        cu.cuDeviceTotalMem_v2(&total, device);
        for (int byte = 0, at = 0; byte < 16; byte++)
            at += sprintf(text + at, byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-%02x" : "%02x", uuid[byte]);
        say("cuda %d %s %zu", device, text, total);
    }
}

static void *library;
#define NVML(name, parameters) int(*name) parameters = (int(*) parameters)dlsym(library, #name)

static void show(const char *place, void *device) {
    NVML(nvmlDeviceGetUUID, (void *, char *, unsigned));
    NVML(nvmlDeviceGetMemoryInfo, (void *, struct memory *));
    char uuid[96] = "";
    struct memory memory = {0};
    nvmlDeviceGetUUID(device, uuid, sizeof uuid);
    int status = nvmlDeviceGetMemoryInfo(device, &memory);
    say("nvml %s %s %llu %llu %llu %d", place, uuid + 4, memory.total, memory.used, memory.free, status);
}

static void nvml(void) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return say("no library");
    NVML(nvmlInit_v2, (void));
    NVML(nvmlDeviceGetCount_v2, (unsigned *));
    NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **));
    NVML(nvmlDeviceGetMaxMigDeviceCount, (void *, unsigned *));
    NVML(nvmlDeviceGetMigDeviceHandleByIndex, (void *, unsigned, void **));
    unsigned count = 0;
    nvmlInit_v2();
    nvmlDeviceGetCount_v2(&count);
    for (unsigned index = 0; index < count; index++) {
        void *device = NULL, *instance = NULL;
        char place[16];
        nvmlDeviceGetHandleByIndex_v2(index, &device);
        sprintf(place, "%u", index);
        show(place, device);
        unsigned most = 0;
        nvmlDeviceGetMaxMigDeviceCount(device, &most);
        for (unsigned part = 0; part < most; part++) {
            if (nvmlDeviceGetMigDeviceHandleByIndex(device, part, &instance)) continue;
            sprintf(place, "%u.%u", index, part);
            show(place, instance);
        }
    }
}

static void take(int device, u64 bytes) {
    void *context = NULL;
    u64 address = 0;
    int status = cu.cuDevicePrimaryCtxRetain(&context, device);
    if (status == 0) status = cu.cuCtxSetCurrent(context);
    say("take %d %d", device, status ? status : cu.cuMemAlloc_v2(&address, bytes));
}

int main(int count, char **words) {
    for (int word = 1; word < count; word++) {
        if (!strcmp(words[word], "cuda")) cuda();
        else if (!strcmp(words[word], "nvml")) nvml();
        else if (!strcmp(words[word], "hold")) say("holds"), getchar();
        else if (!strcmp(words[word], "take") && word + 2 < count) {
            take(atoi(words[word + 1]), number(words[word + 2]));
            word += 2;
        } else return 2;
    }
    return 0;
}
