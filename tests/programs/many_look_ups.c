// Start of a program that looks 900 functions up, each of which the driver then loads. Prints two lines `name nanoseconds`:
// `start_with_900_look_ups` from before `cuInit` on, and `900_look_ups` alone. Then prints a line `held bytes`.
#include "host.h"

enum { MANY = 900 };

static const char code[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry work() { ret; }\n";

int main(void) {
    static void *modules[MANY];
    void *function;
    u64 began = now();
    if (!start()) return 2;
    int (*load)(void **, const void *) = (int (*)(void **, const void *))dlsym(driver, "cuModuleLoadData");
    int (*look_up)(void **, void *, const char *) =
        (int (*)(void **, void *, const char *))dlsym(driver, "cuModuleGetFunction");
    for (int i = 0; i < MANY; i++)
        if (load(&modules[i], code)) return 3;
    u64 loaded = now();
    for (int i = 0; i < MANY; i++)
        if (look_up(&function, modules[i], "work")) return 4;
    u64 ended = now();
    printf("start_with_900_look_ups %llu\n900_look_ups %llu\n", ended - began, ended - loaded);
    size_t left = 0, total = 0;
    if (cu.cuMemGetInfo_v2(&left, &total)) return 5;
    printf("held %zu\n", total - left);
    return 0;
}
