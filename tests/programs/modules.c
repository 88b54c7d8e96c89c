// Code, limits and contexts under a quota. Reads orders and answers each with a status and the bytes that are left: `modules
// DOOR`, or `modules threads SIZE`.
#include "host.h"
#include <pthread.h>
#include <stdint.h>

enum { MOST = 64, RESOURCE = 144 };

#define FUNCTIONS(X) \
    X(cuModuleLoad, "cuModuleLoad", 2000, (void **, const char *)) \
    X(cuModuleLoadData, "cuModuleLoadData", 2000, (void **, const void *)) \
    X(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, (void **, const void *, unsigned, void *, void *)) \
    X(cuModuleLoadFatBinary, "cuModuleLoadFatBinary", 2000, (void **, const void *)) \
    X(cuModuleUnload, "cuModuleUnload", 2000, (void *)) \
    X(cuModuleGetFunction, "cuModuleGetFunction", 2000, (void **, void *, const char *)) \
    X(cuModuleGetGlobal_v2, "cuModuleGetGlobal", 3020, (u64 *, size_t *, void *, const char *)) \
    X(cuModuleEnumerateFunctions, "cuModuleEnumerateFunctions", 12040, (void **, unsigned, void *)) \
    X(cuFuncLoad, "cuFuncLoad", 12040, (void *)) \
    X(cuLibraryLoadData, "cuLibraryLoadData", 12000, \
      (void **, const void *, void *, void *, unsigned, void *, void *, unsigned)) \
    X(cuLibraryLoadFromFile, "cuLibraryLoadFromFile", 12000, \
      (void **, const char *, void *, void *, unsigned, void *, void *, unsigned)) \
    X(cuLibraryUnload, "cuLibraryUnload", 12000, (void *)) \
    X(cuLibraryGetModule, "cuLibraryGetModule", 12000, (void **, void *)) \
    X(cuLibraryGetKernel, "cuLibraryGetKernel", 12000, (void **, void *, const char *)) \
    X(cuLibraryEnumerateKernels, "cuLibraryEnumerateKernels", 12040, (void **, unsigned, void *)) \
    X(cuLibraryGetGlobal, "cuLibraryGetGlobal", 12000, (u64 *, size_t *, void *, const char *)) \
    X(cuLibraryGetManaged, "cuLibraryGetManaged", 12000, (u64 *, size_t *, void *, const char *)) \
    X(cuKernelGetFunction, "cuKernelGetFunction", 12000, (void **, void *)) \
    X(cuLaunchKernel, "cuLaunchKernel", 4000, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
      unsigned, void *, void **, void **)) \
    X(cuCtxSynchronize, "cuCtxSynchronize", 2000, (void)) \
    X(cuCtxSetLimit, "cuCtxSetLimit", 3010, (int, size_t)) \
    X(cuCtxGetLimit, "cuCtxGetLimit", 3010, (size_t *, int)) \
    X(cuGLCtxCreate_v2, "cuGLCtxCreate", 3020, (void **, unsigned, int)) \
    X(cuVDPAUCtxCreate_v2, "cuVDPAUCtxCreate", 3020, (void **, unsigned, int, unsigned, void *)) \
    X(cuDeviceGetDevResource, "cuDeviceGetDevResource", 12040, (int, void *, unsigned)) \
    X(cuDevSmResourceSplitByCount, "cuDevSmResourceSplitByCount", 12040, \
      (void *, unsigned *, const void *, void *, unsigned, unsigned)) \
    X(cuDevResourceGenerateDesc, "cuDevResourceGenerateDesc", 12040, (void **, void *, unsigned)) \
    X(cuGreenCtxCreate, "cuGreenCtxCreate", 12040, (void **, void *, int, unsigned)) \
    X(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040, (void *)) \
    X(cuCtxFromGreenCtx, "cuCtxFromGreenCtx", 12040, (void **, void *)) \
    X(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050, (void **, void *, unsigned, int))

