// Arrays: their cost of a quota, and the time at which it is given back.
//
// arrays WAY QUOTA: each way prints statuses, and the bytes of the quota that are taken.
#include "beside.h"

typedef void *array;
struct flat { size_t width, height; int format; unsigned channels; };
struct deep { size_t width, height, depth; int format; unsigned channels, flags; };
struct narrow_flat { unsigned width, height; int format; unsigned channels; };
struct narrow_deep { unsigned width, height, depth; int format; unsigned channels, flags; };
// `CUarrayMapInfo` of the driver API, with its unions as words.
struct map_info {
    unsigned resource_kind;
    array resource;
    unsigned part_kind;
    u64 part[4];
    unsigned operation, handle_kind;
    u64 handle, offset;
    unsigned devices, flags, reserved[2];
};

enum { LAYERED = 1, CUBEMAP = 4, SPARSE = 0x40, DEFERRED = 0x80, FLOAT = 0x20, MIB = 1 << 20 };
#define SENTINEL ((array)0xa5a5a5a5a5a5a5a5ull)

static int (*create)(array *, const struct flat *), (*create_v1)(array *, const struct narrow_flat *);
static int (*create_3d)(array *, const struct deep *), (*create_3d_v1)(array *, const struct narrow_deep *);
static int (*create_mipmapped)(array *, const struct deep *, unsigned), (*get_level)(array *, array, unsigned);
static int (*destroy)(array), (*destroy_mipmapped)(array);
static int (*map)(struct map_info *, unsigned, void *), (*map_ptsz)(struct map_info *, unsigned, void *);
static int (*begin)(void *, int), (*end)(void *, void **);
static u64 quota;

static void find_arrays(void) {
    *(void **)&create = dlsym(driver, "cuArrayCreate_v2");
    *(void **)&create_v1 = dlsym(driver, "cuArrayCreate");
    *(void **)&create_3d = dlsym(driver, "cuArray3DCreate_v2");
    *(void **)&create_3d_v1 = dlsym(driver, "cuArray3DCreate");
    *(void **)&create_mipmapped = dlsym(driver, "cuMipmappedArrayCreate");
    *(void **)&get_level = dlsym(driver, "cuMipmappedArrayGetLevel");
    *(void **)&destroy = dlsym(driver, "cuArrayDestroy");
    *(void **)&destroy_mipmapped = dlsym(driver, "cuMipmappedArrayDestroy");
    *(void **)&map = dlsym(driver, "cuMemMapArrayAsync");
    *(void **)&map_ptsz = dlsym(driver, "cuMemMapArrayAsync_ptsz");
    *(void **)&begin = dlsym(driver, "cuStreamBeginCapture_v2");
    *(void **)&end = dlsym(driver, "cuStreamEndCapture");
}

static u64 taken(void) {
    size_t left = 0, total = 0;
    cu.cuMemGetInfo_v2(&left, &total);
    return total - left;
}

// Ways to make an array of floats. It is 1024 wide, so that a row is a multiple of every granule.
static int by_create(array *out, size_t rows) { return create(out, &(struct flat){1024, rows, FLOAT, 1}); }
static int by_create_v1(array *out, size_t rows) {
    struct { struct narrow_flat shape; unsigned beyond[8]; } given = {{1024, rows, FLOAT, 1}, {~0u, ~0u}};
    return create_v1(out, &given.shape);
}
static int by_3d(array *out, size_t rows) { return create_3d(out, &(struct deep){1024, rows, 0, FLOAT, 1, 0}); }
static int by_3d_v1(array *out, size_t rows) {
    struct { struct narrow_deep shape; unsigned beyond[8]; } given = {{1024, rows, 0, FLOAT, 1, 0}, {~0u, ~0u}};
    return create_3d_v1(out, &given.shape);
}
static int by_layers(array *out, size_t rows) {
    return create_3d(out, &(struct deep){1024, 1, rows, FLOAT, 1, LAYERED});
}
static int by_mipmapped(array *out, size_t rows) {
    return create_mipmapped(out, &(struct deep){1024, rows, 0, FLOAT, 1, 0}, 1);
}
static int end_array(array it) { return destroy(it); }
static int end_mipmapped(array it) { return destroy_mipmapped(it); }

