/* Measures the time that the simulated GPU takes for each of many kernels, launched as fast as it accepts them. Prints one
 * line `kernel_of_TIME nanoseconds` for each length. The kernel's own time is part of it. */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

enum { SECOND = 1000000000 };

#define FIND(name) *(void **)&name = dlsym(library, #name)

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(void) {
    static const struct {
        const char *name, *time;
        int ns;
    } kernels[] = {{"spin_5us", "5us", 5000}, {"spin_20us", "20us", 20000}, {"spin_100us", "100us", 100000}, {"spin_1ms", "1ms", 1000000}};
    static const char image[] = ".version 8.0\n.target sm_90\n.visible .entry spin_5us() { ret; }\n"
        ".visible .entry spin_20us() { ret; }\n.visible .entry spin_100us() { ret; }\n.visible .entry spin_1ms() { ret; }\n";
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context, *module, *kernel, *stream;
    int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *);
    int (*cuModuleLoadData)(void **, const void *), (*cuModuleGetFunction)(void **, void *, const char *);
    int (*cuStreamCreate)(void **, unsigned), (*cuStreamSynchronize)(void *);
    int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    FIND(cuInit), FIND(cuDevicePrimaryCtxRetain), FIND(cuCtxSetCurrent), FIND(cuModuleLoadData);
    FIND(cuModuleGetFunction), FIND(cuStreamCreate), FIND(cuStreamSynchronize), FIND(cuLaunchKernel);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, image) || cuStreamCreate(&stream, 1)) return 1;
    for (int i = 0; i < 4; i++) {
        int warming = SECOND / 10 / kernels[i].ns, count = 10 * warming;
        double start = 0;
        if (cuModuleGetFunction(&kernel, module, kernels[i].name)) return 1;
        for (int j = -warming; j < count; j++) {
            if (j == 0) cuStreamSynchronize(stream), start = now();
            if (cuLaunchKernel(kernel, 8, 1, 1, 128, 1, 1, 0, stream, NULL, NULL)) return 1;
        }
        cuStreamSynchronize(stream);
        printf("kernel_of_%s %.1f\n", kernels[i].time, (now() - start) / count);
    }
    return 0;
}
