// Number of arrays of a shape that fit into a quota.
//
// shapes SHAPE: takes arrays until one is refused, and gives all of them back.
#include "host.h"

enum { FLOATS = 0x20, HALVES = 0x10, BYTES = 0x01, MOST = 4096 };

struct flat {
    size_t width, height;
    unsigned format, channels;
};
struct shape {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

// Pieces of a whole mebibyte, except for the chain of levels: 4 MiB, and its smaller levels.
static const struct {
    const char *name;
    struct shape shape;
    unsigned levels; // 0 for an array
} shapes[] = {
    {"line", {65536, 0, 0, FLOATS, 4, 0}, 0},
    {"plane", {1024, 512, 0, HALVES, 1, 0}, 0},
    {"bytes", {1024, 1024, 0, BYTES, 1, 0}, 0},
    {"volume", {64, 64, 64, FLOATS, 1, 0}, 0},
    {"chain", {1024, 1024, 0, FLOATS, 1, 0}, 11},
};

static int (*create)(void **, const struct flat *), (*create_3d)(void **, const struct shape *);
static int (*create_chain)(void **, const struct shape *, unsigned), (*destroy)(void *), (*destroy_chain)(void *);

static int take(void **array, const struct shape *shape, unsigned levels) {
    struct flat flat = {shape->width, shape->height, shape->format, shape->channels};
    if (levels) return create_chain(array, shape, levels);
    return shape->depth ? create_3d(array, shape) : create(array, &flat);
}

int main(int count, char **words) {
    static void *arrays[MOST];
    if (count < 2 || !start()) return 3;
    *(void **)&create = dlsym(driver, "cuArrayCreate_v2");
    *(void **)&create_3d = dlsym(driver, "cuArray3DCreate_v2");
    *(void **)&create_chain = dlsym(driver, "cuMipmappedArrayCreate");
    *(void **)&destroy = dlsym(driver, "cuArrayDestroy");
    *(void **)&destroy_chain = dlsym(driver, "cuMipmappedArrayDestroy");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, words[1])) continue;
        int taken = 0, given = 0, status = 0;
        while (taken < MOST && (status = take(&arrays[taken], &shapes[i].shape, shapes[i].levels)) == 0) taken++;
        for (int k = 0; k < taken; k++) given += (shapes[i].levels ? destroy_chain : destroy)(arrays[k]) == 0;
        say("taken %d, then %d, given %d", taken, status, given);
        return 0;
    }
    return 2;
}
