// Charges of memory: to the device that holds it, for as long as it is held.
//
// traps TRAP QUOTA [FAMILY]: each line has the statuses of a sequence of calls. The quota holds for device 0.
#include "families.h"
#include <pthread.h>

#define HUGE_POINTER 0x7f0000001000ull

static u64 quota;

// Prints whether the whole quota can be taken now, and frees it at once.
static void tell_free(const char *when) {
    u64 all = 0;
    int status = cu.cuMemAlloc_v2(&all, quota);
    if (!status) cu.cuMemFree_v2(all);
    size_t left = 0, total = 0;
    cu.cuMemGetInfo_v2(&left, &total);
    say("%s: the whole quota %d, left %zu", when, status, left);
}

static int take_whole(u64 *where) { return cu.cuMemAlloc_v2(where, quota); }

static void unknown_free(void) {
    u64 held = 0;
    u64 pointers[] = {0, 1, 0x1234, HUGE_POINTER, ~0ull};
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
        int now = cu.cuMemFree_v2(pointers[i]);
        say("free %llx: %d, async %d", pointers[i], now, cu.cuMemFreeAsync(pointers[i], NULL));
    }
    int take = take_whole(&held);
    int inside = cu.cuMemFree_v2(held + 256);
    int release = cu.cuMemRelease(0x77);
    say("take %d, free inside %d, release %d, unmap %d", take, inside, release, cu.cuMemUnmap(0, 4096));
    tell_free("after foreign frees");
    say("give %d", cu.cuMemFree_v2(held));
    tell_free("at the end");
}

static void double_free(void) {
    u64 first = 0, second = 0;
    int take = cu.cuMemAlloc_v2(&first, quota / 2);
    int other = cu.cuMemAlloc_v2(&second, quota / 2);
    int give = cu.cuMemFree_v2(first);
    int again = cu.cuMemFree_v2(first);
    say("take %d %d, give %d, give again %d", take, other, give, again);
    u64 third = 0;
    int more = cu.cuMemAlloc_v2(&third, quota / 2 + 1);
    int half = cu.cuMemAlloc_v2(&third, quota / 2);
    say("more than half %d, half %d", more, half);
    tell_free("full");
}

// Device 1 has half the quota of device 0.
static void other_device(void) {
    void *contexts[2] = {NULL, NULL};
    u64 first = 0, second = 0, third = 0;
    cu.cuDevicePrimaryCtxRetain(&contexts[0], 0);
    cu.cuDevicePrimaryCtxRetain(&contexts[1], 1);
    cu.cuCtxSetCurrent(contexts[0]);
    int zero = take_whole(&first);
    cu.cuCtxSetCurrent(contexts[1]);
    int one = cu.cuMemAlloc_v2(&second, quota / 2);
    int over = cu.cuMemAlloc_v2(&third, 1);
    say("device 0 %d, device 1 %d, one more there %d", zero, one, over);
    int give = cu.cuMemFree_v2(first);
    int still = cu.cuMemAlloc_v2(&third, 1);
    say("device 0 given back %d, one more on device 1 %d", give, still);
    cu.cuCtxSetCurrent(contexts[0]);
    tell_free("device 0");
    say("give %d", cu.cuMemFree_v2(second));
    cu.cuCtxSetCurrent(contexts[1]);
    int half = cu.cuMemAlloc_v2(&second, quota / 2);
    say("device 1 again %d", half);
}

static u64 range;

static int create(u64 *handle, u64 bytes, int location, int id) {
    struct allocation wanted = {.kind = PINNED, .location = location, .id = id};
    return cu.cuMemCreate(handle, bytes, &wanted, 0);
}

static void release_while_mapped(void) {
    u64 handle = 0;
    int reserve = cu.cuMemAddressReserve(&range, quota, 0, 0, 0);
    int make = create(&handle, quota, ON_DEVICE, 0);
    say("reserve %d, create %d, map %d", reserve, make, cu.cuMemMap(range, quota, 0, handle, 0));
    tell_free("mapped");
    say("release %d", cu.cuMemRelease(handle));
    tell_free("released, still mapped");
    say("unmap %d", cu.cuMemUnmap(range, quota));
    tell_free("unmapped");
    say("reserve ends %d", cu.cuMemAddressFree(range, quota));
}

