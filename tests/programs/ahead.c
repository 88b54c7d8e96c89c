// Prints the GPU work that is queued when a launch returns. The work is kernels of a given length, or a graph that takes this
// length only after a change. The change is an update (1), other parameters of its kernel (2), or a node that was off (3).
//   ahead LENGTH COUNT [WAY], with a length such as 15ms or 5us
#include "launches.h"

enum { MS = 1000000, KNOWN = 20 };

// `CUDA_KERNEL_NODE_PARAMS` of the driver API.
struct kernel_node {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra, *kernel, *context;
};

static int (*launch) KERNEL_PARAMETERS;
static int (*go)(void *, void *);
static void *made;

static int submit(void) {
    return made ? go(made, stream) : launch(work, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static int submit_and_wait(int times) {
    int failed = 0;
    for (int i = 0; i < times; i++) failed += submit() != 0 || gpu.cuCtxSynchronize() != 0;
    return failed;
}

// Makes a graph of short kernels that is known, and changes it so that it takes as long as `slow`.
static int change(int way, void *slow) {
    int (*update)(void *, void *, u64 *), (*set)(void *, void *, const struct kernel_node *);
    int (*enable)(void *, void *, unsigned), failed = 0;
    struct kernel_node node = {.function = slow, .grid = {1, 1, 1}, .block = {32, 1, 1}};
    size_t nodes = 2;
    u64 result[4] = {0};
    *(void **)&update = dlsym(driver, "cuGraphExecUpdate_v2");
    *(void **)&set = dlsym(driver, "cuGraphExecKernelNodeSetParams_v2");
    *(void **)&enable = dlsym(driver, "cuGraphNodeSetEnabled");
    if (way == 3) work = slow;
    void *graph = captured(1), *kernels[2] = {0};
    failed += gpu.cuGraphGetNodes(graph, kernels, &nodes) != 0 || nodes != 1;
    failed += gpu.cuGraphInstantiateWithFlags(&made, graph, 0) != 0;
    if (way == 3) failed += enable(made, kernels[0], 0) != 0;
    failed += submit_and_wait(KNOWN);
    work = slow;
    if (way == 1) failed += update(made, captured(1), result) != 0;
    if (way == 2) failed += set(made, kernels[0], &node) != 0;
    if (way == 3) failed += enable(made, kernels[0], 1) != 0;
    // The graph counts at its old cost until one launch has ended: at the latest while the second one runs.
    return failed + submit_and_wait(2);
}

int main(int count, char **words) {
    char *unit;
    long long most = 0, takes;
    int failed = 0, way = count > 3 ? atoi(words[3]) : 0;
    if (count < 3 || !open_all("dlsym") || !begin("100us")) return 3;
    takes = strtoll(words[1], &unit, 10) * (strcmp(unit, "us") ? MS : MS / 1000);
    launch = dlsym(driver, "cuLaunchKernel"), go = dlsym(driver, "cuGraphLaunch");
    alarm(60);
    if (way) {
        failed += change(way, kernel(words[1]));
    } else {
        work = kernel(words[1]);
        failed += submit_and_wait(KNOWN);
    }
    u64 began = now();
    for (int i = 1; i <= atoi(words[2]); i++) {
        failed += submit() != 0;
        long long queued = i * takes - (long long)(now() - began);
        if (queued > most) most = queued;
    }
    failed += gpu.cuCtxSynchronize() != 0;
    say("ahead %lld ms", most / MS);
    say("launches %lld", most / takes);
    say("failed %d", failed);
    return 0;
}
