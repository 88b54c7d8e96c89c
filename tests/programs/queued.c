// Memory in stream order: the caller gets it at once and does not wait for earlier work of the stream.
#include "host.h"

enum { NOT_READY = 600 };

static const char image[] = ".version 8.0\n.target sm_90\n.visible .entry spin_300ms() { ret; }\n";

int main(void) {
    void *module = NULL, *kernel = NULL, *stream = NULL;
    u64 address = 0;
    if (!start()) return 3;
    int (*load)(void **, const void *), (*find)(void **, void *, const char *), (*query)(void *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                  void **);
    *(void **)&load = dlsym(driver, "cuModuleLoadData");
    *(void **)&find = dlsym(driver, "cuModuleGetFunction");
    *(void **)&launch = dlsym(driver, "cuLaunchKernel");
    *(void **)&query = dlsym(driver, "cuStreamQuery");
    int made = cu.cuStreamCreate(&stream, 0) || load(&module, image) || find(&kernel, module, "spin_300ms");
    int launched = launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    int take = cu.cuMemAllocAsync(&address, 4096, stream);
    const char *state = query(stream) == NOT_READY ? "still runs" : "is done";
    say("made %d, launched %d, take %d, the kernel %s", made, launched, take, state);
    return 0;
}