#define FIELD(symbol, base, version, parameters) int(*symbol) parameters;
static struct {
    FUNCTIONS(FIELD)
    int (*cuGLCtxCreate)(void **, unsigned, int);
    int (*cuVDPAUCtxCreate)(void **, unsigned, int, unsigned, void *);
} gpu;

// Looks a function up by its exported name, or through one of the driver's own look-ups.
static void *look_up(const char *door, const char *symbol, const char *base, int version) {
    void *found = NULL;
    int told = 0;
    if (!strcmp(door, "first")) return cu.cuGetProcAddress(base, &found, version, 0) ? NULL : found;
    if (!strcmp(door, "second")) return cu.cuGetProcAddress_v2(base, &found, version, 0, &told) ? NULL : found;
    return dlsym(driver, symbol);
}

static void look_all_up(const char *door) {
#define LOOK_UP(symbol, base, version, parameters) gpu.symbol = look_up(door, #symbol, base, version);
    FUNCTIONS(LOOK_UP)
    gpu.cuGLCtxCreate = dlsym(driver, "cuGLCtxCreate");
    gpu.cuVDPAUCtxCreate = dlsym(driver, "cuVDPAUCtxCreate");
}

static u64 left(void) {
    size_t free = 0, total = 0;
    return cu.cuMemGetInfo_v2(&free, &total) == 0 ? free : 1;
}

// Returns code with one kernel and, if `size` is not zero, one variable.
static const char *code(u64 size) {
    static __thread char text[512];
    char variable[128] = "";
    if (size) snprintf(variable, sizeof variable, ".visible .global .align 4 .b8 table[%llu];\n", size);
    snprintf(text, sizeof text, ".version 8.0\n.target sm_80\n.address_size 64\n%s.visible .entry work() { ret; }\n", variable);
    return text;
}

static const char *file(u64 size) {
    FILE *stream = fopen("code.ptx", "w");
    if (!stream || fputs(code(size), stream) < 0 || fclose(stream)) exit(3);
    return "code.ptx";
}

// Returns a fat binary of which only the length is known.
static const void *fat(void) {
    static struct {
        unsigned magic;
        unsigned short version, header;
        u64 size;
        char content[64];
    } image = {0xba55ed50, 1, 16, 64, ""};
    static struct {
        unsigned magic, version;
        const void *data;
        void *rest;
    } wrapper = {0x466243b1, 1, &image, NULL};
    return &wrapper;
}

// Returns a fat binary with one image as text, plain or as a block of LZ4 that repeats nothing.
static const void *fat_with(const char *text, int packed) {
    static unsigned char image[4096];
    size_t length = strlen(text) + 1, at = 16 + 64;
    memset(image, 0, sizeof image);
    if (packed) {
        image[at++] = 0xf0;
        for (length -= 15; length >= 255; length -= 255) image[at++] = 255;
        image[at++] = length;
        length = strlen(text) + 1;
    }
    memcpy(image + at, text, length);
    u64 size = at + length - 80, padded = (size + 7) / 8 * 8, all = 64 + padded, flags = packed ? 0x2011 : 0x11;
    unsigned magic = 0xba55ed50, head = 64, capability = 80, short_size = size;
    unsigned short version = 1, header = 16, kind = 1;
    memcpy(image, &magic, 4), memcpy(image + 4, &version, 2), memcpy(image + 6, &header, 2), memcpy(image + 8, &all, 8);
    unsigned char *entry = image + 16;
    memcpy(entry, &kind, 2), memcpy(entry + 4, &head, 4), memcpy(entry + 8, &padded, 8);
    memcpy(entry + 16, &short_size, 4), memcpy(entry + 28, &capability, 4), memcpy(entry + 40, &flags, 8);
    u64 unpacked = length;
    memcpy(entry + 56, &unpacked, 8);
    return image;
}

