// The books of the naive library, and their lock.
#pragma once
#include "host.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>

enum { DEVICES = 2, PROCESSES = 64, RECORDS = 1 << 17, POOLS = 8, OUT_OF_MEMORY = 2, POOL_USED = 7 };
#define POOL_STEP (32ull << 20) // step by which a pool grows

struct slot {
    int pid;
    u64 held[DEVICES], pooled[DEVICES];
};

// The part that all processes see.
static struct books {
    int made;
    pthread_mutex_t lock;
    struct slot slots[PROCESSES];
} *books;

// Memory that this process holds.
static struct record {
    u64 key, bytes;
    int device, released;
    void *context;
} records[RECORDS];
static int record_count;
static struct {
    void *pool;
    int device;
    u64 most;
} pools[POOLS];

static u64 limits[DEVICES];

static int makes(const char *mistake) {
    const char *made = getenv("NAIVE_MISTAKE");
    return made && !strcmp(made, mistake);
}

static u64 round_up(u64 bytes, u64 step) { return (bytes + step - 1) / step * step; }

// ---- The driver's own functions

static void *opened;
static struct {
    int (*cuCtxGetDevice)(int *);
    int (*cuDevicePrimaryCtxGetState)(int, unsigned *, int *);
    int (*cuArrayCreate_v2)(void **, const void *);
    int (*cuArray3DCreate_v2)(void **, const void *);
    int (*cuMipmappedArrayCreate)(void **, const void *, unsigned);
    int (*cuArrayDestroy)(void *);
    int (*cuMipmappedArrayDestroy)(void *);
} more;

static void *real_dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (int i = 0; !real && i < 3; i++) *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return real(handle, name);
}

static void *find_real(const char *symbol, const char *base, int version, u64 flags) {
    (void)base, (void)version, (void)flags;
    return real_dlsym(opened, symbol);
}

static void open_books(void) {
    int file = open("naive", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    flock(file, LOCK_EX);
    if (ftruncate(file, sizeof *books)) abort();
    books = mmap(NULL, sizeof *books, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (books == MAP_FAILED) abort();
    if (!books->made) {
        pthread_mutexattr_t shared;
        pthread_mutexattr_init(&shared);
        pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&books->lock, &shared);
        books->made = 1;
    }
    flock(file, LOCK_UN); // the mapping keeps the file open
    close(file);
}

static void start_naive(void) {
    const char *limit = getenv("NAIVE_LIMIT");
    int read = sscanf(limit ? limit : "", "%llu,%llu", &limits[0], &limits[1]);
    if (read < 1) abort();
    if (read < 2) limits[1] = limits[0];
    opened = dlopen("libcuda.so.1", RTLD_NOW);
    find_all(find_real);
#define MORE(name) *(void **)&more.name = real_dlsym(opened, #name)
    MORE(cuCtxGetDevice), MORE(cuDevicePrimaryCtxGetState), MORE(cuArrayCreate_v2), MORE(cuArray3DCreate_v2);
    MORE(cuMipmappedArrayCreate), MORE(cuArrayDestroy), MORE(cuMipmappedArrayDestroy);
    open_books();
}

static void start_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_naive);
}

static void lock(void) {
    start_once();
    if (pthread_mutex_lock(&books->lock) == EOWNERDEAD) pthread_mutex_consistent(&books->lock);
}
static void unlock(void) { pthread_mutex_unlock(&books->lock); }

// Returns -1 if there is no device, or if the device has no limit.
static int current_device(void) {
    int device = -1;
    start_once();
    return more.cuCtxGetDevice(&device) == 0 && device < DEVICES ? device : -1;
}

// ---- Everything below is done under the lock

static struct slot *own_slot(void) {
    struct slot *unused = NULL;
    for (struct slot *slot = books->slots; slot < books->slots + PROCESSES; slot++) {
        if (slot->pid == getpid()) return slot;
        if (!slot->pid && !unused) unused = slot;
    }
    if (!unused) abort();
    *unused = (struct slot){.pid = getpid()};
    return unused;
}

