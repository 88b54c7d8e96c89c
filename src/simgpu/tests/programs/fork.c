/* A fork after the driver's start gives a child without a driver. A fork before the start gives a child with its own driver. */
#include <sys/wait.h>
#include "driver.h"

static int child(int want) {
    int status; pid_t pid = fork();
    if (pid == 0) { size_t a, b; handle c; _exit(cuInit(0) == want && cuMemGetInfo_v2(&a, &b) == (want ? 3 : 201) && cuCtxGetCurrent(&c) == want ? 0 : 1); }
    waitpid(pid, &status, 0); return status;
}

int main(void) {
    ptr p; SAME(child(0), 0);
    start(); OK(cuMemAlloc_v2(&p, MIB)); SAME(child(3), 0);
    OK(cuMemFree_v2(p)); SAME(held(), 300 * MIB);
    return 0;
}