static void retained(void) {
    u64 handle = 0, other = 0;
    int reserve = cu.cuMemAddressReserve(&range, quota, 0, 0, 0);
    int make = create(&handle, quota, ON_DEVICE, 0);
    int map = cu.cuMemMap(range, quota, 0, handle, 0);
    int retain = cu.cuMemRetainAllocationHandle(&other, (void *)range);
    say("reserve %d, create %d, map %d, retain %d, %s handle", reserve, make, map, retain,
        handle == other ? "same" : "other");
    int unmap = cu.cuMemUnmap(range, quota);
    int release = cu.cuMemRelease(handle);
    say("unmap %d, release %d", unmap, release);
    tell_free("one reference left");
    say("release %d", cu.cuMemRelease(other));
    tell_free("no reference left");
}

// Maps one handle in two halves and at two places.
static void mapped_twice(void) {
    u64 handle = 0;
    int reserve = cu.cuMemAddressReserve(&range, 2 * quota, 0, 0, 0);
    int make = create(&handle, quota, ON_DEVICE, 0);
    int first = cu.cuMemMap(range, quota, 0, handle, 0);
    int second = cu.cuMemMap(range + quota, quota, 0, handle, 0);
    int release = cu.cuMemRelease(handle);
    say("reserve %d, create %d, map %d %d, release %d", reserve, make, first, second, release);
    say("unmap %d", cu.cuMemUnmap(range, quota));
    tell_free("one mapping left");
    say("unmap %d", cu.cuMemUnmap(range + quota, quota));
    tell_free("no mapping left");
}

// No context is current, so the location alone says which device pays.
static void create_without_context(void) {
    u64 handles[4] = {0};
    say("device 0 %d", create(&handles[0], quota, ON_DEVICE, 0));
    say("one more %d", create(&handles[1], 2 << 20, ON_DEVICE, 0));
    say("device 1 %d", create(&handles[2], quota / 2, ON_DEVICE, 1));
    say("one more %d", create(&handles[3], 2 << 20, ON_DEVICE, 1));
    say("give %d", cu.cuMemRelease(handles[0]));
    say("one more on device 1 %d", create(&handles[3], 2 << 20, ON_DEVICE, 1));
    say("device 0 again %d", create(&handles[0], quota, ON_DEVICE, 0));
}

static void create_on_host(void) {
    u64 handle = 0;
    int host = create(&handle, 2 * quota, ON_HOST, 0);
    say("host %d", host);
    tell_free("with host memory");
    if (!host) say("give %d", cu.cuMemRelease(handle));
    tell_free("at the end");
}

static void odd_create(void) {
    u64 handle = SENTINEL;
    struct allocation wanted = {.kind = PINNED, .location = ON_DEVICE};
    say("null properties %d", cu.cuMemCreate(&handle, 2 << 20, NULL, 0));
    say("null handle %d", cu.cuMemCreate(NULL, 2 << 20, &wanted, 0));
    say("no size %d", cu.cuMemCreate(&handle, 0, &wanted, 0));
    say("no such device %d", create(&handle, 2 << 20, ON_DEVICE, 77));
    say("negative device %d", create(&handle, 2 << 20, ON_DEVICE, -1));
    say("everything %d", create(&handle, ~0ull, ON_DEVICE, 0));
    say("alloc null %d", cu.cuMemAlloc_v2(NULL, 4096));
    say("nothing %d", cu.cuMemAlloc_v2(&handle, 0));
    say("everything %d", cu.cuMemAlloc_v2(&handle, ~0ull));
    say("pitched everything %d", cu.cuMemAllocPitch_v2(&handle, &pitch[0], ~0ull, ~0ull, 4));
    say("wrapping %d", cu.cuMemAllocPitch_v2(&handle, &pitch[0], 1ull << 33, 1ull << 33, 4));
    say("pitched nothing %d", cu.cuMemAllocPitch_v2(&handle, &pitch[0], 0, 0, 4));
    say("info null %d", cu.cuMemGetInfo_v2(NULL, NULL));
    say("total null %d", cu.cuDeviceTotalMem_v2(NULL, 0));
    say("total of none %d", cu.cuDeviceTotalMem_v2(&pitch[0], 77));
    tell_free("after odd calls");
}

static void contexts(void) {
    void *own = NULL, *primary = NULL;
    u64 held = 0;
    say("make %d", cu.cuCtxCreate_v2(&own, 0, 0));
    say("take %d", take_whole(&held));
    tell_free("held");
    say("destroy %d", cu.cuCtxDestroy_v2(own));
    cu.cuDevicePrimaryCtxRetain(&primary, 0);
    cu.cuCtxSetCurrent(primary);
    tell_free("context destroyed");
    say("take %d", take_whole(&held));
    say("reset %d", cu.cuDevicePrimaryCtxReset_v2(0));
    cu.cuDevicePrimaryCtxRetain(&primary, 0);
    cu.cuCtxSetCurrent(primary);
    tell_free("primary context reset");
    say("take %d", take_whole(&held));
    say("release %d", cu.cuDevicePrimaryCtxRelease_v2(0));
    tell_free("one use ended");
}

