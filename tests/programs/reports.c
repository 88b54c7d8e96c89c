// Reports of a device's memory, which must agree at every instant.
//
// reports storm SEED: takes and frees memory as long as it lives.
// reports work: keeps the device busy from 0.3 s before it says `ready` to half a minute after that.
// reports watch QUOTA HOLDS: takes HOLDS bytes (0: does not use CUDA), says `ready`, and answers commands, one a line.
//   sample COUNT: reads all reports COUNT times; prints the first fault, or `fine` and the number of samples in which another
//     process held something.
//   figures: prints total, free, used, the number of processes and the sum of the bytes that they hold.
//   short: prints size and free memory in the forms of 32 bits, then in those of 64.
//   sizes: prints the device's size in both forms of CUDA; then total, reserved, free and used in NVML's newer form.
//   has PID: prints whether a list names this process.
//   busy: prints how busy GPU and memory are by the rates, by the domains, and by the mean of the samples of two seconds; then
//     the statuses of both functions that report the use by process.
#include "chance.h"
#include "process_lists.h"
#include <time.h>

enum { ROOM = 64, SAMPLES = 512, OF_GPU = 1, OF_MEMORY = 2, UTILIZATION_VERSION = 0x01000018 };
struct memory {
    u64 total, free, used;
};
struct memory_v2 {
    unsigned version;
    u64 total, reserved, free, used;
};

struct domains {
    unsigned flags, domains[8][4];
};
struct past {
    u64 time;
    unsigned value, rest;
};
struct use {
    unsigned pid;
    u64 time;
    unsigned values[4];
};
struct listed_use {
    u64 time;
    unsigned pid, values[7];
};
struct uses {
    unsigned version, count;
    u64 since;
    struct listed_use *entries;
};

static void *device;
#define NVML_FUNCTIONS(X) \
    X(nvmlInit_v2, (void)) \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **)) \
    X(nvmlDeviceGetMemoryInfo, (void *, struct memory *)) \
    X(nvmlDeviceGetMemoryInfo_v2, (void *, struct memory_v2 *)) \
    X(nvmlDeviceGetComputeRunningProcesses, (void *, unsigned *, struct info_v1 *)) \
    X(nvmlDeviceGetComputeRunningProcesses_v2, (void *, unsigned *, struct info_v2 *)) \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (void *, unsigned *, struct info_v2 *)) \
    X(nvmlDeviceGetRunningProcessDetailList, (void *, struct details *)) \
    X(nvmlDeviceGetUtilizationRates, (void *, unsigned *)) \
    X(nvmlDeviceGetDynamicPstatesInfo, (void *, struct domains *)) \
    X(nvmlDeviceGetSamples, (void *, unsigned, u64, unsigned *, unsigned *, struct past *)) \
    X(nvmlDeviceGetProcessUtilization, (void *, struct use *, unsigned *, u64)) \
    X(nvmlDeviceGetProcessesUtilizationInfo, (void *, struct uses *))
#define POINTER(name, parameters) static int(*name) parameters;
NVML_FUNCTIONS(POINTER)

static int start_nvml(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return 0;
#define FIND_NVML(name, parameters) name = (int(*) parameters)dlsym(library, #name);
    NVML_FUNCTIONS(FIND_NVML)
    return nvmlInit_v2() == 0 && nvmlDeviceGetHandleByIndex_v2(0, &device) == 0;
}

// Content of a list: its processes, the sum of their bytes, and the bytes of this process.
struct list {
    unsigned count, pids[ROOM];
    u64 sum, own;
};

static void add(struct list *list, unsigned pid, u64 used) {
    list->pids[list->count++] = pid;
    list->sum += used;
    if (pid == (unsigned)getpid()) list->own += used;
}

