// A library that limits memory and makes one known mistake of such libraries.
//
// A preload that stands for no product. It exists to show that the simulated GPU detects each mistake. NAIVE_LIMIT=BYTES[,BYTES]
// is the quota of device 0 and of device 1; NAIVE_MISTAKE names one mistake, or none. The books of all processes lie in the file
// `naive` of the working folder. Without a mistake the library holds one lock from the check to the entry in the books, across
// the driver's call. That is slow, and right for the hosts of these tests. The library does not follow a forked child that goes
// on with its parent's memory, and it knows how the simulated driver rounds.
#include "naive_books.h"

// ---- Linear, pitched and managed memory

int cuMemAlloc_v2(u64 *address, size_t bytes) {
    int device = current_device(), status = enter(device, bytes);
    if (status) return status;
    status = cu.cuMemAlloc_v2(address, bytes);
    return leave(status, device, bytes, status ? 0 : *address);
}

int cuMemAlloc(unsigned *address, unsigned bytes) {
    int device = current_device(), status = enter(device, bytes);
    if (status) return status;
    status = cu.cuMemAlloc(address, bytes);
    return leave(status, device, bytes, status ? 0 : *address);
}

// The pitch is not known before the call. The driver's pitch is the width, rounded up.
static u64 pitched(u64 width, u64 height) {
    return (makes("width_by_height") || makes("second_check") ? width : round_up(width, 512)) * height;
}

// This mistake: the library checks memory once more after the driver has given it out. It refuses it, and does not free it.
static int too_late(int status, int device, u64 bytes) {
    if (status || device < 0 || !makes("second_check") || fits(device, bytes)) return 0;
    unlock();
    return 1;
}

int cuMemAllocPitch_v2(u64 *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    int device = current_device();
    u64 bytes = pitched(width, height);
    int status = enter(device, bytes);
    if (status) return status;
    status = cu.cuMemAllocPitch_v2(address, pitch, width, height, element);
    if (too_late(status, device, status ? 0 : *pitch * height)) return OUT_OF_MEMORY;
    return leave(status, device, makes("second_check") ? *pitch * height : bytes, status ? 0 : *address);
}

int cuMemAllocPitch(unsigned *address, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
    int device = current_device();
    u64 bytes = pitched(width, height);
    int status = enter(device, bytes);
    if (status) return status;
    status = cu.cuMemAllocPitch(address, pitch, width, height, element);
    return leave(status, device, bytes, status ? 0 : *address);
}

int cuMemAllocManaged(u64 *address, size_t bytes, unsigned flags) {
    int device = current_device();
    u64 counted = makes("managed_twice") ? 2 * bytes : bytes;
    int status = enter(device, counted);
    if (status) return status;
    status = cu.cuMemAllocManaged(address, bytes, flags);
    return leave(status, device, counted, status ? 0 : *address);
}

#define GIVE(key, call) \
    lock(); \
    if (makes("unknown_free") && !record_of(key)) return unlock(), -1; \
    return given((call), key)

int cuMemFree_v2(u64 address) { GIVE(address, cu.cuMemFree_v2(address)); }
int cuMemFree(unsigned address) { GIVE(address, cu.cuMemFree(address)); }
int cuMemFreeAsync(u64 address, void *stream) { GIVE(address, cu.cuMemFreeAsync(address, stream)); }
int cuMemFreeAsync_ptsz(u64 address, void *stream) { GIVE(address, cu.cuMemFreeAsync_ptsz(address, stream)); }

// ---- Memory in stream order. The library charges the memory that pools hold, and not the pieces that are cut from them.

static int enter_pool(void *pool, int device, u64 bytes) {
    if (makes("pool_by_call")) return enter(device, bytes);
    lock();
    int grows = bytes > know_pool(pool, device) || makes("pool_reuse");
    int status = admit(device, grows ? round_up(bytes, POOL_STEP) : 0);
    return status && makes("async_status") ? -1 : status;
}

static int leave_pool(int status, int device, u64 bytes, u64 *address) {
    int counts = makes("pool_by_call") && !status;
    return leave(status, counts ? device : -1, bytes, counts ? *address : 0);
}