static const struct way {
    const char *name;
    int (*make)(array *, size_t);
    int (*end)(array);
} ways[] = {
    {"cuArrayCreate", by_create_v1, end_array},  {"cuArrayCreate_v2", by_create, end_array},
    {"cuArray3DCreate", by_3d_v1, end_array},    {"cuArray3DCreate_v2", by_3d, end_array},
    {"layers", by_layers, end_array},            {"cuMipmappedArrayCreate", by_mipmapped, end_mipmapped},
};
enum { WAYS = sizeof ways / sizeof *ways, ROW = 4096 };

// Fills the quota to its last byte by each way, then tries to pass it by the smallest array.
static void fill(void) {
    for (int i = 0; i < WAYS; i++) {
        const struct way *way = &ways[i];
        array one = SENTINEL, two = SENTINEL, more = SENTINEL;
        size_t rows = quota / ROW, half = rows / 2;
        int first = way->make(&one, half), second = way->make(&two, rows - half);
        u64 full = taken();
        int third = way->make(&more, 1);
        say("%s: make %d %d, taken %llu, one more %d (%s)", way->name, first, second, full, third,
            more == SENTINEL ? "untouched" : "written");
        int gone = way->end(one), again = way->end(one);
        say("  end %d, again %s, taken %llu", gone, again ? "refused" : "done", taken());
        gone = way->end(two);
        say("  end %d, taken %llu", gone, taken());
        if (third == 0) way->end(more);
    }
}

static void cost(struct deep shape, int levels) {
    array it = NULL;
    u64 before = taken();
    int made = levels ? create_mipmapped(&it, &shape, levels) : create_3d(&it, &shape);
    u64 bytes = taken() - before;
    int gone = levels ? destroy_mipmapped(it) : destroy(it);
    say("%zu %zu %zu %d %u %u %d: make %d, takes %llu, end %d, left over %llu", shape.width, shape.height,
        shape.depth, shape.format, shape.channels, shape.flags, levels, made, bytes, gone, taken() - before);
}

// Makes arrays of every format, rank and kind, in odd sizes.
static void costs(void) {
    static const int plain[] = {0x01, 0x02, 0x03, 0x08, 0x09, 0x0a, 0x10, 0x20};
    static const int packed[] = {0x50, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d,
                                 0x9e, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xcb};
    for (unsigned i = 0; i < sizeof plain / sizeof *plain; i++)
        for (unsigned channels = 1; channels <= 4; channels *= 2) {
            cost((struct deep){1001, 0, 0, plain[i], channels, 0}, 0);
            cost((struct deep){513, 301, 0, plain[i], channels, 0}, 0);
            cost((struct deep){65, 33, 17, plain[i], channels, 0}, 0);
        }
    for (unsigned i = 0; i < sizeof packed / sizeof *packed; i++) {
        cost((struct deep){516, 300, 0, packed[i], 1, 0}, 0);
        cost((struct deep){516, 300, 0, packed[i], 1, 0}, 5);
    }
    for (int levels = 0; levels < 12; levels++) {
        cost((struct deep){700, 0, 0, FLOAT, 2, 0}, levels);
        cost((struct deep){700, 300, 0, FLOAT, 2, 0}, levels);
        cost((struct deep){100, 60, 40, FLOAT, 2, 0}, levels);
        cost((struct deep){300, 0, 7, FLOAT, 2, LAYERED}, levels);
        cost((struct deep){300, 200, 7, FLOAT, 2, LAYERED}, levels);
        cost((struct deep){300, 300, 6, FLOAT, 2, CUBEMAP}, levels);
        cost((struct deep){200, 200, 12, FLOAT, 2, CUBEMAP | LAYERED}, levels);
    }
}

static void refused(const char *what, int status, const array *it) {
    say("%s: %d, %s", what, status, *it == SENTINEL ? "untouched" : *it ? "written" : "null");
}