static void *modules[MOST], *libraries[MOST], *contexts[MOST], *greens[MOST], *kernel, *function;
static u64 memory[MOST];
static int modules_made, libraries_made, contexts_made, greens_made, memory_made;

static int is(const char *order, const char *word) { return !strcmp(order, word); }

static int load(const char *how, u64 size) {
    void *sentinel = modules, **to = &modules[modules_made];
    *to = sentinel;
    int status = is(how, "file") ? gpu.cuModuleLoad(to, file(size))
               : is(how, "data") ? gpu.cuModuleLoadData(to, code(size))
               : is(how, "ex") ? gpu.cuModuleLoadDataEx(to, code(size), 0, NULL, NULL)
               : is(how, "text") ? gpu.cuModuleLoadFatBinary(to, code(size))
                                 : gpu.cuModuleLoadFatBinary(to, fat());
    if (status == 0) modules_made++;
    else if (*to != sentinel) return 1000 + status;
    return status;
}

static int library(const char *how, u64 size) {
    void *sentinel = libraries, **to = &libraries[libraries_made];
    *to = sentinel;
    int status = is(how, "file") ? gpu.cuLibraryLoadFromFile(to, file(size), 0, 0, 0, 0, 0, 0)
               : is(how, "fat") || is(how, "packed")
                   ? gpu.cuLibraryLoadData(to, fat_with(code(size), is(how, "packed")), 0, 0, 0, 0, 0, 0)
                   : gpu.cuLibraryLoadData(to, code(size), 0, 0, 0, 0, 0, 0);
    if (status == 0) libraries_made++;
    else if (*to != sentinel) return 1000 + status;
    return status;
}

// Makes a call that may load code that was handed in before, on the newest module or library.
static int use(const char *how) {
    void *module = modules[modules_made ? modules_made - 1 : 0], *library = libraries[libraries_made ? libraries_made - 1 : 0];
    u64 address;
    size_t bytes;
    if (is(how, "function")) return gpu.cuModuleGetFunction(&function, module, "work");
    if (is(how, "enumerate")) return gpu.cuModuleEnumerateFunctions(&function, 1, module);
    if (is(how, "load")) return gpu.cuFuncLoad(function);
    if (is(how, "global")) return gpu.cuModuleGetGlobal_v2(&address, &bytes, module, "table");
    if (is(how, "kernel")) return gpu.cuLibraryGetKernel(&kernel, library, "work");
    if (is(how, "kernels")) return gpu.cuLibraryEnumerateKernels(&kernel, 1, library);
    if (is(how, "nokernels")) return gpu.cuLibraryEnumerateKernels((void **)8, 0, library);
    if (is(how, "kernelfunction")) return gpu.cuKernelGetFunction(&function, kernel);
    if (is(how, "module")) return gpu.cuLibraryGetModule(&modules[modules_made], library);
    if (is(how, "libraryglobal")) return gpu.cuLibraryGetGlobal(&address, &bytes, library, "table");
    if (is(how, "librarymanaged")) return gpu.cuLibraryGetManaged(&address, &bytes, library, "table");
    if (is(how, "launch")) return gpu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    return 999;
}

static int context(const char *how) {
    void *sentinel = contexts, **to = &contexts[contexts_made];
    *to = sentinel;
    int status = is(how, "gl") ? gpu.cuGLCtxCreate(to, 0, 0)
               : is(how, "gl2") ? gpu.cuGLCtxCreate_v2(to, 0, 0)
               : is(how, "vdpau") ? gpu.cuVDPAUCtxCreate(to, 0, 0, 0, NULL)
               : is(how, "vdpau2") ? gpu.cuVDPAUCtxCreate_v2(to, 0, 0, 0, NULL)
                                   : cu.cuCtxCreate_v2(to, 0, 0);
    if (status == 0) contexts_made++;
    else if (*to != sentinel) return 1000 + status;
    return status;
}

