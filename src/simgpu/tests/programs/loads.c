/* Late loading of code waits for the queued work of its context, and blocks other calls there. With "free" it does neither. */
#include <pthread.h>
#include "driver.h"

static handle context, stream;
static volatile int loaded, asked, elsewhere;

static void *loads(void *unused) {
    handle m, f; OK(cuCtxSetCurrent(context)); OK(cuModuleLoadData(&m, PTX)); OK(cuModuleGetFunction(&f, m, "quick"));
    loaded = 1; return unused;
}
static void *asks(void *unused) { size_t left, all; OK(cuCtxSetCurrent(context)); OK(cuMemGetInfo_v2(&left, &all)); asked = 1; return unused; }
static void *queries(void *unused) { cuStreamQuery(stream); asked = 1; return unused; }
static void *other(void *unused) { handle c; ptr p; OK(cuCtxCreate_v2(&c, 0, 0)); OK(cuMemAlloc_v2(&p, 1)); elsewhere = 1; return unused; }

static void wait_for(volatile int *what) { for (int i = 0; i < 100000 && !*what; i++) usleep(100); CHECK(*what); }

int main(int count, char **words) {
    int is_free = count > 1 && !strcmp(words[1], "free"); pthread_t a, b, c; gate g; handle first;
    setenv("CUDA_MODULE_LOADING", "LAZY", 1); if (is_free) setenv("SIMGPU_LOADING", "free", 1);
    context = start(); OK(cuStreamCreate(&stream, 1)); first = kernel("quick"); launch(first, stream); OK(cuStreamSynchronize(stream));
    for (int i = 0; i < 2; i++) {
        loaded = asked = elsewhere = 0; shut(&g, stream);
        /* The use of loaded code waits for nothing. */
        launch(first, stream); SAME(kernel("spin_5ms") != NULL, 1);
        pthread_create(&a, NULL, loads, NULL); if (is_free) wait_for(&loaded);
        usleep(100000); pthread_create(&b, NULL, i ? queries : asks, NULL); pthread_create(&c, NULL, other, NULL); wait_for(&elsewhere);
        if (is_free) wait_for(&asked); else { usleep(100000); SAME(loaded, 0); SAME(asked, 0); }
        g.open = 1; wait_for(&loaded); wait_for(&asked);
        pthread_join(a, NULL); pthread_join(b, NULL); pthread_join(c, NULL);
    }
    return 0;
}
