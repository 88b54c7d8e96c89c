/* Makes one kind of call a number of times, so that instructions can be counted: `repeat KIND COUNT`. With `replaced` there
 * are a thousand allocations at any time, of which the oldest is freed. With `stepped` each call is a launch, of 256 shapes in
 * turn. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (count != 3 || !library) return 2;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*version)(int *) = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(library, "cuMemAlloc_v2");
    int (*release)(uint64_t) = (int (*)(uint64_t))dlsym(library, "cuMemFree_v2");
    int (*make_stream)(void **, unsigned) = (int (*)(void **, unsigned))dlsym(library, "cuStreamCreate");
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    *(void **)&launch = dlsym(library, "cuLaunchKernel");
    void *stream;
    const char *kind = arguments[1];
    static uint64_t kept[1000];
    if (init(0) || make_stream(&stream, 1)) return 3;
    for (long left = atol(arguments[2]); left > 0; left--) {
        uint64_t address;
        int value;
        if (!strcmp(kind, "forwarded")) {
            version(&value);
        } else if (!strcmp(kind, "allocated")) {
            if (alloc(&address, 4096) || release(address)) return 4;
        } else if (!strcmp(kind, "replaced")) {
            uint64_t *oldest = &kept[left % 1000];
            if ((*oldest && release(*oldest)) || alloc(oldest, 4096)) return 4;
        } else if (!strcmp(kind, "launched")) {
            if (launch((void *)4096, 8, 1, 1, 128, 1, 1, 0, stream, NULL, NULL)) return 4;
        } else if (!strcmp(kind, "stepped")) {
            if (launch((void *)4096, 1 + left % 256, 1, 1, 128, 1, 1, 0, stream, NULL, NULL)) return 4;
        } else if (!strcmp(kind, "looked-up")) {
            if (!dlsym(library, "cuMemAlloc_v2")) return 5;
        } else if (!strcmp(kind, "looked-up-elsewhere")) {
            if (!dlsym(RTLD_DEFAULT, "printf")) return 6;
        } else {
            return 7;
        }
    }
    return 0;
}