static void released_last(void) {
    void *primary = NULL;
    u64 held = 0;
    cu.cuDevicePrimaryCtxRetain(&primary, 0);
    cu.cuDevicePrimaryCtxRetain(&primary, 0);
    cu.cuCtxSetCurrent(primary);
    say("take %d", take_whole(&held));
    say("release %d", cu.cuDevicePrimaryCtxRelease_v2(0));
    tell_free("one use left");
    say("release %d", cu.cuDevicePrimaryCtxRelease_v2(0));
    cu.cuDevicePrimaryCtxRetain(&primary, 0);
    cu.cuCtxSetCurrent(primary);
    tell_free("no use left");
}

// The rows are four bytes wide, and take their real pitch.
static void pitched(void) {
    u64 first = 0, second = 0;
    size_t real = 0, other = 0;
    int probe = cu.cuMemAllocPitch_v2(&first, &real, 4, 1, 4);
    cu.cuMemFree_v2(first);
    int take = cu.cuMemAllocPitch_v2(&first, &real, 4, quota / real, 4);
    int over = cu.cuMemAllocPitch_v2(&second, &other, 4, 1, 4);
    say("probe %d, %s, rows %d, one more row %d", probe, real >= 32 ? "padded" : "not padded", take, over);
    say("give %d", cu.cuMemFree_v2(first));
    say("one row too many %d", cu.cuMemAllocPitch_v2(&first, &real, 4, quota / real + 1, 4));
    tell_free("at the end");
}

static int reserved(void *which, u64 *bytes) { return cu.cuMemPoolGetAttribute(which, POOL_RESERVED, bytes); }

static void pool_reuse(void) {
    u64 part = quota / 4 * 3, keep = ~0ull, first = 0, second = 0, other = 0, bytes = 0;
    void *which = default_pool();
    cu.cuStreamCreate(&stream, 0);
    say("threshold %d", cu.cuMemPoolSetAttribute(which, POOL_THRESHOLD, &keep));
    for (int i = 0; i < 3; i++) {
        int take = cu.cuMemAllocAsync(&first, part, stream);
        int give = cu.cuMemFreeAsync(first, stream);
        int wait = cu.cuStreamSynchronize(stream);
        reserved(which, &bytes);
        say("round %d: take %d, give %d, wait %d, the pool holds %s", i, take, give, wait, bytes >= part ? "it" : "less");
    }
    say("half beside the pool %d", cu.cuMemAlloc_v2(&other, quota / 2));
    say("again from the pool %d", cu.cuMemAllocAsync(&second, part, stream));
    say("give %d", cu.cuMemFreeAsync(second, stream));
    int trim = settle(which);
    reserved(which, &bytes);
    say("trim %d, the pool holds %llu", trim, bytes);
    tell_free("trimmed");
}

static void pool_destroyed(void) {
    u64 first = 0;
    cu.cuStreamCreate(&stream, 0);
    mark(0);
    say("take %d", take_pool(quota, 0));
    tell_free("held");
    int give = cu.cuMemFreeAsync(address[0], stream);
    say("give %d, wait %d", give, cu.cuStreamSynchronize(stream));
    say("destroy %d", cu.cuMemPoolDestroy(pool));
    tell_free("pool destroyed");
    say("linear %d", cu.cuMemAlloc_v2(&first, quota));
}

// A pool lives on when a context ends, but not the memory that was allocated from it in that context.
static void pool_outlives_context(void) {
    void *primary = NULL, *own = NULL;
    u64 keep = ~0ull, parts[2] = {0, 0};
    cu.cuCtxGetCurrent(&primary);
    int made = make_pool(), kept = cu.cuMemPoolSetAttribute(pool, POOL_THRESHOLD, &keep);
    say("pool %d, threshold %d, context %d", made, kept, cu.cuCtxCreate_v2(&own, 0, 0));
    int take = cu.cuMemAllocFromPoolAsync(&parts[0], quota / 4, pool, NULL);
    int more = cu.cuMemAllocFromPoolAsync(&parts[1], quota / 4, pool, NULL);
    int end = cu.cuCtxDestroy_v2(own);
    cu.cuCtxSetCurrent(primary);
    say("take %d %d, context ends %d", take, more, end);
    // This is where the first part was, and behind it the second one.
    take = cu.cuMemAllocFromPoolAsync(&address[0], quota / 2, pool, NULL);
    int give = cu.cuMemFreeAsync(address[0], NULL), wait = cu.cuStreamSynchronize(NULL);
    say("take %d at %s address, give %d, wait %d", take, address[0] == parts[0] ? "the same" : "another", give, wait);
    tell_free("kept by the pool");
    say("destroy %d", cu.cuMemPoolDestroy(pool));
    tell_free("pool destroyed");
}

