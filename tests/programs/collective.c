// Ranks that wait for each other on their GPUs.
//
// collective DEVICES STEPS KERNEL KERNELS MEETINGS TOGETHER [LATE [RANKS]]: there is a rank for each device. In each step a rank
// does this MEETINGS times: it launches KERNELS kernels of length KERNEL, and then one that runs until those of TOGETHER ranks
// run. Then it waits for the end. With TOGETHER of 1 no rank waits for another. On the second device a kernel of length LATE
// comes before the last step, and the rank waits for it. Ranks are threads, or with `processes` processes. With `apart` each
// process sees only its own device. With `graphs` the kernels before a wait are launched as a graph. Prints the time of all
// steps, and the time of the last step of the first device.
#include "launches.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { MOST = 8, MS = 1000000, RELAXED = 2 };

static int devices, steps, kernels, meetings, together, processes, apart, graphs;
static const char *length, *late;
static int (*launch) KERNEL_PARAMETERS;
static int (*launch_graph)(void *, void *);

// State that all ranks share.
static struct {
    pthread_barrier_t barrier;
    u64 took[MOST], last;
} *all;

// Launches the kernels of a step.
static int submit(void *compute, void *meet, void *own) {
    int failed = 0;
    for (int meeting = 0; meeting < meetings; meeting++) {
        for (int i = 0; i < kernels; i++) failed += launch(compute, 1, 1, 1, 32, 1, 1, 0, own, NULL, NULL) != 0;
        failed += launch(meet, together, 1 + processes, 1, 32, 1, 1, 0, own, NULL, NULL) != 0;
    }
    return failed;
}

// Runs all steps of one rank. All ranks begin the last step together, so that its time shows the effect of the late kernel alone.
static void *rank(void *number) {
    int self = (int)(long)number, failed = 0;
    char text[512], name[64], of_late[64];
    void *current = NULL, *own = NULL, *code = NULL, *compute = NULL, *meet = NULL, *before = NULL, *whole = NULL;
    snprintf(name, sizeof name, "spin_%s", length);
    snprintf(of_late, sizeof of_late, "late_spin_%s", late);
    snprintf(text, sizeof text,
             ".version 8.0\n.target sm_80\n.visible .entry %s() { ret; }\n.visible .entry meet_spin_50us() { ret; }\n"
             ".visible .entry %s() { ret; }\n",
             name, of_late);
    failed += cu.cuDevicePrimaryCtxRetain(&current, apart ? 0 : self) != 0 || cu.cuCtxSetCurrent(current) != 0;
    failed += cu.cuStreamCreate(&own, NON_BLOCKING) != 0 || gpu.cuModuleLoadData(&code, text) != 0;
    failed += gpu.cuModuleGetFunction(&compute, code, name) != 0;
    failed += gpu.cuModuleGetFunction(&meet, code, "meet_spin_50us") != 0;
    failed += gpu.cuModuleGetFunction(&before, code, of_late) != 0;
    if (graphs) {
        failed += gpu.cuStreamBeginCapture_v2(own, RELAXED) != 0 || submit(compute, meet, own);
        failed += gpu.cuStreamEndCapture(own, &whole) != 0 || gpu.cuGraphInstantiateWithFlags(&whole, whole, 0) != 0;
    }
    pthread_barrier_wait(&all->barrier);
    u64 began = now();
    for (int step = 0; step < steps; step++) {
        if (step == steps - 1) {
            pthread_barrier_wait(&all->barrier);
            if (self == 1 && *late != '0') {
                failed += launch(before, 1, 1, 1, 32, 1, 1, 0, own, NULL, NULL) != 0;
                failed += cu.cuStreamSynchronize(own) != 0;
            }
        }
        u64 step_began = now();
        failed += graphs ? launch_graph(whole, own) != 0 : submit(compute, meet, own);
        failed += cu.cuStreamSynchronize(own) != 0;
        if (self == 0) all->last = now() - step_began;
    }
    all->took[self] = now() - began;
    return (void *)(long)failed;
}

static int join_in(void) {
    if (!open_all("dlsym") || cu.cuInit(0)) return 0;
    *(void **)&launch = dlsym(driver, "cuLaunchKernel");
    *(void **)&launch_graph = dlsym(driver, "cuGraphLaunch");
    return 1;
}

static long run_threads(void) {
    pthread_t threads[MOST];
    long failed = 0;
    if (!join_in()) return 1;
    for (long i = 0; i < devices; i++) pthread_create(&threads[i], NULL, rank, (void *)i);
    for (int i = 0; i < devices; i++) {
        void *said = NULL;
        pthread_join(threads[i], &said);
        failed += (long)said;
    }
    return failed;
}

static long run_processes(void) {
    long failed = 0;
    for (long i = 0; i < devices; i++) {
        pid_t child = fork();
        failed += child < 0;
        if (child) continue;
        // A rank that fails leaves the others waiting for it, so all die with their parent or after 60 s.
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        char own[16];
        snprintf(own, sizeof own, "%ld", i);
        if (apart) setenv("CUDA_VISIBLE_DEVICES", own, 1);
        _exit(!join_in() || rank((void *)i));
    }
    for (int i = 0; i < devices; i++) {
        int status = 0;
        failed += wait(&status) < 0 || status != 0;
    }
    return failed;
}

int main(int count, char **words) {
    if (count < 7) return 2;
    devices = atoi(words[1]), steps = atoi(words[2]), length = words[3], kernels = atoi(words[4]);
    meetings = atoi(words[5]), together = atoi(words[6]), late = count > 7 ? words[7] : "0us";
    const char *ranks = count > 8 ? words[8] : "";
    apart = strstr(ranks, "apart") != NULL, processes = apart || strstr(ranks, "processes");
    graphs = strstr(ranks, "graphs") != NULL;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || devices > MOST) return 2;
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&all->barrier, &shared, devices);
    long failed = processes ? run_processes() : run_threads();
    u64 longest = 0;
    for (int i = 0; i < devices; i++) longest = all->took[i] > longest ? all->took[i] : longest;
    say("failed %ld", failed);
    say("took %llu ms", longest / MS);
    say("last %llu ms", all->last / MS);
    return failed != 0;
}
