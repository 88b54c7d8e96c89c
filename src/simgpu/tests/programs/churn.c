/* Allocates and frees at random: as often as the first argument says, or until it is killed. */
#include <signal.h>
#include <sys/prctl.h>
#include "driver.h"

int main(int argc, char **argv) {
    ptr live[64] = {0}; unsigned seed = getpid(); long rounds = argc > 1 ? atol(argv[1]) : -1; uint64_t h; memory_props props = {.kind = 1, .where = {1, 0}};
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no process behind */
    handle c; int result = cuInit(0); if (result) return 3; result = cuCtxCreate_v2(&c, 0, 0); if (result == 2) return 0;
    for (long i = 0; i != rounds; i++) {
        ptr *p = &live[rand_r(&seed) % 64]; size_t size = (size_t)rand_r(&seed) % (64 * MIB) + 1;
        if (*p) { OK(cuMemFree_v2(*p)); *p = 0; }
        else { result = cuMemAlloc_v2(p, size); CHECK(result == 0 || (result == 2 && !*p)); }
        if (i % 7 == 0) { result = cuMemCreate(&h, 2 * MIB, &props, 0); CHECK(result == 0 || result == 2); if (!result) OK(cuMemRelease(h)); }
    }
    return 0;
}