// Memory that a pool frees goes back when the program waits, if the pool's threshold says so.
static void pool_synchronised(void) {
    u64 held = 0;
    cu.cuStreamCreate(&stream, 0);
    int take = cu.cuMemAllocAsync(&held, quota, stream);
    tell_free("held");
    int give = cu.cuMemFreeAsync(held, stream);
    int wait = cu.cuStreamSynchronize(stream);
    say("take %d, give %d, wait %d", take, give, wait);
    tell_free("waited");
}

// Unused memory of the pool lies in holes. A request that fits in none of them would make the pool grow.
static void pool_holes(void) {
    enum { PIECES = 64 };
    u64 pieces[PIECES], large = 0, small = 0, bytes = 0;
    int taken = 0, given = 0;
    cu.cuStreamCreate(&stream, 0);
    for (int i = 0; i < PIECES; i++) taken += cu.cuMemAllocAsync(&pieces[i], quota / PIECES, stream) == 0;
    for (int i = 0; i < PIECES; i += 2) given += cu.cuMemFreeAsync(pieces[i], stream) == 0;
    say("taken %d, given %d, wait %d", taken, given, cu.cuStreamSynchronize(stream));
    int fits = cu.cuMemAllocAsync(&small, quota / PIECES, stream);
    int over = cu.cuMemAllocAsync(&large, quota / PIECES * 2, stream);
    int asked = reserved(default_pool(), &bytes);
    say("into a hole %d, into none %d, asked %d, the pool holds %s", fits, over, asked,
        bytes <= quota ? "no more than the quota" : "more than the quota");
}

enum { MANAGED = 2, NOWHERE = 0 };

// Managed memory of a pool can move to the device, wherever the pool is.
static void managed_pools(void) {
    static const struct { const char *name; int location; } places[] = {
        {"nowhere", NOWHERE}, {"host", ON_HOST}, {"device", ON_DEVICE}};
    cu.cuStreamCreate(&stream, 0);
    for (int i = 0; i < 3; i++) {
        struct pool_properties wanted = {.kind = MANAGED, .location = places[i].location};
        int make = cu.cuMemPoolCreate(&pool, &wanted);
        int over = cu.cuMemAllocFromPoolAsync(&address[0], 2 * quota, pool, stream);
        int take = cu.cuMemAllocFromPoolAsync(&address[0], quota, pool, stream);
        say("%s: make %d, twice the quota %d, take %d", places[i].name, make, over, take);
        tell_free("held");
        int give = cu.cuMemFreeAsync(address[0], stream), wait = cu.cuStreamSynchronize(stream);
        say("give %d, wait %d, destroy %d", give, wait, cu.cuMemPoolDestroy(pool));
        tell_free("destroyed");
    }
}

// Takes more than the quota of a pool of the host.
static void from_host_pool(const char *name) {
    int take = cu.cuMemAllocFromPoolAsync(&address[0], 2 * quota, pool, stream);
    tell_free(name);
    say("take %d, give %d", take, cu.cuMemFreeAsync(address[0], stream));
}

// Takes the quota of a pool that keeps freed memory.
static void from_managed_pool(const char *name) {
    u64 keep = ~0ull;
    int kept = cu.cuMemPoolSetAttribute(pool, POOL_THRESHOLD, &keep);
    int over = cu.cuMemAllocFromPoolAsync(&address[0], 2 * quota, pool, stream);
    int take = cu.cuMemAllocFromPoolAsync(&address[0], quota, pool, stream);
    int give = cu.cuMemFreeAsync(address[0], stream);
    say("threshold %d, twice the quota %d, take %d, give %d", kept, over, take, give);
    tell_free(name);
    say("settle %d", settle(pool));
    tell_free("trimmed");
}

