/* Clusters: the largest size, the number that runs at once, and the launches that the driver refuses. */
#include "driver.h"

typedef struct { unsigned id, padding, value[16]; } attribute;
typedef struct { unsigned grid[3], block[3], shared; handle stream; attribute *attributes; unsigned count; } config;
int cuLaunchKernelEx(const config *, handle, void **, void **);
int cuOccupancyMaxPotentialClusterSize(int *, handle, const config *), cuOccupancyMaxActiveClusters(int *, handle, const config *);
int cuFuncSetAttribute(handle, int, int), cuFuncGetAttribute(int *, int, handle);
enum { OTHER = 99, CLUSTER = 4, WIDTH = 11, HEIGHT = 12, DEPTH = 13, BEYOND_PORTABLE = 14, REFUSED = 912 };

static handle f;
static attribute chosen[2] = {{OTHER, 0, {7}}, {CLUSTER, 0, {1, 1, 1}}};
static config c = {{256, 1, 1}, {1024, 1, 1}, 0, NULL, chosen, 2};

static void cluster(unsigned width) { chosen[1].value[0] = width; }
static int active(void) { int n = -1; OK(cuOccupancyMaxActiveClusters(&n, f, &c)); return n; }
static int potential(void) { int n = -1; OK(cuOccupancyMaxPotentialClusterSize(&n, f, &c)); return n; }

int main(void) {
    int n = -1; start(); f = kernel("quick");

    /* A multiprocessor holds two blocks of 1024 threads. Places of a group that are too few for a cluster stay empty. */
    SAME(potential(), 8); cluster(2); SAME(active(), 132); cluster(8); SAME(active(), 32);
    c.shared = 200000; SAME(active(), 16); SAME(potential(), 8); c.shared = 0;
    OK(cuLaunchKernelEx(&c, f, NULL, NULL));

    /* Only functions that allow it have clusters of 16. No function has clusters of 32. */
    cluster(16); STATUS(REFUSED, cuOccupancyMaxActiveClusters(&n, f, &c)); STATUS(REFUSED, cuLaunchKernelEx(&c, f, NULL, NULL));
    OK(cuFuncSetAttribute(f, BEYOND_PORTABLE, 1)); SAME(potential(), 16); SAME(active(), 16); OK(cuLaunchKernelEx(&c, f, NULL, NULL));
    OK(cuFuncGetAttribute(&n, BEYOND_PORTABLE, f)); SAME(n, 1);
    cluster(32); STATUS(REFUSED, cuLaunchKernelEx(&c, f, NULL, NULL));

    /* A cluster must divide the grid, and the launch or the function must choose one. */
    cluster(3); STATUS(REFUSED, cuLaunchKernelEx(&c, f, NULL, NULL));
    cluster(0); STATUS(REFUSED, cuLaunchKernelEx(&c, f, NULL, NULL));
    c.count = 1; STATUS(1, cuOccupancyMaxActiveClusters(&n, f, &c)); SAME(potential(), 16); OK(cuLaunchKernelEx(&c, f, NULL, NULL));
    c.block[0] = 2048; STATUS(1, cuOccupancyMaxActiveClusters(&n, f, &c)); c.block[0] = 1024;
    STATUS(1, cuOccupancyMaxPotentialClusterSize(&n, f, NULL)); STATUS(400, cuOccupancyMaxPotentialClusterSize(&n, (handle)8, &c));

    /* A function with a required cluster takes no other cluster. */
    OK(cuFuncSetAttribute(f, WIDTH, 4)); OK(cuFuncSetAttribute(f, HEIGHT, 1)); OK(cuFuncSetAttribute(f, DEPTH, 1));
    SAME(potential(), 4); SAME(active(), 66); c.count = 2; cluster(2); STATUS(REFUSED, cuLaunchKernelEx(&c, f, NULL, NULL));
    cluster(4); OK(cuLaunchKernelEx(&c, f, NULL, NULL)); launch(f, NULL);
    STATUS(REFUSED, cuLaunchKernel(f, 6, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    STATUS(1, cuFuncSetAttribute(f, WIDTH, -1)); OK(cuCtxSynchronize());
    return 0;
}