// Asks for arrays that the driver refuses, and for others beside them.
static void odd(void) {
    array it = SENTINEL;
    struct deep good = {64, 64, 0, FLOAT, 1, 0}, unknown = {64, 64, 0, 0x7777, 1, 0}, empty = {0, 64, 0, FLOAT, 1, 0};
    struct deep cube = {64, 64, 5, FLOAT, 1, CUBEMAP}, three = {64, 64, 0, FLOAT, 3, 0};
    refused("no output", create_3d(NULL, &good), &it);
    refused("no descriptor", create_3d(&it, NULL), &it);
    refused("no descriptor of the first generation", create_3d_v1(&it, NULL), &it);
    refused("no flat descriptor", create(&it, NULL), &it);
    refused("no flat descriptor of the first generation", create_v1(&it, NULL), &it);
    refused("no mipmapped output", create_mipmapped(NULL, &good, 2), &it);
    refused("no mipmapped descriptor", create_mipmapped(&it, NULL, 2), &it);
    refused("unknown format", create_3d(&it, &unknown), &it);
    refused("empty", create_3d(&it, &empty), &it);
    refused("five faces", create_3d(&it, &cube), &it);
    refused("three channels", create_mipmapped(&it, &three, 3), &it);
    int flat = destroy(NULL), deep = destroy_mipmapped(NULL);
    say("end of none %d %d", flat, deep);
    void *context = NULL;
    cu.cuCtxGetCurrent(&context);
    cu.cuCtxSetCurrent(NULL);
    refused("no context", create_3d(&it, &good), &it);
    cu.cuCtxSetCurrent(context);
    say("then: taken %llu", taken());
}

static void levels(void) {
    array mipmap = NULL, level = NULL;
    int made = create_mipmapped(&mipmap, &(struct deep){1024, 1024, 0, FLOAT, 1, 0}, 11);
    u64 whole = taken();
    int got = get_level(&level, mipmap, 3);
    u64 with_level = taken();
    int ended = destroy(level);
    say("make %d, level %d, taken by it %llu, its end %d, given back %llu", made, got, with_level - whole, ended,
        whole - taken());
    ended = destroy_mipmapped(mipmap);
    say("end %d, taken %llu", ended, taken());
}

// An end that fails keeps the charge.
static void failing(void) {
    array it = NULL, mipmap = NULL;
    int first = by_3d(&it, 256), second = by_mipmapped(&mipmap, 256);
    say("make %d %d, taken %llu", first, second, taken());
    for (int i = 0; i < 2; i++) {
        first = destroy(it), second = destroy_mipmapped(mipmap);
        say("end %d %d, taken %llu", first, second, taken());
    }
}

static void contexts(void) {
    array it = NULL;
    void *own = NULL, *primary = NULL;
    cu.cuCtxGetCurrent(&primary);
    say("context %d", cu.cuCtxCreate_v2(&own, 0, 0));
    int first = by_3d(&it, 256), second = by_mipmapped(&it, 512);
    say("make %d %d, taken %llu", first, second, taken());
    first = cu.cuCtxDestroy_v2(own);
    say("fails to end %d, taken %llu", first, taken());
    cu.cuCtxSetCurrent(primary);
    first = by_create(&it, 256);
    say("make %d, taken %llu", first, taken());
    first = cu.cuCtxDestroy_v2(own);
    say("ends %d, taken %llu", first, taken());
    say("resets %d", cu.cuDevicePrimaryCtxReset_v2(0));
    cu.cuDevicePrimaryCtxRetain(&primary, 0);
    cu.cuCtxSetCurrent(primary);
    say("taken %llu", taken());
}

static u64 memory(void) {
    struct allocation wanted = {.kind = PINNED, .location = ON_DEVICE};
    u64 handle = 0;
    if (cu.cuMemCreate(&handle, 2 * MIB, &wanted, 0) != 0) say("no memory");
    return handle;
}