// Pools that places have from the start.
static void pools_of_places(void) {
    int (*get_default)(void **, struct place *, int) = dlsym(driver, "cuMemGetDefaultMemPool");
    int (*get_current)(void **, struct place *, int) = dlsym(driver, "cuMemGetMemPool");
    struct place host = {ON_HOST, 0}, nowhere = {NOWHERE, 0};
    cu.cuStreamCreate(&stream, 0);
    say("get %d", get_default(&pool, &host, PINNED));
    from_host_pool("default pool of the host");
    say("get %d", get_current(&pool, &host, PINNED));
    from_host_pool("current pool of the host");
    say("get %d", get_default(&pool, &host, MANAGED));
    from_managed_pool("default managed pool of the host");
    say("get %d", get_current(&pool, &nowhere, MANAGED));
    from_managed_pool("current managed pool of no place");
}

// Frees memory of one family by the call of another one.
static void crossed_free(void) {
    u64 held = 0;
    cu.cuStreamCreate(&stream, 0);
    int take = take_whole(&held);
    int give = cu.cuMemFreeAsync(held, stream);
    int wait = cu.cuStreamSynchronize(stream);
    say("linear: take %d, give %d, wait %d", take, give, wait);
    tell_free("freed in stream order");
    take = cu.cuMemAllocAsync(&held, quota, stream);
    give = cu.cuMemFree_v2(held);
    say("of a pool: take %d, give %d, settled %d", take, give, settle(default_pool()));
    tell_free("freed at once");
    take = cu.cuMemAlloc(&narrow_address[0], quota);
    give = cu.cuMemFree_v2(narrow_address[0]);
    say("narrow: take %d, give %d", take, give);
    tell_free("freed by the wide form");
}

static volatile int is_open;

// A host function that stands in its stream until the gate is open.
static void stand(void *gate) {
    while (!*(volatile int *)gate) usleep(1000);
}

static int close_gate(volatile int *gate) {
    static int (*launch)(void *, void (*)(void *), void *);
    if (!launch) *(void **)&launch = dlsym(driver, "cuLaunchHostFunc");
    *gate = 0;
    return launch(stream, stand, (void *)gate);
}

static void *open_later(void *nothing) {
    usleep(100000);
    is_open = 1;
    return nothing;
}

// Tries to take the whole quota before the gate is open, and when the stream has reached the frees. A free would wait for the stream.
static void take_before_and_after(const char *what) {
    u64 early = 0;
    int before = take_whole(&early);
    is_open = 1;
    int wait = cu.cuStreamSynchronize(stream);
    if (!before) cu.cuMemFree_v2(early);
    say("%s: the whole quota %d, wait %d", what, before, wait);
    tell_free("then");
}

enum { PIECES = 128 };

// Takes the whole quota, in one piece or in small ones, and frees it behind a closed gate.
static int free_behind_gate(int count) {
    u64 pieces[PIECES] = {0};
    int status = 0;
    for (int i = 0; i < count; i++) status |= cu.cuMemAlloc_v2(&pieces[i], quota / count);
    status |= close_gate(&is_open);
    for (int i = 0; i < count; i++) status |= cu.cuMemFreeAsync(pieces[i], stream);
    return status;
}

static pthread_t opener;

static void open_soon(void) { pthread_create(&opener, NULL, open_later, NULL); }

// Returns the status of a call that was made while the gate opened.
static int once_open(int status) {
    pthread_join(opener, NULL);
    return status;
}

// Frees memory that is in no pool, in the order of a stream that has not reached the frees. The last case does so in a context
// that ends meanwhile.
static void freed_behind_work(void) {
    u64 held = 0;
    int given, taken, ended;
    cu.cuStreamCreate(&stream, 0);
    say("take and give %d", free_behind_gate(1));
    take_before_and_after("one piece");
    say("take and give pieces %d", free_behind_gate(PIECES));
    take_before_and_after("small pieces");
    for (int count = 1; count <= PIECES; count += PIECES - 1) {
        given = free_behind_gate(count);
        open_soon();
        taken = once_open(take_whole(&held));
        say("take and give %d pieces %d, take meanwhile %d, give %d", count, given, taken, cu.cuMemFree_v2(held));
    }
    given = free_behind_gate(1);
    cu.cuStreamCreate(&stream, 0);
    open_soon();
    taken = once_open(cu.cuMemAllocAsync(&held, 1 << 20, stream));
    ended = cu.cuMemFreeAsync(held, stream);
    say("take and give %d, take of a pool meanwhile %d, give %d, settled %d", given, taken, ended, settle(default_pool()));
    void *context = NULL;
    int made = cu.cuCtxCreate_v2(&context, 0, 0);
    cu.cuStreamCreate(&stream, 0);
    given = free_behind_gate(1);
    open_soon();
    ended = once_open(cu.cuCtxDestroy_v2(context));
    say("context %d, take and give %d, end %d", made, given, ended);
    start();
    tell_free("after the context");
}

