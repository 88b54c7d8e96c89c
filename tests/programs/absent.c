// A program that has no driver behind it.
//
// absent [call]: the references are weak, as in programs that use a GPU only if there is one. With `call`, the program calls each
// function that is not null, although no driver was loaded.
#include "host.h"

#define WEAK(symbol, base, version, flags, parameters) extern int symbol parameters __attribute__((weak));
CUDA_FUNCTIONS(WEAK)
extern int nvmlInit_v2(void) __attribute__((weak));
extern int nvmlInit(void) __attribute__((weak));
extern int nvmlInitWithFlags(unsigned) __attribute__((weak));
extern int nvmlShutdown(void) __attribute__((weak));
extern int nvmlDeviceGetHandleByIndex_v2(unsigned, void **) __attribute__((weak));
extern int nvmlDeviceGetMemoryInfo(void *, void *) __attribute__((weak));
extern const char *nvmlErrorString(int) __attribute__((weak));

static void names_that_must_be_null(void) {
    static const char *const names[] = {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress_v2", "nvmlInit_v2", "nvmlInit"};
    void *self = dlopen(NULL, RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dlerror();
        void *found = dlsym(RTLD_DEFAULT, names[i]);
        const char *error = dlerror();
        say("default %s by %s, %s", names[i], server_of(found), error ? "an error" : "no error");
        say("next %s by %s", names[i], server_of(dlsym(RTLD_NEXT, names[i])));
        say("main %s by %s", names[i], server_of(self ? dlsym(self, names[i]) : NULL));
        say("versioned %s by %s", names[i], server_of(dlvsym(RTLD_DEFAULT, names[i], "ANY")));
    }
}

int main(int count, char **words) {
    (void)words;
    names_that_must_be_null();
    void *found = dlopen("libcuda.so.1", RTLD_NOW);
    say("open: %s", found ? "found" : dlerror());
    say("loaded before: %s", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) ? "yes" : "no");
    if (count < 2) return 0;
    u64 address = 5;
    size_t left = 5, total = 5;
    int version = 5;
    void *context = (void *)5, *answer = (void *)5;
    const char *text = "untouched";
#define TELL(name, arguments) \
    if (name) say(#name ": %d", name arguments)
    TELL(cuInit, (0));
    TELL(cuDriverGetVersion, (&version));
    TELL(cuDeviceGetCount, (&version));
    TELL(cuMemAlloc_v2, (&address, 4096));
    TELL(cuMemAllocManaged, (&address, 4096, 1));
    TELL(cuMemCreate, (&address, 4096, NULL, 0));
    TELL(cuMemAllocAsync_ptsz, (&address, 4096, NULL));
    TELL(cuMemFree_v2, (address));
    TELL(cuMemGetInfo_v2, (&left, &total));
    TELL(cuDevicePrimaryCtxRetain, (&context, 0));
    TELL(cuGetErrorString, (2, &text));
    TELL(cuGetProcAddress, ("cuInit", &answer, 12000, 0));
    TELL(cuGetProcAddress_v2, ("cuInit", &answer, 12000, 0, NULL));
    TELL(nvmlInit_v2, ());
    TELL(nvmlInit, ());
    TELL(nvmlInitWithFlags, (0));
    TELL(nvmlShutdown, ());
    TELL(nvmlDeviceGetHandleByIndex_v2, (0, &context));
    TELL(nvmlDeviceGetMemoryInfo, (NULL, NULL));
    if (nvmlErrorString) say("nvmlErrorString: %s", nvmlErrorString(12) ? "a text" : "null");
    say("outputs %s", address == 5 && left == 5 && total == 5 && version == 5 && context == (void *)5 &&
        !strcmp(text, "untouched") ? "untouched" : "written");
    say("loaded after: %s", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) ? "yes" : "no");
    return 0;
}