// Memory that the caller leaves in the handle when it unmaps. An unmapping names no memory, so this must not matter.
static u64 left_there;

static int change(array it, unsigned level, u64 handle) {
    struct map_info info = {.resource = it, .part = {level}, .operation = handle ? 1 : 2,
                            .handle = handle ? handle : left_there, .devices = 1};
    return (level ? map_ptsz : map)(&info, 1, NULL);
}

// Maps a mip tail, which layer, offset and size name. The caller may leave anything in the other words.
static int change_tail(array it, u64 handle, u64 left_over) {
    struct map_info info = {.resource = it, .part_kind = 1, .part = {left_over << 32, 0, 2 * MIB, left_over},
                            .operation = handle ? 1 : 2, .handle = handle ? handle : left_there, .devices = 1};
    return map(&info, 1, NULL);
}

// Arrays without memory of their own: they cost nothing at first, then the mapped bytes, as long as they are mapped.
static void unbacked(void) {
    static const unsigned kinds[] = {SPARSE, DEFERRED, SPARSE | LAYERED};
    for (int i = 0; i < 3; i++) {
        array it = NULL, mipmap = NULL;
        struct deep shape = {16384, 16384, kinds[i] & LAYERED ? 4 : 0, FLOAT, 4, kinds[i]};
        int flat = create_3d(&it, &shape), deep = create_mipmapped(&mipmap, &shape, 4);
        say("kind %x: make %d %d, taken %llu", kinds[i], flat, deep, taken());
        u64 one = memory(), two = memory(), tail = memory();
        int first = change(it, 0, one), second = change(mipmap, 2, two), third = change_tail(mipmap, tail, 5);
        int gone = cu.cuMemRelease(one) | cu.cuMemRelease(two) | cu.cuMemRelease(tail);
        say("  map %d %d %d, release %d, taken %llu", first, second, third, gone, taken());
        left_there = memory();
        gone = change_tail(mipmap, 0, 9);
        say("  tail unmap %d, taken %llu", gone, taken());
        gone = change(mipmap, 2, 0);
        say("  unmap %d, taken %llu", gone, taken());
        gone = cu.cuMemRelease(left_there);
        say("  release %d, taken %llu", gone, taken());
        gone = destroy_mipmapped(mipmap);
        say("  end %d, taken %llu", gone, taken());
        gone = destroy(it);
        say("  end %d, taken %llu", gone, taken());
    }
}

// Mappings end with the context of their array. A mapping that the driver refuses keeps nothing.
static void mapped_in_context(void) {
    void *own = NULL;
    array it = NULL;
    int context = cu.cuCtxCreate_v2(&own, 0, 0);
    int made = create_3d(&it, &(struct deep){4096, 4096, 0, FLOAT, 1, SPARSE});
    u64 one = memory(), two = memory();
    int first = change(it, 0, one), second = change(it, 3, two);
    int gone = cu.cuMemRelease(one) | cu.cuMemRelease(two);
    say("context %d, make %d, map %d %d, release %d, taken %llu", context, made, first, second, gone, taken());
    int ended = cu.cuCtxDestroy_v2(own);
    void *primary = NULL;
    cu.cuDevicePrimaryCtxRetain(&primary, 0);
    cu.cuCtxSetCurrent(primary);
    say("ends %d, taken %llu", ended, taken());
}

// Memory is mapped to an array while another thread may end the context of the array.
static int leave(void) { return cu.cuDevicePrimaryCtxRelease_v2(0); }
static void mapped_beside(void) {
    array it = NULL;
    int made = create_3d(&it, &(struct deep){4096, 4096, 0, FLOAT, 1, SPARSE});
    u64 one = memory();
    int begun = begin_beside(leave);
    if (begun == -2) {
        say("untold");
        return;
    }
    int mapped = change(it, 0, one), released = cu.cuMemRelease(one), left = end_beside();
    say("make %d, begin %d, map %d, release %d, left %d, taken %llu", made, begun, mapped, released, left, taken());
    int ended = destroy(it);
    say("end %d, taken %llu", ended, taken());
}

