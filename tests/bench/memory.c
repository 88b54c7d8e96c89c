/* Measures the memory of a process. `memory none` never touches CUDA, `memory COUNT` has COUNT allocations. Prints two lines
 * `name KiB`: the resident memory, and the process's share of it if several processes have the same pages. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int allocate(long count) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(library, "cuMemAlloc_v2");
    uint64_t address;
    if (init(0)) return 1;
    while (count-- > 0)
        if (alloc(&address, 4096)) return 1;
    return 0;
}

int main(int arguments, char **argument) {
    if (arguments != 2) return 2;
    if (strcmp(argument[1], "none") && allocate(atol(argument[1]))) return 1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long kib;
    if (!file) return 3;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "Rss: %ld", &kib) == 1) printf("resident_with_%s_live %ld\n", argument[1], kib);
        if (sscanf(line, "Pss: %ld", &kib) == 1) printf("proportional_with_%s_live %ld\n", argument[1], kib);
    }
    return 0;
}
