// A preload of another author that limits GPUs too, by its names. With DLSYM it exports `dlsym`, with CALLS functions of the
// driver.
#define _GNU_SOURCE
#include <dlfcn.h>
#ifdef DLSYM
void *dlsym(void *handle, const char *name) {
    return dlvsym(handle, name, "GLIBC_2.2.5");
}
#endif
#ifdef CALLS
int cuInit(unsigned flags) {
    return (int)flags;
}
int nvmlInit_v2(void) {
    return 0;
}
#endif