enum { WAITERS = 32 };

static volatile int answered, refused;

static void *take_part(void *context) {
    u64 held = 0;
    int status = cu.cuCtxSetCurrent(context) | cu.cuMemAlloc_v2(&held, quota / WAITERS);
    if (status) __atomic_fetch_add(&refused, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&answered, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

// Threads wait for memory that a stream frees piece by piece. It comes to the next free when one more thread has been answered.
static void freed_one_by_one(void) {
    static volatile int gates[WAITERS];
    pthread_t waiters[WAITERS];
    u64 pieces[WAITERS] = {0};
    void *context = NULL;
    int status = cu.cuCtxGetCurrent(&context) | cu.cuStreamCreate(&stream, 0);
    for (int i = 0; i < WAITERS; i++) status |= cu.cuMemAlloc_v2(&pieces[i], quota / WAITERS);
    for (int i = 0; i < WAITERS; i++) status |= close_gate(&gates[i]) | cu.cuMemFreeAsync(pieces[i], stream);
    for (int i = 0; i < WAITERS; i++) pthread_create(&waiters[i], NULL, take_part, context);
    usleep(100000);
    for (int i = 0; i < WAITERS; i++) {
        gates[i] = 1;
        while (answered <= i) usleep(1000);
    }
    for (int i = 0; i < WAITERS; i++) pthread_join(waiters[i], NULL);
    say("take and give %d, refused %d", status, refused);
}

// The driver fails each family once (an injected fault). The reservation must be free again.
static void driver_fails(void) {
    cu.cuStreamCreate(&stream, 0);
    for (int i = 0; i < FAMILIES; i++) {
        mark(0);
        int failed = families[i].take(families[i].step, 0);
        say("%s: %d, %s", families[i].name, failed, untouched(0) ? "untouched" : "written");
        if (!failed) families[i].give(0);
        tell_free("  then");
    }
}

static const char *only = ""; // the family that a trap is about

// The driver fails the first free of a family (an injected fault). Memory that it keeps stays charged.
static void free_fails(void) {
    cu.cuStreamCreate(&stream, 0);
    for (int i = 0; i < FAMILIES; i++) {
        if (strcmp(families[i].name, only)) continue;
        mark(0);
        int take = families[i].take(quota, 0);
        int give = families[i].give(0);
        say("take %d, give %d", take, give);
        tell_free("still held");
        say("give %d", families[i].give(0));
        tell_free("then");
    }
}

static const struct {
    const char *name;
    void (*spring)(void);
    int context; // whether the primary context of device 0 is made current first
} traps[] = {
    {"unknown_free", unknown_free, 1},
    {"double_free", double_free, 1},
    {"other_device", other_device, 0},
    {"release_while_mapped", release_while_mapped, 1},
    {"retained", retained, 1},
    {"mapped_twice", mapped_twice, 1},
    {"create_without_context", create_without_context, 0},
    {"create_on_host", create_on_host, 1},
    {"odd_create", odd_create, 1},
    {"contexts", contexts, 0},
    {"released_last", released_last, 0},
    {"pitched", pitched, 1},
    {"pool_reuse", pool_reuse, 1},
    {"pool_destroyed", pool_destroyed, 1},
    {"pool_synchronised", pool_synchronised, 1},
    {"pool_holes", pool_holes, 1},
    {"pool_outlives_context", pool_outlives_context, 1},
    {"managed_pools", managed_pools, 1},
    {"pools_of_places", pools_of_places, 1},
    {"crossed_free", crossed_free, 1},
    {"freed_behind_work", freed_behind_work, 1},
    {"freed_one_by_one", freed_one_by_one, 1},
    {"driver_fails", driver_fails, 1},
    {"free_fails", free_fails, 1},
};

int main(int count, char **words) {
    if (count < 3) return 2;
    quota = number(words[2]);
    if (count > 3) only = words[3];
    for (size_t i = 0; i < sizeof traps / sizeof *traps; i++) {
        if (strcmp(traps[i].name, words[1])) continue;
        if (!(traps[i].context ? start() : open_driver() && cu.cuInit(0) == 0)) return say("no start"), 3;
        traps[i].spring();
        return 0;
    }
    return 2;
}
