// Families of memory: how each is taken and freed.
//
// Every family takes up to two pieces of memory, so that one can fill the quota and the other try to pass it.
#pragma once
#include "host.h"

#define SENTINEL 0xa5a5a5a5a5a5a5a5ull
#define NARROW_SENTINEL 0xa5a5a5a5u
#define ROW 65536u // a width that is a multiple of every pitch

static u64 address[2];
static size_t pitch[2];
static unsigned narrow_address[2], narrow_pitch[2];
static void *stream, *pool;

static void mark(int piece) {
    address[piece] = SENTINEL;
    pitch[piece] = SENTINEL;
    narrow_address[piece] = narrow_pitch[piece] = NARROW_SENTINEL;
}

static int untouched(int piece) {
    return address[piece] == SENTINEL && pitch[piece] == SENTINEL && narrow_address[piece] == NARROW_SENTINEL &&
           narrow_pitch[piece] == NARROW_SENTINEL;
}

static u64 width(u64 bytes) { return bytes < ROW ? bytes : ROW; }
static u64 height(u64 bytes) { return bytes < ROW ? 1 : bytes / ROW; }

static int take_narrow(u64 bytes, int piece) { return cu.cuMemAlloc(&narrow_address[piece], bytes); }
static int give_narrow(int piece) { return cu.cuMemFree(narrow_address[piece]); }
static int take_linear(u64 bytes, int piece) { return cu.cuMemAlloc_v2(&address[piece], bytes); }
static int give_linear(int piece) { return cu.cuMemFree_v2(address[piece]); }
static int take_narrow_pitch(u64 bytes, int piece) {
    return cu.cuMemAllocPitch(&narrow_address[piece], &narrow_pitch[piece], width(bytes), height(bytes), 4);
}
static int take_pitch(u64 bytes, int piece) {
    return cu.cuMemAllocPitch_v2(&address[piece], &pitch[piece], width(bytes), height(bytes), 4);
}
static int take_managed(u64 bytes, int piece) { return cu.cuMemAllocManaged(&address[piece], bytes, 1); }

static int take_create(u64 bytes, int piece) {
    struct allocation wanted = {.kind = PINNED, .location = ON_DEVICE};
    return cu.cuMemCreate(&address[piece], bytes, &wanted, 0);
}
static int give_create(int piece) { return cu.cuMemRelease(address[piece]); }

// A pool frees memory only on request. Until then the quota would stay taken for the next family.
static int settle(void *which) {
    int status = cu.cuStreamSynchronize(stream);
    return status ? status : cu.cuMemPoolTrimTo(which, 0);
}
static void *default_pool(void) {
    void *found = NULL;
    cu.cuDeviceGetDefaultMemPool(&found, 0);
    return found;
}
static int take_async(u64 bytes, int piece) { return cu.cuMemAllocAsync(&address[piece], bytes, stream); }
static int give_async(int piece) {
    int status = cu.cuMemFreeAsync(address[piece], stream);
    return status ? status : settle(default_pool());
}
static int take_async_ptsz(u64 bytes, int piece) { return cu.cuMemAllocAsync_ptsz(&address[piece], bytes, stream); }
static int give_async_ptsz(int piece) {
    int status = cu.cuMemFreeAsync_ptsz(address[piece], stream);
    return status ? status : settle(default_pool());
}
static int make_pool(void) {
    struct pool_properties wanted = {.kind = PINNED, .location = ON_DEVICE};
    return pool ? 0 : cu.cuMemPoolCreate(&pool, &wanted);
}
static int take_pool(u64 bytes, int piece) {
    int status = make_pool();
    return status ? status : cu.cuMemAllocFromPoolAsync(&address[piece], bytes, pool, stream);
}
static int take_pool_ptsz(u64 bytes, int piece) {
    int status = make_pool();
    return status ? status : cu.cuMemAllocFromPoolAsync_ptsz(&address[piece], bytes, pool, stream);
}
static int give_pool(int piece) {
    int status = cu.cuMemFreeAsync(address[piece], stream);
    return status ? status : settle(pool);
}

static const struct family {
    const char *name;
    u64 step; // the least that can be asked for
    int (*take)(u64 bytes, int piece);
    int (*give)(int piece);
} families[] = {
    {"cuMemAlloc", 1, take_narrow, give_narrow},
    {"cuMemAlloc_v2", 1, take_linear, give_linear},
    {"cuMemAllocPitch", 1, take_narrow_pitch, give_narrow},
    {"cuMemAllocPitch_v2", 1, take_pitch, give_linear},
    {"cuMemAllocManaged", 1, take_managed, give_linear},
    {"cuMemCreate", 2 << 20, take_create, give_create},
    {"cuMemAllocAsync", 1, take_async, give_async},
    {"cuMemAllocAsync_ptsz", 1, take_async_ptsz, give_async_ptsz},
    {"cuMemAllocFromPoolAsync", 1, take_pool, give_pool},
    {"cuMemAllocFromPoolAsync_ptsz", 1, take_pool_ptsz, give_pool},
};
enum { FAMILIES = sizeof families / sizeof *families };