static int green(void) {
    char device[RESOURCE], parts[2 * RESOURCE], rest[RESOURCE];
    void *descriptor, *sentinel = greens;
    unsigned count = 2;
    int status = gpu.cuDeviceGetDevResource(0, device, 1);
    if (!status) status = gpu.cuDevSmResourceSplitByCount(parts, &count, device, rest, 0, 8);
    if (!status) status = gpu.cuDevResourceGenerateDesc(&descriptor, parts, 1);
    if (status || count != 2) return 2000 + status;
    greens[greens_made] = sentinel;
    status = gpu.cuGreenCtxCreate(&greens[greens_made], descriptor, 0, 1);
    if (status == 0) greens_made++;
    else if (greens[greens_made] != sentinel) return 1000 + status;
    return status;
}

static int current_green(void) {
    void *view;
    int status = gpu.cuCtxFromGreenCtx(&view, greens[greens_made - 1]);
    return status ? status : cu.cuCtxSetCurrent(view);
}

static int managed(u64 size) {
    return cu.cuMemAllocManaged(&memory[memory_made++], size, 1);
}

static int alloc(u64 size) {
    int status = cu.cuMemAlloc_v2(&memory[memory_made], size);
    if (status == 0) memory_made++;
    return status;
}

// Makes an executable graph that allocates memory when it runs.
static int instantiate(u64 size) {
    int (*create)(void **, unsigned) = dlsym(driver, "cuGraphCreate");
    int (*add)(void **, void *, void **, size_t, struct allocation_node *) = dlsym(driver, "cuGraphAddMemAllocNode");
    int (*make)(void **, void *, u64) = dlsym(driver, "cuGraphInstantiateWithFlags");
    struct allocation_node wanted = {.pool = {.kind = PINNED, .location = ON_DEVICE}, .bytes = size};
    void *graph, *node, *executable;
    int status = create(&graph, 0);
    if (!status) status = add(&node, graph, NULL, 0, &wanted);
    return status ? status : make(&executable, graph, 0);
}

struct handle { char bytes[64]; };

// Three steps: lets another process use new memory, by a file; uses memory of another process; ends that use.
static int lend(u64 size) {
    int (*get)(struct handle *, u64) = dlsym(driver, "cuIpcGetMemHandle");
    struct handle handle;
    int status = alloc(size);
    if (!status) status = get(&handle, memory[memory_made - 1]);
    FILE *stream = fopen("handle", "w");
    if (!stream || fwrite(&handle, sizeof handle, 1, stream) != 1 || fclose(stream)) exit(3);
    return status;
}

static u64 borrowed;

static int borrow(void) {
    int (*open)(u64 *, struct handle, unsigned) = dlsym(driver, "cuIpcOpenMemHandle_v2");
    struct handle handle;
    FILE *stream = fopen("handle", "r");
    if (!stream || fread(&handle, sizeof handle, 1, stream) != 1 || fclose(stream)) exit(3);
    return open(&borrowed, handle, 1);
}

static int restore(void) {
    int (*close)(u64) = dlsym(driver, "cuIpcCloseMemHandle");
    return close(borrowed);
}

