// late SECONDS: linked with the driver; launches kernels of 400 us as fast as it can. Prints the number of launches that returned
// within the first second, and the longest of them in milliseconds.
#include "host.h"

extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static const char image[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k_spin_400000ns() { ret; }\n";

int main(int count, char **words) {
    void *context = NULL, *module = NULL, *kernel = NULL;
    u64 seconds = count > 1 ? number(words[1]) : 1;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    if (cuModuleLoadData(&module, image) || cuModuleGetFunction(&kernel, module, "k_spin_400000ns")) return 3;
    u64 began = now(), launches = 0, longest = 0;
    for (u64 last = began; last < began + seconds * 1000000000;) {
        if (cuLaunchKernel(kernel, 264, 1, 1, 1024, 1, 1, 0, NULL, NULL, NULL)) return 4;
        u64 took = now() - last;
        last += took;
        if (took > longest) longest = took;
        if (last < began + 1000000000) launches++;
    }
    int (*wrapped)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "wrapped_launches");
    say("wrapped: %s", wrapped && wrapped() > 2 ? "yes" : "no");
    say("first second %llu launches", launches);
    say("longest %llu ms", longest / 1000000);
    return 0;
}
