// Everything that a program can notice of itself before, while and after it uses the driver.
//
// The output must be the same with the library loaded and no limit set.
#include "host.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;

static void show_environment(void) {
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, "LD_PRELOAD=", 11)) say("environment %s", *entry);
}

static void show_signals(void) {
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action)) continue;
        if (action.sa_handler != SIG_DFL || action.sa_flags)
            say("signal %d flags %x by %s", signal, action.sa_flags,
                action.sa_handler == SIG_IGN ? "ignored" : server_of((void *)action.sa_handler));
    }
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int signal = 1; signal < NSIG; signal++)
        if (sigismember(&blocked, signal) == 1) say("signal %d blocked", signal);
}

static void show_folder(const char *folder, int targets) { // of /proc/self/fd the targets too
    char names[256][32], path[64], target[256];
    int count = 0;
    DIR *open = opendir(folder);
    for (struct dirent *entry; open && (entry = readdir(open)) && count < 256;)
        if (entry->d_name[0] != '.') snprintf(names[count++], sizeof *names, "%.31s", entry->d_name);
    if (!targets) say("%s: %d entries", folder, count);
    for (int i = 0; targets && i < count; i++) {
        if (atoi(names[i]) == dirfd(open)) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%.31s", names[i]);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (!strncmp(target, "pipe:", 5)) strcpy(target, "a pipe");
        say("descriptor %s is %s", names[i], target);
    }
    if (open) closedir(open);
}

static void show_self(const char *when) {
    say("-- %s", when);
    mode_t mask = umask(0);
    umask(mask);
    say("umask %o", mask);
    show_signals();
    show_folder("/proc/self/fd", 1);
    show_folder("/proc/self/task", 0);
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    say("stack %llu, name %s", (u64)limit.rlim_cur, program_invocation_short_name);
}

// Names that are not the driver's, or that a careless library would export.
static void show_names(void) {
    static const char *const names[] = {
        "curl_easy_init", "cudaMalloc", "cudaGetDevice", "cublasCreate_v2", "cudnnCreate", "cupsDoRequest",
        "cuSubgridCreate", "cuNoSuchFunction", "nvmlNoSuchFunction", "nvmlx", "cu", "", "malloc", "dladdr", "dlmopen",
        "mutex", "round_up", "initialized", "init", "log", "lookup", "real_dlsym", "rust_eh_personality",
        "rust_panic", "__rust_alloc", "cuda", "cudbgApiInit", "CUDBG_IPC_FLAG_NAME", "GPUSLICE", "gpuslice",
        "cuGetProcAddress_v2_ptsz", "environ", "main", "atexit", "pthread_create"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dlerror();
        errno = 77;
        void *found = dlsym(RTLD_DEFAULT, names[i]);
        int kept = errno;
        const char *error = dlerror();
        say("name %s by %s, errno %d, error %s", names[i], server_of(found), kept, error ? error : "none");
        errno = 77;
        found = driver ? dlsym(driver, names[i]) : NULL;
        kept = errno;
        error = dlerror();
        const char *said = error ? strchr(error, ' ') : NULL; // the library's path precedes it
        say("  in the driver %s, errno %d, error%s", server_of(found), kept, said ? said : " none");
    }
}

static void show_loader_errors(void) {
    static const char *const paths[] = {"libno-such.so.1", "/nowhere/libcuda.so.1", "libcuda.so.2", "libcuda.so.1x",
                                        "/dev/null", "libnvidia-ml.so.9", "libcudart.so.99"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        errno = 0;
        void *found = dlopen(paths[i], RTLD_NOW);
        const char *error = dlerror();
        say("open %s: %s, %s", paths[i], found ? "found" : "not found", error ? error : "no error");
        say("  again: %s", dlerror() ? "an error" : "no error");
    }
    say("load of %s", dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) ? "libcuda.so.1 has happened" : "nothing");
    dlerror();
    void *self = dlopen(NULL, RTLD_NOW);
    say("null path: %s, cuInit by %s", self ? "found" : "not found", server_of(dlsym(self, "cuInit")));
    say("invalid mode: %s", dlopen("libcuda.so.1", 0) ? "found" : dlerror());
    static const char *const versions[][2] = {{"memcpy", "GLIBC_2.14"}, {"memcpy", "GLIBC_2.2.5"},
                                              {"pthread_cond_wait", "GLIBC_2.3.2"}, {"realpath", "GLIBC_2.3"}};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        void *plain = dlsym(RTLD_DEFAULT, versions[i][0]), *exact = dlvsym(RTLD_DEFAULT, versions[i][0], versions[i][1]);
        say("%s of %s by %s, %s", versions[i][0], versions[i][1], server_of(exact), plain == exact ? "default" : "other");
    }
    void *handle = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_9.9");
    const char *error = dlerror();
    say("no such version: %s, %s", handle ? "found" : "null", error ? error : "no error");
}

static void use_driver(void) {
    void *context = NULL, *table = NULL;
    const char *text = NULL;
    unsigned char unknown[16] = {1, 2, 3};
    u64 address = 0;
    size_t left = 0, total = 0;
    int version = 0, count = 0, status[12] = {0}, kept[12] = {0}, step = 0;
#define STEP(call) errno = 77, status[step] = (call), kept[step] = errno, step++
    STEP(cu.cuDriverGetVersion(&version));
    STEP(cu.cuDeviceGetCount(&count));
    STEP(cu.cuInit(0));
    STEP(cu.cuDeviceGetCount(&count));
    STEP(cu.cuDevicePrimaryCtxRetain(&context, 0));
    STEP(cu.cuCtxSetCurrent(context));
    STEP(cu.cuMemAlloc_v2(&address, 1 << 20));
    STEP(cu.cuMemGetInfo_v2(&left, &total));
    STEP(cu.cuMemFree_v2(address));
    STEP(cu.cuMemFree_v2(address));
    STEP(cu.cuGetErrorString(2, &text));
    STEP(cu.cuGetExportTable((const void **)&table, unknown));
    say("version %d, devices %d, total %zu, left %zu, text %s, table %s", version, count, total, left, text,
        table ? "there" : "null");
    for (int i = 0; i < step; i++) say("step %d: status %d, errno %d", i, status[i], kept[i]);
}

int main(void) {
    show_environment();
    show_self("at the start");
    show_names();
    show_loader_errors();
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return say("no driver: %s", dlerror()), 0;
    find_all(find_in_driver);
    show_self("with the driver loaded");
    show_names();
    use_driver();
    show_self("after use");
    show_environment();
    return 0;
}
