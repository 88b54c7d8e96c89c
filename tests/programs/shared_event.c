// A process waits for the work of another one by an event of that process.
#include "host.h"
#include <sys/wait.h>

enum { NO_TIMING = 2, INTERPROCESS = 4, NON_BLOCKING = 1 };

typedef struct {
    char bytes[64];
} ticket;

static int (*make)(void **, unsigned), (*record)(void *, void *), (*query)(void *), (*wait_for)(void *, void *, unsigned);
static int (*export)(ticket *, void *), (*import)(void **, ticket), (*ready)(void *), (*destroy)(void *);
static int (*call)(void *, void (*)(void *), void *);
static int (*load)(void **, const void *), (*find)(void **, void *, const char *);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static void *begin(void) {
    void *stream = NULL;
    if (!start() || cu.cuStreamCreate(&stream, NON_BLOCKING) != 0) _exit(3);
    *(void **)&make = dlsym(driver, "cuEventCreate");
    *(void **)&record = dlsym(driver, "cuEventRecord");
    *(void **)&query = dlsym(driver, "cuEventQuery");
    *(void **)&destroy = dlsym(driver, "cuEventDestroy_v2");
    *(void **)&export = dlsym(driver, "cuIpcGetEventHandle");
    *(void **)&import = dlsym(driver, "cuIpcOpenEventHandle");
    *(void **)&wait_for = dlsym(driver, "cuStreamWaitEvent");
    *(void **)&ready = dlsym(driver, "cuStreamQuery");
    *(void **)&call = dlsym(driver, "cuLaunchHostFunc");
    *(void **)&load = dlsym(driver, "cuModuleLoadData");
    *(void **)&find = dlsym(driver, "cuModuleGetFunction");
    *(void **)&launch = dlsym(driver, "cuLaunchKernel");
    return stream;
}

static int gate;

static void hold(void *unused) {
    char word;
    (void)unused;
    if (read(gate, &word, 1) != 1) _exit(7);
}

// Hands out the event that marks the end of its work. The work waits for a word, and so does the process's end.
static int maker(int to, int from) {
    static const char image[] = ".version 8.0\n.target sm_90\n.visible .entry spin_5ms() { ret; }\n";
    void *stream = begin(), *event = NULL, *timed = NULL, *module = NULL, *kernel = NULL;
    ticket handle;
    char word;
    gate = from;
    int made = make(&event, NO_TIMING | INTERPROCESS) || load(&module, image) || find(&kernel, module, "spin_5ms");
    int queued = call(stream, hold, NULL) || launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL) || record(event, stream);
    int refused = make(&timed, INTERPROCESS), exported = export(&handle, event);
    if (made || queued || refused != 1 || exported || write(to, &handle, sizeof handle) != sizeof handle) return 4;
    return cu.cuStreamSynchronize(stream) || read(from, &word, 1) != 1;
}

int main(void) {
    int there[2], back[2], status = -1;
    if (pipe(there) || pipe(back)) return 2;
    pid_t child = fork();
    if (child == 0) return maker(there[1], back[0]);
    ticket handle;
    void *event = NULL, *stream = begin();
    if (read(there[0], &handle, sizeof handle) != sizeof handle) return 5;
    int opened = import(&event, handle), before = query(event), waits = wait_for(stream, event, 0), held = ready(stream);
    if (write(back[1], "w", 1) != 1) return 6;
    int waited = cu.cuStreamSynchronize(stream), done = query(event), recorded = record(event, stream), destroyed = destroy(event);
    say("opened %d, pending %d, waits %d, held %d", opened, before, waits, held);
    say("waited %d, done %d, recorded %d, destroyed %d", waited, done, recorded, destroyed);
    if (write(back[1], "g", 1) != 1 || waitpid(child, &status, 0) != child) return 6;
    say("the other ended with %d", status);
    return 0;
}