static int obey(const char *verb, const char *how, u64 number) {
    static void *primary;
    void *stream;
    if (is(verb, "load")) return load(how, number);
    if (is(verb, "unload")) return gpu.cuModuleUnload(modules[--modules_made]);
    if (is(verb, "library")) return library(how, number);
    if (is(verb, "unlibrary")) return gpu.cuLibraryUnload(libraries[--libraries_made]);
    if (is(verb, "use")) return use(how);
    if (is(verb, "limit")) return gpu.cuCtxSetLimit(atoi(how), number);
    if (is(verb, "context")) return context(how);
    if (is(verb, "end")) return cu.cuCtxDestroy_v2(contexts[--contexts_made]);
    if (is(verb, "current")) return cu.cuCtxSetCurrent(is(how, "primary") ? primary : contexts[number]);
    if (is(verb, "retain")) return cu.cuDevicePrimaryCtxRetain(&primary, 0);
    if (is(verb, "release")) return cu.cuDevicePrimaryCtxRelease_v2(0);
    if (is(verb, "reset")) return cu.cuDevicePrimaryCtxReset_v2(0);
    if (is(verb, "green")) return is(how, "current") ? current_green() : green();
    if (is(verb, "ungreen")) return gpu.cuGreenCtxDestroy(greens[--greens_made]);
    if (is(verb, "stream")) return gpu.cuGreenCtxStreamCreate(&stream, greens[greens_made - 1], 1, 0);
    if (is(verb, "alloc")) return alloc(number);
    if (is(verb, "manage")) return managed(number);
    if (is(verb, "free")) return cu.cuMemFree_v2(memory[--memory_made]);
    if (is(verb, "instantiate")) return instantiate(number);
    if (is(verb, "lend")) return lend(number);
    if (is(verb, "borrow")) return borrow();
    if (is(verb, "restore")) return restore();
    if (is(verb, "wait")) return gpu.cuCtxSynchronize();
    if (is(verb, "left")) return 0;
    return 998;
}

static int orders(void) {
    char line[256];
    say("init %d", cu.cuInit(0));
    while (fgets(line, sizeof line, stdin)) {
        char verb[32] = "", how[32] = "-";
        u64 size = 0;
        if (sscanf(line, "%31s %31s %llu", verb, how, &size) == 2) size = number(how);
        int status = obey(verb, how, size);
        say("%d %llu", status, left());
    }
    return 0;
}

// Threads that load and unload code, and threads that take and free memory.
static void *context_of_all;
static u64 size_of_all;

static void *loading(void *argument) {
    (void)argument;
    cu.cuCtxSetCurrent(context_of_all);
    intptr_t loaded = 0;
    for (int round = 0; round < 200; round++) {
        void *module;
        int status = gpu.cuModuleLoadData(&module, code(size_of_all));
        if (status == 0 && gpu.cuModuleUnload(module) == 0) loaded++;
        else if (status != 0 && status != 2) return (void *)-1;
    }
    return (void *)loaded;
}

static void *taking(void *argument) {
    u64 size = size_of_all * (1 + (uintptr_t)argument), address;
    cu.cuCtxSetCurrent(context_of_all);
    for (int round = 0; round < 2000; round++) {
        int status = cu.cuMemAlloc_v2(&address, size);
        if (status == 0) cu.cuMemFree_v2(address);
        else if (status != 2) return (void *)-1;
    }
    return (void *)1;
}

static int threads(void) {
    enum { THREADS = 8 };
    pthread_t started[THREADS];
    intptr_t sum = 0;
    int init = cu.cuInit(0), retain = cu.cuDevicePrimaryCtxRetain(&context_of_all, 0);
    say("init %d, retain %d", init, retain);
    cu.cuCtxSetCurrent(context_of_all);
    u64 before = left();
    for (intptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&started[i], NULL, i % 2 ? taking : loading, (void *)i)) return 3;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(started[i], &result);
        if ((intptr_t)result < 0) sum = -1000000;
        else if (i % 2 == 0) sum += (intptr_t)result;
    }
    // A still moment, in which the library measures the memory that it could not measure before.
    void *module;
    int status = gpu.cuModuleLoadData(&module, code(size_of_all)), unload = gpu.cuModuleUnload(module);
    say("last %d %d, loaded %s, left %s", status, unload, sum > 0 ? "some" : "none",
        left() == before ? "as before" : "otherwise");
    say("%llu %llu", before, left());
    return 0;
}

int main(int count, char **words) {
    if (count < 2 || !open_driver()) return 2;
    look_all_up(words[1]);
    if (count < 3) return orders();
    size_of_all = number(words[2]);
    return threads();
}
