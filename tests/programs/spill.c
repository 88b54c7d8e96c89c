// A process at its quota, and with memory beyond it, on order.
//
// spill: says `ready`, and then answers orders, one a line: a word and up to three numbers. It answers with statuses and results
// of calls. The first number names a place for an address or a handle.
#include "host.h"
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

struct flat { size_t width, height; int format; unsigned channels; };
struct bytes { char at[64]; };

#define SPILL_FUNCTIONS(X) \
    X(cuMemsetD8_v2, (u64, unsigned char, size_t)) \
    X(cuMemcpyDtoH_v2, (void *, u64, size_t)) \
    X(cuMemAdvise, (u64, size_t, int, int)) \
    X(cuMemAdvise_v2, (u64, size_t, int, struct place)) \
    X(cuMemPrefetchAsync, (u64, size_t, int, void *)) \
    X(cuMemPrefetchAsync_ptsz, (u64, size_t, int, void *)) \
    X(cuMemPrefetchAsync_v2, (u64, size_t, struct place, unsigned, void *)) \
    X(cuMemPrefetchAsync_v2_ptsz, (u64, size_t, struct place, unsigned, void *)) \
    X(cuMemPrefetchBatchAsync, (u64 *, size_t *, size_t, struct place *, size_t *, size_t, u64, void *)) \
    X(cuMemDiscardAndPrefetchBatchAsync, (u64 *, size_t *, size_t, struct place *, size_t *, size_t, u64, void *)) \
    X(cuMemRangeGetAttribute, (void *, size_t, int, u64, size_t)) \
    X(cuPointerGetAttribute, (void *, int, u64)) \
    X(cuMemGetAddressRange_v2, (u64 *, size_t *, u64)) \
    X(cuIpcGetMemHandle, (struct bytes *, u64)) \
    X(cuArrayCreate_v2, (void **, const struct flat *)) \
    X(cuArrayDestroy, (void *)) \
    X(cuModuleLoadData, (void **, const void *)) \
    X(cuModuleGetFunction, (void **, void *, const char *)) \
    X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, \
                       void **)) \
    X(cuStreamQuery, (void *)) \
    X(cuStreamBeginCapture_v2, (void *, int)) \
    X(cuStreamEndCapture, (void *, void **)) \
    X(cuGraphCreate, (void **, unsigned)) \
    X(cuGraphAddMemAllocNode, (void **, void *, void **, size_t, struct allocation_node *)) \
    X(cuGraphInstantiateWithFlags, (void **, void *, u64)) \
    X(cuGraphUpload, (void *, void *)) \
    X(cuGraphLaunch, (void *, void *))
#define SPILL_MEMBER(symbol, parameters) int(*symbol) parameters;
static struct {
    SPILL_FUNCTIONS(SPILL_MEMBER)
} more;

enum { PLACES = 64, MANAGED = 8, PREFERRED = 2 };
#define SENTINEL 0xa5a5a5a5a5a5a5a5ull
static u64 at[PLACES], row[PLACES];
static size_t size[PLACES];
static void *stream, *pool, *primary, *own_context;

// Stores the result of an allocation. A refused call must leave the outputs alone.
static int answered(u64 place, int status, u64 address, u64 pitch, u64 bytes) {
    if (status == 0) at[place] = address, row[place] = pitch, size[place] = bytes;
    else if (address != SENTINEL || pitch != SENTINEL) return 9999;
    return status;
}

