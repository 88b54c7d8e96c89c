// A preload of another author between the library and the management library, with answers of drivers that the simulated one does
// not give. It names all participants of `processes.c`, whose numbers are in the file `pids`.
//
// STRANGE_STRIDE: bytes of an entry of the third form. STRANGE_VERSION: the driver's. STRANGE_SHIFT: added to the numbers in the
// third form. STRANGE_EMPTY: the third form names no process. STRANGE_CROWD: number of strangers that are named first,
// everywhere. STRANGE_BUSY: how busy the device is. STRANGE_SILENT: no figure names the process that is busy.
#include "host.h"

enum { MOST = 512, INSUFFICIENT = 7 };

// This wraps the management library, so it loads that library at once.
__attribute__((constructor)) static void load(void) {
    dlopen("libnvidia-ml.so.1", RTLD_NOW);
}

static unsigned setting(const char *name, unsigned otherwise) {
    const char *value = getenv(name);
    return value ? (unsigned)number(value) : otherwise;
}

static unsigned everybody(unsigned *pids) {
    unsigned found = 0;
    for (; found < setting("STRANGE_CROWD", 0); found++) pids[found] = 2000000 + found;
    FILE *list = fopen("pids", "r");
    while (list && found < MOST && fscanf(list, "%u", pids + found) == 1) found++;
    if (list) fclose(list);
    return found;
}

// Sets the number of entries, and tells whether there is room for them.
static int answer(unsigned *count, unsigned found) {
    unsigned room = *count;
    *count = found;
    return room < found ? INSUFFICIENT : 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, unsigned char *entries) {
    unsigned pids[MOST], found = setting("STRANGE_EMPTY", 0) ? 0 : everybody(pids);
    unsigned stride = setting("STRANGE_STRIDE", 24);
    int status = answer(count, found);
    (void)device;
    for (unsigned entry = 0; status == 0 && entry < found; entry++) {
        u64 words[4] = {pids[entry] + setting("STRANGE_SHIFT", 0), 1000 + entry, 3 | (4 + (u64)entry) << 32, 0};
        memcpy(entries + entry * stride, words, stride);
    }
    return status;
}

int nvmlSystemGetDriverVersion(char *version, unsigned room) {
    const char *ours = getenv("STRANGE_VERSION");
    snprintf(version, room, "%s", ours ? ours : "580.65.06");
    return 0;
}

struct sample {
    unsigned pid;
    u64 time;
    unsigned sm, memory, encoder, decoder;
};
int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count, u64 last_seen) {
    unsigned pids[MOST], found = everybody(pids);
    if (getenv("STRANGE_SILENT") || getenv("STRANGE_NEW")) return 3;
    int status = answer(count, found);
    (void)device, (void)last_seen;
    for (unsigned entry = 0; status == 0 && entry < found; entry++)
        samples[entry] = (struct sample){.pid = pids[entry], .sm = 10 + entry, .memory = 1 + entry};
    return status;
}

// The whole device is busier than the processes together, as far as possible.
static void whole(unsigned *rates) {
    const char *busy = getenv("STRANGE_BUSY");
    rates[0] = busy ? atoi(busy) : 90, rates[1] = 80;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    (void)device;
    whole(rates);
    return 0;
}

int nvmlDeviceGetDynamicPstatesInfo(void *device, unsigned *words) {
    unsigned rates[2];
    (void)device;
    whole(rates);
    memset(words, 0, 33 * sizeof *words);
    for (int domain = 0; domain < 2; domain++) words[1 + 4 * domain] = 1, words[2 + 4 * domain] = rates[domain];
    return 0;
}

// Returns two samples of each kind: a tenth below and above the rates.
int nvmlDeviceGetSamples(void *device, unsigned kind, u64 last_seen, unsigned *type, unsigned *count, u64 *samples) {
    unsigned rates[2];
    (void)device, (void)last_seen;
    whole(rates);
    if (!samples || *count < 2) return 7;
    unsigned rate = kind == 2 ? rates[1] : rates[0];
    u64 two[4] = {1, rate - 10, 2, rate + 10};
    memcpy(samples, two, sizeof two);
    *type = 1, *count = 2;
    return 0;
}

struct info {
    u64 time;
    unsigned pid, sm, memory, others[4];
};
struct infos {
    unsigned version, count;
    u64 last_seen;
    struct info *entries;
};
int nvmlDeviceGetProcessesUtilizationInfo(void *device, struct infos *infos) {
    unsigned pids[MOST], found = everybody(pids);
    if (getenv("STRANGE_SILENT")) return 3;
    int status = answer(&infos->count, found);
    (void)device;
    for (unsigned entry = 0; status == 0 && entry < found; entry++)
        infos->entries[entry] = (struct info){.pid = pids[entry], .sm = 20 + entry, .memory = 5};
    return status;
}

int nvmlDeviceGetAccountingPids(void *device, unsigned *count, unsigned *to) {
    unsigned pids[MOST], found = everybody(pids);
    int status = answer(count, found);
    (void)device;
    if (status == 0) memcpy(to, pids, found * sizeof *to);
    return status;
}

int nvmlDeviceGetAccountingStats(void *device, unsigned pid, void *stats) {
    (void)device, (void)pid, (void)stats;
    return 0;
}

int nvmlDeviceGetAccountingStats_v2(void *device, void *stats) {
    (void)device, (void)stats;
    return 0;
}

int nvmlDeviceGetConfComputeProtectedMemoryUsage(void *device, u64 *memory) {
    (void)device;
    memory[0] = 1u << 30, memory[1] = 900u << 20, memory[2] = 124u << 20;
    return 0;
}

// This export shows the library that another object stands between it and the driver.
int nvmlDeviceGetMemoryInfo(void *device, u64 *memory) {
    return nvmlDeviceGetConfComputeProtectedMemoryUsage(device, memory);
}
