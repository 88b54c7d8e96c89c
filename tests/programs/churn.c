// A program that may end at any moment, in several ways.
//
// churn SEED THREADS CALLS [HOW]: says "ready". Then its threads act at random: they take and free memory of several kinds,
// launch kernels of 50 us to 2 ms, wait, make streams and fork children. After CALLS calls of each thread the program ends: with
// HOW=0 by returning, 1 by _exit, 2 by abort, 3 by executing itself with HOW=0. An unexpected status goes to standard error and
// ends the program with 3; "out of memory" is expected for memory.
#include "chance.h"
#include "launches.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { KEPT = 6, LARGEST = 6 << 20, KERNELS = 3, GRANULE = 2 << 20 };

struct piece {
    enum { NONE, LINEAR, POOLED, PHYSICAL } kind;
    u64 address;
};

static int (*launch) KERNEL_PARAMETERS;
static void *kernels[KERNELS];
static u64 calls;

static void must(int status, const char *what) {
    if (!status) return;
    fprintf(stderr, "churn: %s returned %d\n", what, status);
    _exit(3);
}

// Memory may be short. Any other failure is unexpected.
static int got(int status, const char *what) {
    if (status != 2) must(status, what);
    return !status;
}

static void take(struct piece *piece, u64 *chance, void *on) {
    struct allocation wanted = {.kind = PINNED, .location = ON_DEVICE};
    u64 bytes = 1 + draw(chance, LARGEST);
    switch (draw(chance, 4)) {
        case 0:
            if (got(cu.cuMemAllocAsync(&piece->address, bytes, on), "cuMemAllocAsync")) piece->kind = POOLED;
            break;
        case 1:
            if (got(cu.cuMemCreate(&piece->address, GRANULE, &wanted, 0), "cuMemCreate")) piece->kind = PHYSICAL;
            break;
        default:
            if (got(cu.cuMemAlloc_v2(&piece->address, bytes), "cuMemAlloc_v2")) piece->kind = LINEAR;
    }
}

static void give(struct piece *piece, void *on) {
    switch (piece->kind) {
        case POOLED: must(cu.cuMemFreeAsync(piece->address, on), "cuMemFreeAsync"); break;
        case PHYSICAL: must(cu.cuMemRelease(piece->address), "cuMemRelease"); break;
        case LINEAR: must(cu.cuMemFree_v2(piece->address), "cuMemFree_v2"); break;
        case NONE: break;
    }
    piece->kind = NONE;
}

// Forks a child that uses no GPU, like those of subprocess and of data loaders.
static void have_child(void) {
    pid_t child = fork();
    if (child < 0) return;
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
}

static void *live(void *seed) {
    u64 chance = (u64)(size_t)seed;
    struct piece kept[KEPT] = {{0}};
    void *on = NULL;
    must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    if (!got(cu.cuStreamCreate(&on, NON_BLOCKING), "cuStreamCreate")) return NULL;
    for (u64 done = 0; !calls || done < calls; done++) {
        u64 what = draw(&chance, 100);
        struct piece *piece = &kept[draw(&chance, KEPT)];
        if (what < 50) {
            void *kernel = kernels[draw(&chance, KERNELS)];
            must(launch(kernel, 64, 1, 1, 256, 1, 1, 0, on, NULL, NULL), "cuLaunchKernel");
        } else if (what < 85) {
            if (piece->kind == NONE) take(piece, &chance, on);
            else give(piece, on);
        } else if (what < 95) {
            must(cu.cuStreamSynchronize(on), "cuStreamSynchronize");
        } else if (what < 98) {
            void *other = NULL;
            if (got(cu.cuStreamCreate(&other, NON_BLOCKING), "cuStreamCreate")) {
                must(launch(kernels[0], 1, 1, 1, 32, 1, 1, 0, other, NULL, NULL), "cuLaunchKernel");
                must(gpu.cuStreamDestroy_v2(other), "cuStreamDestroy_v2");
            }
        } else if (what == 98) {
            have_child();
        }
    }
    return NULL;
}

static int can_start(void) {
    char text[512] = ".version 8.0\n.target sm_80\n", name[64];
    const char *times[KERNELS] = {"50us", "400us", "2ms"};
    must(cu.cuInit(0), "cuInit");
    if (!got(cu.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain")) return 0;
    must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int i = 0; i < KERNELS; i++)
        sprintf(text + strlen(text), ".visible .entry spin_%s() { ret; }\n", times[i]);
    if (!got(gpu.cuModuleLoadData(&module, text), "cuModuleLoadData")) return 0;
    for (int i = 0; i < KERNELS; i++) {
        sprintf(name, "spin_%s", times[i]);
        must(gpu.cuModuleGetFunction(&kernels[i], module, name), "cuModuleGetFunction");
    }
    return 1;
}

int main(int count, char **words) {
    pthread_t others[16];
    struct rlimit no_core = {0};
    if (count < 4) return 2;
    u64 seed = number(words[1]) << 8;
    int threads = number(words[2]), how = count > 4 ? number(words[4]) : 0;
    calls = number(words[3]);
    if (threads < 1 || threads > 16) return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    if (!open_all("dlsym")) return 2;
    *(void **)&launch = dlsym(driver, "cuLaunchKernel");
    if (can_start()) {
        say("ready");
        for (int i = 1; i < threads; i++)
            if (pthread_create(&others[i], NULL, live, (void *)(size_t)(seed + i))) return 2;
        live((void *)(size_t)seed);
        for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
    }
    char *again[] = {words[0], words[1], words[2], words[3], "0", NULL};
    if (how == 1) _exit(0);
    if (how == 2) abort();
    if (how == 3) execv("/proc/self/exe", again);
    return how == 3 ? 4 : 0;
}