static int take(const char *how, u64 place, u64 bytes, u64 flags) {
    u64 address = SENTINEL;
    size_t pitch = SENTINEL;
    unsigned narrow = 0xa5a5a5a5u, narrow_pitch = 0xa5a5a5a5u;
    int status = 9998;
    if (!strcmp(how, "alloc")) status = cu.cuMemAlloc_v2(&address, bytes);
    if (!strcmp(how, "managed")) status = cu.cuMemAllocManaged(&address, bytes, flags ? flags : 1);
    if (!strcmp(how, "async")) status = cu.cuMemAllocAsync(&address, bytes, stream);
    if (!strcmp(how, "async_ptsz")) status = cu.cuMemAllocAsync_ptsz(&address, bytes, stream);
    if (!strcmp(how, "from")) status = cu.cuMemAllocFromPoolAsync(&address, bytes, pool, stream);
    if (!strcmp(how, "from_ptsz")) status = cu.cuMemAllocFromPoolAsync_ptsz(&address, bytes, pool, stream);
    if (!strcmp(how, "create")) {
        struct allocation wanted = {.kind = PINNED, .location = ON_DEVICE};
        status = cu.cuMemCreate(&address, bytes, &wanted, 0);
    }
    if (!strcmp(how, "array")) {
        struct flat wanted = {1024, bytes / 4096, 0x20, 1}; // of floats
        status = more.cuArrayCreate_v2((void **)&address, &wanted);
    }
    // Rows of 1000 bytes, which have a pitch of 1024.
    if (!strcmp(how, "pitch")) status = cu.cuMemAllocPitch_v2(&address, &pitch, 1000, bytes / 1024, flags ? flags : 4);
    if (!strcmp(how, "alloc1") || !strcmp(how, "pitch1")) {
        status = how[0] == 'a' ? cu.cuMemAlloc(&narrow, bytes)
                               : cu.cuMemAllocPitch(&narrow, &narrow_pitch, 1000, bytes / 1024, 4);
        if (status == 0) address = narrow;
        else if (narrow != 0xa5a5a5a5u || narrow_pitch != 0xa5a5a5a5u) return 9999;
    }
    return answered(place, status, address, pitch, bytes);
}

static int give(const char *how, u64 place) {
    if (!strcmp(how, "free")) return cu.cuMemFree_v2(at[place]);
    if (!strcmp(how, "free1")) return cu.cuMemFree(at[place]);
    if (!strcmp(how, "freeasync")) return cu.cuMemFreeAsync(at[place], stream);
    if (!strcmp(how, "freeasync_ptsz")) return cu.cuMemFreeAsync_ptsz(at[place], stream);
    if (!strcmp(how, "release")) return cu.cuMemRelease(at[place]);
    if (!strcmp(how, "freearray")) return more.cuArrayDestroy((void *)at[place]);
    return 9998;
}

// Checks that every byte of a block has the value, and that the host sees the same if it can look.
static int filled(u64 place, int value) {
    int status = more.cuMemsetD8_v2(at[place], value, size[place]);
    unsigned char first = 0, last = 0;
    if (!status) status = more.cuMemcpyDtoH_v2(&first, at[place], 1);
    if (!status) status = more.cuMemcpyDtoH_v2(&last, at[place] + size[place] - 1, 1);
    return status ? status : first == value && last == value ? 0 : 9997;
}

static int told(u64 place, int attribute) {
    int value = 0;
    int status = more.cuPointerGetAttribute(&value, attribute, at[place]);
    return status ? -status : value;
}

static int preferred(u64 place) {
    int value = -99;
    int status = more.cuMemRangeGetAttribute(&value, sizeof value, PREFERRED, at[place], size[place]);
    return status ? 1000 + status : value;
}

// Tries all ways to bring memory to the device, in a fixed order. Returns how many of them did not return 0.
static int lure(u64 place) {
    struct place device = {ON_DEVICE, 0};
    u64 address = at[place], both[2] = {at[0], address};
    size_t bytes = size[place], sizes[2] = {size[0], bytes}, first = 0;
    int failed = 0;
    failed += more.cuMemAdvise(address, bytes, 3, 0) != 0;
    failed += filled(place, 1) != 0;
    failed += more.cuMemAdvise(address, bytes, 4, 0) != 0;
    failed += filled(place, 2) != 0;
    failed += more.cuMemAdvise(address, bytes, 1, 0) != 0;
    failed += more.cuMemAdvise_v2(address + 1, bytes - 1, 3, device) != 0;
    failed += filled(place, 3) != 0;
    failed += more.cuMemAdvise_v2(address, bytes, 4, device) != 0;
    failed += filled(place, 4) != 0;
    failed += more.cuMemPrefetchAsync(address, bytes, 0, stream) != 0;
    failed += more.cuMemPrefetchAsync_ptsz(address + bytes / 2, bytes / 2, 0, stream) != 0;
    failed += more.cuMemPrefetchAsync_v2(address, bytes, device, 0, stream) != 0;
    failed += more.cuMemPrefetchAsync_v2_ptsz(address, bytes, device, 0, stream) != 0;
    failed += more.cuMemPrefetchBatchAsync(both, sizes, 2, &device, &first, 1, 0, stream) != 0;
    failed += more.cuMemDiscardAndPrefetchBatchAsync(both, sizes, 2, &device, &first, 1, 0, stream) != 0;
    return failed;
}