static u64 reserved_by(int i) {
    u64 bytes = 0;
    cu.cuMemPoolGetAttribute(pools[i].pool, POOL_RESERVED, &bytes);
    if (bytes > pools[i].most) pools[i].most = bytes;
    return makes("pool_high_water") ? pools[i].most : bytes;
}

static void count_pools(void) {
    struct slot *own = own_slot();
    memset(own->pooled, 0, sizeof own->pooled);
    for (int i = 0; i < POOLS && pools[i].pool; i++) own->pooled[pools[i].device] += reserved_by(i);
}

// Charges a pool from now on. Returns the bytes that the pool holds and does not use.
static u64 know_pool(void *pool, int device) {
    u64 used = 0;
    for (int i = 0; i < POOLS && device >= 0; i++) {
        if (!pools[i].pool) pools[i].pool = pool, pools[i].device = device;
        if (pools[i].pool != pool) continue;
        cu.cuMemPoolGetAttribute(pool, POOL_USED, &used);
        u64 reserved = reserved_by(i);
        return reserved > used ? reserved - used : 0;
    }
    return 0;
}

static u64 charged(int device) {
    u64 sum = 0;
    count_pools();
    for (struct slot *slot = books->slots; slot < books->slots + PROCESSES; slot++) {
        int dead = slot->pid && kill(slot->pid, 0) && errno == ESRCH;
        if (dead && !makes("dead_counted")) memset(slot, 0, sizeof *slot);
        sum += slot->held[device] + slot->pooled[device];
    }
    return sum;
}

// This mistake: the library uses a figure that is up to 100 ms old.
static u64 sampled(int device) {
    static u64 sample[DEVICES], taken[DEVICES];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    u64 instant = now.tv_sec * 1000ull + now.tv_nsec / 1000000;
    if (instant - taken[device] > 100) taken[device] = instant, sample[device] = charged(device);
    return sample[device];
}

static int fits(int device, u64 bytes) {
    u64 used = makes("sampled") ? sampled(device) : charged(device);
    return bytes <= limits[device] && used <= limits[device] - bytes;
}

// Before the driver's call: refuses and ends the lock, or keeps the lock until leave().
static int admit(int device, u64 bytes) {
    if (device >= 0 && !fits(device, bytes)) return unlock(), OUT_OF_MEMORY;
    if (makes("check_then_allocate")) unlock();
    return 0;
}

static int enter(int device, u64 bytes) {
    lock();
    return admit(device, bytes);
}

static void record(int device, u64 bytes, u64 key, void *context) {
    if (record_count == RECORDS) abort();
    records[record_count++] = (struct record){key, bytes, device, 0, context};
    own_slot()->held[device] += bytes;
}

// After the driver's call: enters the memory into the books.
static int leave(int status, int device, u64 bytes, u64 key) {
    if (makes("check_then_allocate")) lock();
    void *context = NULL;
    if (!status && device >= 0 && key && cu.cuCtxGetCurrent(&context) == 0) record(device, bytes, key, context);
    size_t left, total;
    if (makes("other_status")) status = cu.cuMemGetInfo_v2(&left, &total);
    return unlock(), status;
}

static struct record *record_of(u64 key) {
    for (int i = record_count - 1; i >= 0; i--)
        if (records[i].key == key) return &records[i];
    return NULL;
}

static void refund(struct record *record) {
    int now = current_device(), device = makes("refund_current") && now >= 0 ? now : record->device;
    u64 *held = &own_slot()->held[device];
    *held -= record->bytes < *held ? record->bytes : *held;
    *record = records[--record_count];
}

static void refund_context(void *context) {
    for (int i = record_count - 1; i >= 0; i--)
        if (records[i].context == context) refund(&records[i]);
}

static int given(int status, u64 key) {
    struct record *record = record_of(key);
    if (makes("error_dropped")) status = 0;
    if (!status && record) refund(record);
    return unlock(), status;
}
