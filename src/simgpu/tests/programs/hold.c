/* Holds memory of every kind, prints that it does, and waits until it is killed. */
#include <signal.h>
#include <sys/prctl.h>
#include "driver.h"

int main(void) {
    ptr p; size_t pitch; handle s, a; uint64_t h; memory_props props = {.kind = 1, .where = {1, 0}}; array_desc desc = {256, 256, 0, 0x20, 1, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no process behind */
    start(); OK(cuStreamCreate(&s, 0)); OK(cuMemAlloc_v2(&p, 123456)); OK(cuMemAllocPitch_v2(&p, &pitch, 100, 100, 4));
    OK(cuMemAllocManaged(&p, 5000, 1)); OK(cuMemCreate(&h, 2 * MIB, &props, 0)); OK(cuMemAllocAsync(&p, 1000, s)); OK(cuArray3DCreate_v2(&a, &desc));
    for (int i = 0; i < 1000; i++) launch(kernel("spin_20ms"), s);
    puts("held"); fflush(stdout); for (;;) pause();
}