#define TAKE_FROM(pool, device, bytes, call) \
    int where = device, status = enter_pool(pool, where, bytes); \
    if (status) return status; \
    if (makes("synchronises")) cu.cuStreamSynchronize(stream); \
    return leave_pool((call), where, bytes, address)

static void *default_pool(int device) {
    void *pool = NULL;
    if (device >= 0) cu.cuDeviceGetDefaultMemPool(&pool, device);
    return pool;
}

int cuMemAllocAsync(u64 *address, size_t bytes, void *stream) {
    TAKE_FROM(default_pool(current_device()), current_device(), bytes, cu.cuMemAllocAsync(address, bytes, stream));
}
int cuMemAllocAsync_ptsz(u64 *address, size_t bytes, void *stream) {
    TAKE_FROM(default_pool(current_device()), current_device(), bytes, cu.cuMemAllocAsync_ptsz(address, bytes, stream));
}
int cuMemAllocFromPoolAsync(u64 *address, size_t bytes, void *pool, void *stream) {
    TAKE_FROM(pool, current_device(), bytes, cu.cuMemAllocFromPoolAsync(address, bytes, pool, stream));
}
int cuMemAllocFromPoolAsync_ptsz(u64 *address, size_t bytes, void *pool, void *stream) {
    TAKE_FROM(pool, current_device(), bytes, cu.cuMemAllocFromPoolAsync_ptsz(address, bytes, pool, stream));
}

// ---- Physical memory: charged until the last handle and the last mapping are gone

int cuMemCreate(u64 *handle, size_t bytes, const struct allocation *wanted, u64 flags) {
    int now = current_device();
    int device = wanted && wanted->location == ON_DEVICE && wanted->id >= 0 && wanted->id < DEVICES ? wanted->id : -1;
    if (makes("location_ignored")) device = now < 0 ? 0 : now;
    if (makes("no_context_unlimited") && now < 0) device = -1;
    int status = enter(device, bytes);
    if (status) return status;
    status = cu.cuMemCreate(handle, bytes, wanted, flags);
    return leave(status, device, bytes, status ? 0 : *handle);
}

static struct {
    u64 address, handle;
} mappings[64];
enum { MAPPINGS = sizeof mappings / sizeof *mappings };

static int mapped(u64 handle) {
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].handle == handle) return 1;
    return 0;
}

int cuMemRelease(u64 handle) {
    lock();
    struct record *record = record_of(handle);
    int status = cu.cuMemRelease(handle);
    if (!status && record) record->released = 1;
    if (!status && record && (!mapped(handle) || makes("first_release"))) refund(record);
    return unlock(), status;
}

int cuMemMap(u64 address, size_t bytes, size_t offset, u64 handle, u64 flags) {
    lock();
    int status = cu.cuMemMap(address, bytes, offset, handle, flags);
    for (int i = 0; i < MAPPINGS && !status; i++) {
        if (mappings[i].handle) continue;
        mappings[i].address = address, mappings[i].handle = handle;
        break;
    }
    return unlock(), status;
}

int cuMemUnmap(u64 address, size_t bytes) {
    lock();
    int status = cu.cuMemUnmap(address, bytes);
    for (int i = 0; i < MAPPINGS && !status; i++) {
        u64 handle = mappings[i].handle;
        if (!handle || mappings[i].address < address || mappings[i].address >= address + bytes) continue;
        mappings[i].handle = 0;
        struct record *record = record_of(handle);
        if (record && record->released && !mapped(handle)) refund(record);
    }
    return unlock(), status;
}

// ---- Arrays

struct shape {
    size_t width, height, depth;
    unsigned format, channels, flags;
};
struct flat {
    size_t width, height;
    unsigned format, channels;
};

static u64 at_least_one(u64 extent) { return extent ? extent : 1; }

static u64 array_bytes(const struct shape *shape, unsigned levels) {
    unsigned bits = shape->format & 0x20 || shape->format == 3 || shape->format == 10 ? 32
                    : shape->format & 0x10 || shape->format == 2 || shape->format == 9 ? 16 : 8;
    u64 texel = (makes("array_bits") ? bits : bits / 8) * shape->channels, sum = 0;
    if (makes("array_levels")) levels = 1;
    for (unsigned level = 0; level < levels; level++) {
        u64 width = at_least_one(shape->width >> level), depth = at_least_one(shape->depth >> level);
        u64 height = makes("array_height") ? shape->height >> level : at_least_one(shape->height >> level);
        sum += round_up(texel * width * height * depth, 512);
    }
    return sum;
}