// Reads one of four forms of the list of processes.
static int processes(int form, struct list *list) {
    struct info_v1 first[ROOM];
    struct info_v2 second[ROOM];
    struct detail details[ROOM];
    struct details all = {0x01000018, 0, ROOM, details};
    unsigned count = ROOM;
    int status = form == 0   ? nvmlDeviceGetComputeRunningProcesses(device, &count, first)
                 : form == 1 ? nvmlDeviceGetComputeRunningProcesses_v2(device, &count, second)
                 : form == 2 ? nvmlDeviceGetComputeRunningProcesses_v3(device, &count, second)
                             : nvmlDeviceGetRunningProcessDetailList(device, &all);
    memset(list, 0, sizeof *list);
    if (form == 3) count = all.count;
    for (unsigned entry = 0; status == 0 && entry < count; entry++) {
        if (form == 0) add(list, first[entry].pid, first[entry].used);
        else if (form == 3) add(list, details[entry].pid, details[entry].used);
        else add(list, second[entry].pid, second[entry].used);
    }
    return status;
}

static u64 quota, holds;
static char wrong[256];

#define MUST(claim, ...) \
    do { \
        if (!(claim)) return snprintf(wrong, sizeof wrong, #claim ": " __VA_ARGS__), 0; \
    } while (0)

static int cuda_agrees(void) {
    size_t free = 0, total = 0, size = 0;
    unsigned short_free = 0, short_total = 0, short_size = 0, most = 0xffffffff;
    MUST(cu.cuMemGetInfo_v2(&free, &total) == 0, "-");
    MUST(total == quota && free <= quota - holds, "total %zu, free %zu", total, free);
    MUST(cu.cuMemGetInfo(&short_free, &short_total) == 0, "-");
    MUST(short_total == (quota < most ? quota : most) && short_free <= short_total, "%u %u", short_total, short_free);
    MUST(cu.cuDeviceTotalMem_v2(&size, 0) == 0 && size == quota, "%zu", size);
    MUST(cu.cuDeviceTotalMem(&short_size, 0) == 0 && short_size == short_total, "%u", short_size);
    return 1;
}

static int nvml_agrees(int *others) {
    struct memory memory = {0};
    struct memory_v2 more = {.version = 0x02000028};
    MUST(nvmlDeviceGetMemoryInfo(device, &memory) == 0, "-");
    MUST(memory.total == quota, "%llu", memory.total);
    MUST(memory.used <= quota && memory.used >= holds, "%llu", memory.used);
    MUST(memory.used + memory.free == memory.total, "%llu + %llu", memory.used, memory.free);
    MUST(nvmlDeviceGetMemoryInfo_v2(device, &more) == 0, "-");
    MUST(more.total == quota && more.used <= quota && more.used >= holds, "%llu of %llu", more.used, more.total);
    MUST(more.used + more.free + more.reserved == more.total, "%llu + %llu", more.used, more.free);
    *others |= memory.used > holds;
    for (int form = 0; form < 4; form++) {
        struct list list;
        MUST(processes(form, &list) == 0, "form %d", form);
        MUST(list.sum <= quota && list.own == holds, "form %d: %llu, own %llu", form, list.sum, list.own);
        for (unsigned one = 0; one < list.count; one++)
            for (unsigned two = 0; two < one; two++) MUST(list.pids[one] != list.pids[two], "twice %u", list.pids[one]);
    }
    return 1;
}

static void sample(u64 count) {
    unsigned with_others = 0;
    for (u64 turn = 0; turn < count; turn++) {
        int others = 0;
        if ((holds && !cuda_agrees()) || !nvml_agrees(&others)) return say("after %llu: %s", turn, wrong);
        with_others += others;
    }
    say("fine %u", with_others);
}

static void figures(void) {
    struct memory memory = {0};
    struct list list;
    nvmlDeviceGetMemoryInfo(device, &memory);
    processes(1, &list);
    say("%llu %llu %llu %u %llu", memory.total, memory.free, memory.used, list.count, list.sum);
}

static void short_forms(void) {
    size_t free = 0, total = 0;
    unsigned short_free = 0, short_total = 0;
    cu.cuMemGetInfo_v2(&free, &total);
    cu.cuMemGetInfo(&short_free, &short_total);
    say("%u %u %zu %zu", short_total, short_free, total, free);
}

static void sizes(void) {
    size_t size = 0;
    unsigned short_size = 0;
    struct memory_v2 more = {.version = 0x02000028};
    cu.cuDeviceTotalMem_v2(&size, 0);
    cu.cuDeviceTotalMem(&short_size, 0);
    nvmlDeviceGetMemoryInfo_v2(device, &more);
    say("%u %zu %llu %llu %llu %llu", short_size, size, more.total, more.reserved, more.free, more.used);
}

static void has(unsigned pid) {
    int found = 0;
    for (int form = 0; form < 4; form++) {
        struct list list;
        processes(form, &list);
        for (unsigned entry = 0; entry < list.count; entry++) found |= list.pids[entry] == pid;
    }
    say("%d", found);
}

static unsigned mean_of(unsigned kind, u64 since) {
    static struct past samples[SAMPLES];
    unsigned type, count = SAMPLES;
    u64 sum = 0;
    if (nvmlDeviceGetSamples(device, kind, since, &type, &count, samples) || !count) return 0;
    for (unsigned sample = 0; sample < count; sample++) sum += samples[sample].value;
    return sum / count;
}

static void busy(void) {
    struct timespec now;
    struct domains states = {0};
    struct use samples[ROOM];
    struct listed_use entries[ROOM];
    struct uses list = {UTILIZATION_VERSION, ROOM, 0, entries};
    unsigned rates[2] = {0}, count = ROOM;
    clock_gettime(CLOCK_REALTIME, &now);
    u64 since = (u64)(now.tv_sec - 2) * 1000000;
    int wrong = nvmlDeviceGetUtilizationRates(device, rates) || nvmlDeviceGetDynamicPstatesInfo(device, &states);
    if (wrong) return say("wrong");
    unsigned gpu = mean_of(OF_GPU, since), memory = mean_of(OF_MEMORY, since);
    int first = nvmlDeviceGetProcessUtilization(device, samples, &count, 0);
    int second = nvmlDeviceGetProcessesUtilizationInfo(device, &list);
    say("%u %u %u %u %u %u %d %d", rates[0], rates[1], states.domains[0][1], states.domains[1][1], gpu, memory, first,
        second);
}

static int storm(u64 seed) {
    u64 blocks[4] = {0};
    if (!start()) return 3;
    say("ready");
    for (;;) {
        u64 *block = &blocks[draw(&seed, 4)];
        if (*block) cu.cuMemFree_v2(*block), *block = 0;
        else if (cu.cuMemAlloc_v2(block, draw(&seed, 8 << 20) + 1)) *block = 0;
    }
}

static int work(void) {
    static const char image[] = ".version 8.0\n.target sm_90\n.visible .entry spin_300ms() { ret; }\n";
    void *module = NULL, *kernel = NULL;
    if (!start()) return 3;
    int (*load)(void **, const void *), (*find)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                  void **);
    *(void **)&load = dlsym(driver, "cuModuleLoadData");
    *(void **)&find = dlsym(driver, "cuModuleGetFunction");
    *(void **)&launch = dlsym(driver, "cuLaunchKernel");
    if (load(&module, image) || find(&kernel, module, "spin_300ms")) return 4;
    for (int turn = 0; turn < 100; turn++) {
        if (launch(kernel, 264, 1, 1, 1024, 1, 1, 0, NULL, NULL, NULL)) return 5;
        if (turn == 0 && cu.cuStreamSynchronize(NULL)) return 6;
    }
    say("ready");
    getchar();
    return 0;
}

int main(int count, char **words) {
    char line[64], what[16];
    u64 address, value = 0;
    if (count > 2 && !strcmp(words[1], "storm")) return storm(number(words[2]));
    if (count > 1 && !strcmp(words[1], "work")) return work();
    if (count < 4) return 2;
    quota = number(words[2]), holds = number(words[3]);
    if (!start_nvml() || (holds && (!start() || cu.cuMemAlloc_v2(&address, holds)))) return 3;
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%15s %llu", what, &value) < 1) return 2;
        if (!strcmp(what, "sample")) sample(value);
        else if (!strcmp(what, "figures")) figures();
        else if (!strcmp(what, "short")) short_forms();
        else if (!strcmp(what, "sizes")) sizes();
        else if (!strcmp(what, "has")) has(value);
        else if (!strcmp(what, "busy")) busy();
        else return 2;
    }
    return 0;
}
