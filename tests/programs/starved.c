// A program whose memory runs out after it has initialised the driver. `starved SPARE [MANY]` leaves SPARE bytes of address space
// (`-` for no limit), and makes MANY allocations. With `threads` in place of SPARE it may start no thread from then on, by
// RLIMIT_NPROC. It does a little of everything, accepts each status, and prints that it came to its end.
#include "host.h"
#include <linux/capability.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuDevicePrimaryCtxRelease_v2(int);
extern int cuCtxSetCurrent(void *), cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *);
extern int cuCtxSynchronize(void), cuMemGetInfo_v2(size_t *, size_t *);
extern int cuMemAlloc_v2(u64 *, size_t), cuMemFree_v2(u64), cuMemAllocManaged(u64 *, size_t, unsigned);
extern int cuMemAllocPitch_v2(u64 *, size_t *, size_t, size_t, unsigned);
extern int cuMemAllocAsync(u64 *, size_t, void *), cuMemFreeAsync(u64, void *), cuStreamCreate(void **, unsigned);
extern int cuStreamSynchronize(void *), cuStreamDestroy_v2(void *);
extern int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
extern int cuModuleUnload(void *), cuLibraryUnload(void *);
extern int cuLibraryLoadData(void **, const void *, void *, void *, unsigned, void *, void *, unsigned);
extern int cuLibraryGetKernel(void **, void *, const char *);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                          void **);
extern int cuMemCreate(u64 *, size_t, const struct allocation *, u64), cuMemRelease(u64);

static const char code[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                           ".visible .global .align 4 .b8 table[4194304];\n.visible .entry spin_20us() { ret; }\n";

static void *nothing(void *unused) { return unused; }

// RLIMIT_NPROC does not bind root, so root becomes another user, who may still open root's files but start no thread.
static int give_up_threads(void) {
    struct rlimit none = {0, 0};
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (setrlimit(RLIMIT_NPROC, &none)) return 0;
    if (geteuid() == 0) {
        if (setresuid(65534, 0, 0) || syscall(SYS_capget, &header, data)) return 0;
        data[0].effective &= ~(1u << CAP_SYS_ADMIN | 1u << CAP_SYS_RESOURCE);
        if (syscall(SYS_capset, &header, data)) return 0;
    }
    pthread_t thread;
    return pthread_create(&thread, NULL, nothing, NULL) != 0;
}

// Returns the bytes of address space that the process has.
static u64 mapped(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1 || fclose(file)) exit(3);
    return pages * (u64)sysconf(_SC_PAGESIZE);
}

int main(int words, char **word) {
    enum { MOST = 1 << 20, HUGE = 1 << 30 };
    static u64 memory[MOST];
    static int refused[MOST];
    void *primary = NULL, *own = NULL, *stream = NULL, *module = NULL, *library = NULL, *kernel = NULL, *function = NULL;
    size_t free = 0, total = 0, pitch = 0;
    u64 other = 0;
    if (words < 2) return 2;
    int many = words > 2 ? atoi(word[2]) : 400;
    if (many > MOST) return 2;
    int init = cuInit(0);
    if (!strcmp(word[1], "threads")) {
        if (!give_up_threads()) return 4;
    } else if (strcmp(word[1], "-")) {
        struct rlimit limit;
        getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = mapped() + strtoull(word[1], NULL, 0);
        if (setrlimit(RLIMIT_AS, &limit)) return 4;
    }
    int retained = init ? init : cuDevicePrimaryCtxRetain(&primary, 0);
    if (retained == 0) {
        cuCtxSetCurrent(primary);
        for (int i = 0; i < many; i++) refused[i] = cuMemAlloc_v2(&memory[i], i % 50 == 49 ? HUGE : 1000);
        if (cuMemAllocManaged(&other, 5000, 1) == 0) cuMemFree_v2(other);
        if (cuMemAllocPitch_v2(&other, &pitch, 1000, 10, 4) == 0) cuMemFree_v2(other);
        struct allocation wanted = {.kind = PINNED, .location = ON_DEVICE};
        if (cuMemCreate(&other, 2 << 20, &wanted, 0) == 0) cuMemRelease(other);
        if (cuStreamCreate(&stream, 1) == 0) {
            if (cuMemAllocAsync(&other, 3 << 20, stream) == 0) cuMemFreeAsync(other, stream);
            cuStreamSynchronize(stream);
        }
        if (cuModuleLoadData(&module, code) == 0 && cuModuleGetFunction(&function, module, "spin_20us") == 0)
            for (int i = 0; i < 50; i++) cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, i % 2 ? stream : NULL, NULL, NULL);
        if (cuLibraryLoadData(&library, code, 0, 0, 0, 0, 0, 0) == 0) {
            if (cuLibraryGetKernel(&kernel, library, "spin_20us") == 0)
                cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
            cuCtxSynchronize();
            cuLibraryUnload(library);
        }
        cuMemGetInfo_v2(&free, &total);
        if (cuCtxCreate_v2(&own, 0, 0) == 0) {
            cuMemAlloc_v2(&other, 5 << 20);
            cuCtxDestroy_v2(own);
        }
        cuCtxSetCurrent(primary);
        if (module) cuModuleUnload(module);
        for (int i = 0; i < many; i += 2)
            if (refused[i] == 0) cuMemFree_v2(memory[i]);
        if (stream) cuStreamDestroy_v2(stream);
        cuDevicePrimaryCtxRelease_v2(0);
    }
    // Writes without the C library's buffers, which need memory.
    static const char end[] = "at the end\n";
    return write(STDOUT_FILENO, end, sizeof end - 1) == sizeof end - 1 ? 0 : 5;
}
