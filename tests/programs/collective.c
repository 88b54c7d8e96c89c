// Do ranks that wait for each other on their GPUs keep in step?
//
// collective DEVICES STEPS KERNEL KERNELS MEETINGS TOGETHER [LATE]: in each step a thread for each device launches so many
// kernels of this time and then one that runs until those of TOGETHER threads run, so many times, and waits for the end. With
// TOGETHER of 1 nobody waits for anybody. On the second device a kernel of the time LATE comes before the last step, and is
// waited for. Prints how long all took, and how long the first device's last step.
#include "launches.h"
#include <pthread.h>

enum { MOST = 8, MS = 1000000 };

static int devices, steps, kernels, meetings, together;
static const char *length, *late;
static int (*launch) KERNEL_PARAMETERS;
static u64 took[MOST], last;
static pthread_barrier_t all;

static void *rank(void *number) {
    int self = (int)(long)number, failed = 0;
    char text[512], name[64], of_late[64];
    void *current = NULL, *own = NULL, *code = NULL, *compute = NULL, *meet = NULL, *before = NULL;
    snprintf(name, sizeof name, "spin_%s", length);
    snprintf(of_late, sizeof of_late, "late_spin_%s", late);
    snprintf(text, sizeof text,
             ".version 8.0\n.target sm_80\n.visible .entry %s() { ret; }\n.visible .entry meet_spin_50us() { ret; }\n"
             ".visible .entry %s() { ret; }\n",
             name, of_late);
    failed += cu.cuDevicePrimaryCtxRetain(&current, self) != 0 || cu.cuCtxSetCurrent(current) != 0;
    failed += cu.cuStreamCreate(&own, NON_BLOCKING) != 0 || gpu.cuModuleLoadData(&code, text) != 0;
    failed += gpu.cuModuleGetFunction(&compute, code, name) != 0;
    failed += gpu.cuModuleGetFunction(&meet, code, "meet_spin_50us") != 0;
    failed += gpu.cuModuleGetFunction(&before, code, of_late) != 0;
    pthread_barrier_wait(&all);
    u64 began = now();
    for (int step = 0; step < steps; step++) {
        if (step == steps - 1) {
            pthread_barrier_wait(&all);
            if (self == 1 && *late != '0') {
                failed += launch(before, 1, 1, 1, 32, 1, 1, 0, own, NULL, NULL) != 0;
                failed += cu.cuStreamSynchronize(own) != 0;
            }
        }
        u64 step_began = now();
        for (int meeting = 0; meeting < meetings; meeting++) {
            for (int i = 0; i < kernels; i++) failed += launch(compute, 1, 1, 1, 32, 1, 1, 0, own, NULL, NULL) != 0;
            failed += launch(meet, together, 1, 1, 32, 1, 1, 0, own, NULL, NULL) != 0;
        }
        failed += cu.cuStreamSynchronize(own) != 0;
        if (self == 0) last = now() - step_began;
    }
    took[self] = now() - began;
    return (void *)(long)failed;
}

int main(int count, char **words) {
    pthread_t threads[MOST];
    long failed = 0;
    if (count < 7 || !open_all("dlsym") || cu.cuInit(0)) return 2;
    devices = atoi(words[1]), steps = atoi(words[2]), length = words[3], kernels = atoi(words[4]);
    meetings = atoi(words[5]), together = atoi(words[6]), late = count > 7 ? words[7] : "0us";
    *(void **)&launch = dlsym(driver, "cuLaunchKernel");
    pthread_barrier_init(&all, NULL, devices);
    for (long i = 0; i < devices; i++) pthread_create(&threads[i], NULL, rank, (void *)i);
    for (int i = 0; i < devices; i++) {
        void *said = NULL;
        pthread_join(threads[i], &said);
        failed += (long)said;
    }
    say("failed %ld", failed);
    for (int i = 1; i < devices; i++) took[0] = took[i] > took[0] ? took[i] : took[0];
    say("took %llu ms", took[0] / MS);
    say("last %llu ms", last / MS);
    return failed != 0;
}
