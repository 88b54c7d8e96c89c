// Doors: the entry that each way into the driver leads to, and the charge for memory that is taken through it.
//
// doors DOOR QUOTA [ABSOLUTE PATH OF THE DRIVER]
// With a quota of 0 the program only prints the library that serves each function.
#include "families.h"

#ifdef LINKED
#define DECLARE(symbol, base, version, flags, parameters) extern int symbol parameters;
CUDA_FUNCTIONS(DECLARE)
static void *find_linked(const char *symbol, const char *base, int version, u64 flags) {
    (void)base, (void)version, (void)flags;
#define MATCH(symbol_, base_, version_, flags_, parameters) \
    if (!strcmp(symbol, #symbol_)) return (void *)symbol_;
    CUDA_FUNCTIONS(MATCH)
    return NULL;
}
#endif

static void *find_versioned(const char *symbol, const char *base, int version, u64 flags) {
    (void)base, (void)version, (void)flags;
    return dlvsym(driver, symbol, "ANY");
}
static void *find_default(const char *symbol, const char *base, int version, u64 flags) {
    (void)base, (void)version, (void)flags;
    return dlsym(RTLD_DEFAULT, symbol);
}
static void *find_default_versioned(const char *symbol, const char *base, int version, u64 flags) {
    (void)base, (void)version, (void)flags;
    return dlvsym(RTLD_DEFAULT, symbol, "ANY");
}
static void *find_next(const char *symbol, const char *base, int version, u64 flags) {
    (void)base, (void)version, (void)flags;
    return dlsym(RTLD_NEXT, symbol);
}

static int (*four)(const char *, void **, int, u64);
static int (*five)(const char *, void **, int, u64, int *);

static void *find_by_four(const char *symbol, const char *base, int version, u64 flags) {
    (void)symbol;
    void *found = NULL;
    return four(base, &found, version, flags) == 0 ? found : NULL;
}
static void *find_by_five(const char *symbol, const char *base, int version, u64 flags) {
    (void)symbol;
    void *found = NULL;
    int status = -1;
    return five(base, &found, version, flags, &status) == 0 && status == 0 ? found : NULL;
}

static void *opened(const char *name, int mode) {
    void *found = dlopen(name, mode);
    if (!found) say("cannot open %s: %s", name, dlerror());
    return found;
}

// Opens the door. Returns null if there is no such door, or if it does not open.
static finder enter(const char *door, const char *path) {
    if (!strcmp(door, "noload")) {
        say("before loading: %s", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) ? "found" : "not found");
        opened("libcuda.so.1", RTLD_NOW);
        driver = opened("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        return driver ? find_in_driver : NULL;
    }
#ifdef LINKED
    if (!strcmp(door, "linked")) return find_linked;
    if (!strcmp(door, "linked_default")) return find_default;
    if (!strcmp(door, "linked_default_versioned")) return find_default_versioned;
    if (!strcmp(door, "linked_next")) return find_next;
    if (!strcmp(door, "linked_main")) return (driver = opened(NULL, RTLD_NOW)) ? find_in_driver : NULL;
    if (!strcmp(door, "linked_four")) return four = cuGetProcAddress, find_by_four;
    if (!strcmp(door, "linked_five")) return five = cuGetProcAddress_v2, find_by_five;
    return NULL;
#endif
    if (!strcmp(door, "dlmopen") || !strcmp(door, "second")) {
        if (!strcmp(door, "second")) opened("libcuda.so.1", RTLD_NOW);
        driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
        if (!driver) say("cannot open: %s", dlerror());
        return driver ? find_in_driver : NULL;
    }
    int mode = RTLD_NOW | (strstr(door, "global") ? RTLD_GLOBAL : 0) | (strstr(door, "deepbind") ? RTLD_DEEPBIND : 0);
    driver = opened(strstr(door, "absolute") ? path : strstr(door, "unversioned") ? "libcuda.so" : "libcuda.so.1", mode);
    if (!driver) return NULL;
    if (!strcmp(door, "global_default")) return find_default;
    if (!strcmp(door, "global_next")) return find_next;
    if (!strcmp(door, "global_main")) return (driver = opened(NULL, RTLD_NOW)) ? find_in_driver : NULL;
    if (!strcmp(door, "dlvsym")) return find_versioned;
    *(void **)&four = dlsym(driver, "cuGetProcAddress");
    *(void **)&five = dlsym(driver, "cuGetProcAddress_v2");
    if (!strcmp(door, "four_by_itself")) *(void **)&four = find_by_four(NULL, "cuGetProcAddress", 11030, 0);
    if (!strcmp(door, "five_by_itself")) *(void **)&five = find_by_five(NULL, "cuGetProcAddress", 12000, 0);
    if (!strcmp(door, "five_by_four")) *(void **)&five = find_by_four(NULL, "cuGetProcAddress", 12000, 0);
    if (!strncmp(door, "four", 4)) return four ? find_by_four : NULL;
    if (!strncmp(door, "five", 4)) return five ? find_by_five : NULL;
    return find_in_driver;
}

static void fill(const struct family *family, u64 quota) {
    size_t left = SENTINEL, total = SENTINEL;
    mark(0), mark(1);
    int take = family->take(quota, 0);
    int over = family->take(family->step, 1);
    int clean = untouched(1);
    int info = cu.cuMemGetInfo_v2(&left, &total);
    int give = family->give(0);
    int again = family->take(quota, 0);
    int last = family->give(0);
    if (over == 0) family->give(1);
    say("%s: take %d, one more %d (%s), info %d left %zu, give %d, again %d, give %d", family->name, take, over,
        clean ? "untouched" : "written", info, left, give, again, last);
}

static void sizes(void) {
    size_t total = 0, left = 0, whole = 0;
    unsigned narrow_total[2] = {NARROW_SENTINEL, NARROW_SENTINEL}, narrow[4];
    memset(narrow, 0xa5, sizeof narrow);
    int first = cu.cuDeviceTotalMem_v2(&total, 0);
    int second = cu.cuMemGetInfo_v2(&left, &whole);
    int third = cu.cuDeviceTotalMem(narrow_total, 0);
    int fourth = cu.cuMemGetInfo(narrow, narrow + 2);
    say("sizes: %d %d %d %d", first, second, third, fourth);
    say("device %zu, whole %zu, left %zu", total, whole, left);
    say("narrow device %u, whole %u, left %u, neighbours %s", narrow_total[0], narrow[2], narrow[0],
        narrow_total[1] == NARROW_SENTINEL && narrow[1] == NARROW_SENTINEL && narrow[3] == NARROW_SENTINEL
            ? "untouched" : "written");
}

int main(int count, char **words) {
    if (count < 3) return 2;
    u64 quota = number(words[2]);
    finder find = enter(words[1], count > 3 ? words[3] : "");
    if (!find) return say("the door is shut"), 3;
    find_all(find);
#define SERVER(symbol, base, version, flags, parameters) say(#symbol " by %s", server_of((void *)cu.symbol));
    CUDA_FUNCTIONS(SERVER)
    if (!quota) return 0;
    void *context = NULL;
    int first = cu.cuInit(0);
    int second = cu.cuDevicePrimaryCtxRetain(&context, 0);
    int third = cu.cuCtxSetCurrent(context);
    int fourth = cu.cuStreamCreate(&stream, 0);
    say("start %d %d %d %d", first, second, third, fourth);
    for (int i = 0; i < FAMILIES; i++) fill(&families[i], quota);
    sizes();
    return 0;
}