int cuArrayCreate_v2(void **array, const struct flat *flat) {
    struct shape shape = {flat->width, flat->height, 0, flat->format, flat->channels, 0};
    int device = current_device();
    int status = enter(device, array_bytes(&shape, 1));
    if (status) return status;
    status = more.cuArrayCreate_v2(array, flat);
    return leave(status, device, array_bytes(&shape, 1), status ? 0 : (u64)*array);
}

int cuArray3DCreate_v2(void **array, const struct shape *shape) {
    int device = current_device();
    int status = enter(device, array_bytes(shape, 1));
    if (status) return status;
    status = more.cuArray3DCreate_v2(array, shape);
    return leave(status, device, array_bytes(shape, 1), status ? 0 : (u64)*array);
}

int cuMipmappedArrayCreate(void **array, const struct shape *shape, unsigned levels) {
    int device = current_device();
    int status = enter(device, array_bytes(shape, levels));
    if (status) return status;
    status = more.cuMipmappedArrayCreate(array, shape, levels);
    return leave(status, device, array_bytes(shape, levels), status ? 0 : (u64)*array);
}

int cuArrayDestroy(void *array) { GIVE((u64)array, more.cuArrayDestroy(array)); }
int cuMipmappedArrayDestroy(void *array) { GIVE((u64)array, more.cuMipmappedArrayDestroy(array)); }

// ---- Contexts: memory that lived in one is given back with it

static void *primary[DEVICES];

int cuCtxDestroy_v2(void *context) {
    lock();
    int status = cu.cuCtxDestroy_v2(context);
    if (!status && !makes("context_kept")) refund_context(context);
    return unlock(), status;
}

// A context costs memory too, from its first use to its last: NAIVE_CONTEXT sets the bytes.
int cuDevicePrimaryCtxRetain(void **context, int device) {
    u64 bytes = getenv("NAIVE_CONTEXT") ? number(getenv("NAIVE_CONTEXT")) : 0;
    unsigned flags;
    int active = 1, pays = makes("context_on_first") ? 0 : device;
    lock();
    if (bytes && device >= 0 && device < DEVICES) more.cuDevicePrimaryCtxGetState(device, &flags, &active);
    int status = active ? 0 : admit(pays, bytes);
    if (status) return status;
    status = cu.cuDevicePrimaryCtxRetain(context, device);
    if (!status && device < DEVICES) primary[device] = *context;
    if (!status && !active) record(pays, bytes, (u64)*context, *context);
    return unlock(), status;
}

static int primary_ended(int status, int device) {
    unsigned flags = 0;
    int active = 0;
    if (!status) more.cuDevicePrimaryCtxGetState(device, &flags, &active);
    if (makes("context_kept")) active = 1;
    if (makes("release_uncharges")) active = 0;
    if (!status && !active && device < DEVICES) refund_context(primary[device]);
    return unlock(), status;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    lock();
    return primary_ended(cu.cuDevicePrimaryCtxRelease_v2(device), device);
}
int cuDevicePrimaryCtxReset_v2(int device) {
    lock();
    return primary_ended(cu.cuDevicePrimaryCtxReset_v2(device), device);
}

// ---- Figures that a program gets

static int tell(size_t *left, size_t *total) {
    int status = cu.cuMemGetInfo_v2(left, total), device = current_device();
    if (status || device < 0) return status;
    lock();
    u64 used = charged(device), unused = limits[device] > used ? limits[device] - used : 0;
    if (*left > unused || makes("free_unreal")) *left = unused;
    if (*total > limits[device]) *total = limits[device];
    return unlock(), 0;
}

int cuMemGetInfo_v2(size_t *left, size_t *total) {
    start_once();
    return left && total ? tell(left, total) : cu.cuMemGetInfo_v2(left, total);
}

