// A program whose limit cannot be enforced.
#include "host.h"

int main(void) {
    void *context = (void *)5, *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    u64 address = 5;
    int version = 0, devices = 5;
    if (!open_driver() || !library) return say("no driver"), 3;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*flags)(unsigned) = (int (*)(unsigned))dlsym(library, "nvmlInitWithFlags");
    say("version %d", cu.cuDriverGetVersion(&version));
    say("init %d", cu.cuInit(0));
    say("init again %d", cu.cuInit(0));
    say("retain %d", cu.cuDevicePrimaryCtxRetain(&context, 0));
    int take = cu.cuMemAlloc_v2(&address, 4096);
    say("take %d, %s", take, address == 5 || !address ? "nothing" : "something");
    say("count %d", cu.cuDeviceGetCount(&devices));
    say("nvml %d", init());
    say("nvml with flags %d", flags(0));
    return 0;
}