// Prefetches to two places without the list that assigns ranges to them.
static int without_starts(u64 place) {
    struct place devices[2] = {{ON_DEVICE, 0}, {ON_DEVICE, 0}};
    u64 both[2] = {at[0], at[place]};
    size_t sizes[2] = {size[0], size[place]};
    return more.cuMemPrefetchBatchAsync(both, sizes, 2, devices, NULL, 2, 0, stream);
}

// Prefetches with lists of no places. They begin where memory ends, so that a read of an entry is a fault.
static int without_places(u64 place) {
    size_t page = sysconf(_SC_PAGESIZE);
    char *end = mmap(NULL, 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    u64 both[2] = {at[0], at[place]};
    size_t sizes[2] = {size[0], size[place]};
    return more.cuMemPrefetchBatchAsync(both, sizes, 2, (void *)end, (void *)end, 0, 0, stream);
}

// Puts work of `milliseconds` into the stream.
static int work(u64 milliseconds) {
    char text[128];
    void *module = NULL, *kernel = NULL;
    snprintf(text, sizeof text, ".version 8.0\n.target sm_90\n.visible .entry spin_%llums() { ret; }\n", milliseconds);
    int status = more.cuModuleLoadData(&module, text);
    snprintf(text, sizeof text, "spin_%llums", milliseconds);
    if (!status) status = more.cuModuleGetFunction(&kernel, module, text);
    return status ? status : more.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static int graph(u64 place, u64 bytes) {
    struct allocation_node wanted = {.pool = {.kind = PINNED, .location = ON_DEVICE}, .bytes = bytes};
    void *made = NULL, *node = NULL, *executable = (void *)SENTINEL;
    int status = more.cuGraphCreate(&made, 0);
    if (!status) status = more.cuGraphAddMemAllocNode(&node, made, NULL, 0, &wanted);
    if (!status) status = more.cuGraphInstantiateWithFlags(&executable, made, 0);
    return answered(place, status, (u64)executable, SENTINEL, bytes);
}

// Threads take and free pieces and fill each of them. Counts the calls that did not return 0.
static u64 piece, rounds;
static void *racer(void *unused) {
    long failed = 0;
    (void)unused;
    cu.cuCtxSetCurrent(primary);
    for (u64 round = 0; round < rounds; round++) {
        u64 own[4];
        for (int i = 0; i < 4; i++) {
            int status = i % 2 ? cu.cuMemAlloc_v2(&own[i], piece) : cu.cuMemAllocAsync(&own[i], piece, stream);
            failed += status != 0;
            if (!status) failed += more.cuMemsetD8_v2(own[i], i, piece) != 0;
            else own[i] = 0;
        }
        for (int i = 0; i < 4; i++)
            failed += (round % 2 ? cu.cuMemFree_v2(own[i]) : cu.cuMemFreeAsync(own[i], stream)) != 0;
    }
    return (void *)failed;
}

static long race(u64 threads) {
    pthread_t all[64];
    long failed = 0;
    for (u64 i = 0; i < threads; i++) pthread_create(&all[i], NULL, racer, NULL);
    for (u64 i = 0; i < threads; i++) {
        void *result;
        pthread_join(all[i], &result);
        failed += (long)result;
    }
    return failed;
}

// Another thread captures from `apart` to `joined`, in the mode that forbids most. Answers with the status of the capture.
static pthread_t other_thread;
static sem_t has_begun, may_end;
static void *captures(void *unused) {
    void *own = NULL, *graph = NULL;
    (void)unused;
    cu.cuCtxSetCurrent(primary);
    long status = cu.cuStreamCreate(&own, 1);
    if (!status) status = more.cuStreamBeginCapture_v2(own, 0);
    sem_post(&has_begun);
    sem_wait(&may_end);
    return (void *)(status ? status : more.cuStreamEndCapture(own, &graph));
}

static long apart(void) {
    sem_init(&has_begun, 0, 0), sem_init(&may_end, 0, 0);
    int status = pthread_create(&other_thread, NULL, captures, NULL);
    return status ? status : sem_wait(&has_begun);
}

static long joined(void) {
    void *status = NULL;
    sem_post(&may_end);
    pthread_join(other_thread, &status);
    return (long)status;
}

static int forked(void) {
    int status;
    pid_t child = fork();
    if (!child) {
        u64 address;
        _exit(cu.cuMemAlloc_v2(&address, 4096) == 0 ? 1 : 0);
    }
    waitpid(child, &status, 0);
    return status;
}

int main(void) {
    char word[64], line[256];
    if (!start()) return 3;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
#define SPILL_FIND(symbol, parameters) more.symbol = dlsym(driver, #symbol);
    SPILL_FUNCTIONS(SPILL_FIND)
    struct pool_properties wanted = {.kind = PINNED, .location = ON_DEVICE};
    cu.cuCtxGetCurrent(&primary);
    if (cu.cuStreamCreate(&stream, 1) || cu.cuMemPoolCreate(&pool, &wanted)) return 3;
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        u64 a = 0, b = 0, c = 0;
        long answer = 9998;
        if (sscanf(line, "%63s %llu %llu %llu", word, &a, &b, &c) < 1) continue;
        if (!strncmp(word, "take_", 5)) answer = take(word + 5, a, b, c);
        else if (!strncmp(word, "give_", 5)) answer = give(word + 5, a);
        else if (!strcmp(word, "fill")) answer = filled(a, (int)b);
        else if (!strcmp(word, "attribute")) answer = told(a, (int)b);
        else if (!strcmp(word, "preferred")) answer = preferred(a);
        else if (!strcmp(word, "lure")) answer = lure(a);
        else if (!strcmp(word, "prefetch")) answer = more.cuMemPrefetchAsync(at[a], size[a], 0, stream);
        else if (!strcmp(word, "without_starts")) answer = without_starts(a);
        else if (!strcmp(word, "without_places")) answer = without_places(a);
        else if (!strcmp(word, "work")) answer = work(a);
        else if (!strcmp(word, "query")) answer = more.cuStreamQuery(stream);
        else if (!strcmp(word, "capture")) answer = more.cuStreamBeginCapture_v2(stream, (int)a);
        else if (!strcmp(word, "captured")) answer = more.cuStreamEndCapture(stream, &(void *){NULL});
        else if (!strcmp(word, "apart")) answer = apart();
        else if (!strcmp(word, "joined")) answer = joined();
        else if (!strcmp(word, "graph")) answer = graph(a, b);
        else if (!strcmp(word, "upload")) answer = more.cuGraphUpload((void *)at[a], stream);
        else if (!strcmp(word, "launch")) answer = more.cuGraphLaunch((void *)at[a], stream);
        else if (!strcmp(word, "ipc")) answer = more.cuIpcGetMemHandle(&(struct bytes){{0}}, at[a]);
        else if (!strcmp(word, "row")) answer = (long)row[a];
        else if (!strcmp(word, "trim")) answer = cu.cuMemPoolTrimTo(pool, 0);
        else if (!strcmp(word, "fork")) answer = forked();
        else if (!strcmp(word, "context")) answer = cu.cuCtxCreate_v2(&own_context, 0, 0);
        else if (!strcmp(word, "end")) answer = cu.cuCtxDestroy_v2(own_context);
        else if (!strcmp(word, "primary")) answer = cu.cuCtxSetCurrent(primary);
        else if (!strcmp(word, "none")) answer = cu.cuCtxSetCurrent(NULL);
        else if (!strcmp(word, "reset")) answer = cu.cuDevicePrimaryCtxReset_v2(0);
        else if (!strcmp(word, "race")) rounds = b, piece = c, answer = race(a);
        else if (!strcmp(word, "nowhere")) answer = cu.cuMemAlloc_v2(NULL, a);
        else if (!strcmp(word, "range")) {
            u64 base = 0;
            size_t whole = 0;
            answer = more.cuMemGetAddressRange_v2(&base, &whole, at[a] + b);
            if (!answer) answer = base == at[a] && whole == size[a] ? 0 : 9997;
        } else if (!strcmp(word, "info")) {
            size_t left = 0, whole = 0, all = 0;
            cu.cuMemGetInfo_v2(&left, &whole);
            cu.cuDeviceTotalMem_v2(&all, 0);
            say("%zu %zu %zu", left, whole, all);
            continue;
        }
        say("%ld", answer);
    }
    return 0;
}