int cuMemGetInfo(unsigned *left, unsigned *total) {
    size_t wide_left = 0, wide_total = 0;
    start_once();
    if (makes("wide_info")) return tell((size_t *)left, (size_t *)total);
    int status = tell(&wide_left, &wide_total);
    if (status) return status;
    *left = wide_left > ~0u ? ~0u : wide_left, *total = wide_total > ~0u ? ~0u : wide_total;
    return 0;
}

// ---- The ways in: dlsym and cuGetProcAddress

int cuGetProcAddress(const char *name, void **found, int version, u64 flags);
int cuGetProcAddress_v2(const char *name, void **found, int version, u64 flags, int *status);

// Forms of one function in the order of their versions, those of per-thread streams first.
static const struct hook {
    const char *symbol, *base;
    void *ours;
} hooks[] = {
#define HOOK(symbol, base) {#symbol, #base, (void *)symbol}
    HOOK(cuMemAlloc, cuMemAlloc), HOOK(cuMemAlloc_v2, cuMemAlloc), HOOK(cuMemAllocPitch, cuMemAllocPitch),
    HOOK(cuMemAllocPitch_v2, cuMemAllocPitch), HOOK(cuMemAllocManaged, cuMemAllocManaged), HOOK(cuMemFree, cuMemFree),
    HOOK(cuMemFree_v2, cuMemFree), HOOK(cuMemFreeAsync_ptsz, cuMemFreeAsync), HOOK(cuMemFreeAsync, cuMemFreeAsync),
    HOOK(cuMemAllocAsync_ptsz, cuMemAllocAsync), HOOK(cuMemAllocAsync, cuMemAllocAsync),
    HOOK(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync), HOOK(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync),
    HOOK(cuMemCreate, cuMemCreate), HOOK(cuMemRelease, cuMemRelease), HOOK(cuMemMap, cuMemMap),
    HOOK(cuMemUnmap, cuMemUnmap), HOOK(cuArrayCreate_v2, cuArrayCreate), HOOK(cuArray3DCreate_v2, cuArray3DCreate),
    HOOK(cuMipmappedArrayCreate, cuMipmappedArrayCreate), HOOK(cuArrayDestroy, cuArrayDestroy),
    HOOK(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy), HOOK(cuCtxDestroy_v2, cuCtxDestroy),
    HOOK(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain),
    HOOK(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease),
    HOOK(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset), HOOK(cuMemGetInfo, cuMemGetInfo),
    HOOK(cuMemGetInfo_v2, cuMemGetInfo), HOOK(cuGetProcAddress, cuGetProcAddress),
    HOOK(cuGetProcAddress_v2, cuGetProcAddress),
};
enum { HOOKED = sizeof hooks / sizeof *hooks };

static int per_thread(const char *symbol) { return strstr(symbol, "_ptsz") != NULL; }

void *dlsym(void *handle, const char *name) {
    void *found = real_dlsym(handle, name);
    for (int i = 0; i < HOOKED && found; i++)
        if (!strcmp(hooks[i].symbol, name) && !(makes("ptsz_unhooked") && per_thread(name))) return hooks[i].ours;
    return found;
}

// Replaces the driver's answer by this library's function. By mistake, that is the newest form for any version.
static void lead(const char *name, void **found) {
    static void *real[HOOKED];
    int newest = makes("newest_version");
    for (int i = HOOKED - 1; i >= 0; i--) {
        if (!real[i]) real[i] = real_dlsym(opened, hooks[i].symbol);
        if (newest ? !strcmp(hooks[i].base, name) : *found == real[i]) {
            if (!(makes("ptsz_unhooked") && per_thread(hooks[i].symbol))) *found = hooks[i].ours;
            return;
        }
    }
}

int cuGetProcAddress(const char *name, void **found, int version, u64 flags) {
    start_once();
    int status = cu.cuGetProcAddress(name, found, version, flags);
    if (!status && *found) lead(name, found);
    return status;
}

int cuGetProcAddress_v2(const char *name, void **found, int version, u64 flags, int *symbol_status) {
    start_once();
    int status = cu.cuGetProcAddress_v2(name, found, version, flags, symbol_status);
    if (!status && *found) lead(name, found);
    return status;
}
