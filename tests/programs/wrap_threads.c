// A preload of another author: the library cannot start threads.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    Dl_info caller;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    if (dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "libgpuslice")) return EAGAIN;
    return next ? next(thread, attributes, run, with) : EAGAIN;
}