// Makes an array while a capture forbids it. The library's own questions must not spoil a capture that the call itself would not.
static void capturing(void) {
    for (int mode = 0; mode < 3; mode++) {
        void *stream = NULL, *graph = NULL;
        array it = NULL;
        int made = cu.cuStreamCreate(&stream, 1), began = begin(stream, mode);
        int taken_now = create_3d(&it, &(struct deep){200 + mode, 100, 0, FLOAT, 1, 0});
        int ended = end(stream, &graph);
        say("mode %d: %d, begin %d, make %d, end %d", mode, made, began, taken_now, ended);
        if (taken_now == 0) destroy(it);
    }
    say("then: taken %llu", taken());
}

// The quota's refusal comes before the driver's, and leaves the capture as it was.
static void refused_in_capture(void) {
    void *stream = NULL, *graph = NULL;
    array it = SENTINEL;
    int made = cu.cuStreamCreate(&stream, 1), began = begin(stream, 0);
    int status = by_3d(&it, quota / ROW + 1), ended = end(stream, &graph);
    say("stream %d, begin %d, make %d, end %d", made, began, status, ended);
}

static void twice(void) {
    // The device takes another size for these than the estimate.
    cost((struct deep){900, 560, 0, FLOAT, 1, 0}, 0);
    cost((struct deep){900, 560, 0, FLOAT, 1, 0}, 0);
    cost((struct deep){900, 560, 0, FLOAT, 1, 0}, 3);
    cost((struct deep){900, 560, 0, FLOAT, 1, 0}, 3);
}

// Returns the bytes that the device takes for `bytes`: multiples of 2 MiB, or a power of two.
static u64 whole(u64 bytes) {
    u64 slot = 512;
    if (bytes > 1 << 20) return (bytes + (2 << 20) - 1) >> 21 << 21;
    while (slot < bytes) slot *= 2;
    return slot;
}

// Makes more shapes than the library keeps answers for.
static void many(void) {
    for (unsigned round = 0; round < 2; round++)
        for (unsigned width = 1; width <= 1500; width++) {
            array it = NULL;
            u64 before = taken();
            int made = create_3d(&it, &(struct deep){width * 64, 100, 0, FLOAT, 1, 0});
            u64 least = (u64)width * 64 * 100 * 4, bytes = taken() - before;
            if (made || bytes < whole(least) || bytes > whole(least + 65535)) say("width %u: %d, %llu", width, made, bytes);
            if (destroy(it) || taken() != before) say("width %u stays", width);
        }
    say("done");
}

static void huge(void) {
    array it = SENTINEL;
    struct deep huge = {(size_t)-1, (size_t)-1, (size_t)-1, FLOAT, 4, 0};
    refused("huge", create_3d(&it, &huge), &it);
    refused("huge, mipmapped", create_mipmapped(&it, &huge, ~0u), &it);
    refused("huge, first generation", create_3d_v1(&it, &(struct narrow_deep){~0u, ~0u, ~0u, FLOAT, 4, 0}), &it);
    refused("huge and flat", create(&it, &(struct flat){(size_t)-1, (size_t)-1, FLOAT, 4}), &it);
    say("then: taken %llu", taken());
}

int main(int count, char **words) {
    static const struct { const char *name; void (*run)(void); } tests[] = {
        {"fill", fill},           {"costs", costs},         {"odd", odd},     {"levels", levels},
        {"failing", failing},     {"contexts", contexts},   {"twice", twice}, {"unbacked", unbacked},
        {"capturing", capturing}, {"many", many},           {"huge", huge},   {"mapped_in_context", mapped_in_context},
        {"refused_in_capture", refused_in_capture}, {"mapped_beside", mapped_beside},
    };
    if (count < 3 || !start()) return 2;
    quota = number(words[2]);
    find_arrays();
    for (unsigned i = 0; i < sizeof tests / sizeof *tests; i++)
        if (!strcmp(words[1], tests[i].name)) return tests[i].run(), 0;
    return 2;
}
