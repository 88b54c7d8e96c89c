/* Eight threads make all kinds of calls at once in one context. At the end the context holds no memory of theirs. */
#include <pthread.h>
#include "driver.h"

static handle context, quick;
static volatile int called;
static void count(void *data) { __atomic_add_fetch((int *)data, 1, __ATOMIC_RELAXED); }

static void *work(void *data) {
    unsigned seed = (unsigned)(size_t)data; handle s, e, g, x, m; ptr p, q; char text[64], back[64]; uint64_t h;
    memory_props props = {.kind = 1, .where = {1, 0}};
    OK(cuCtxSetCurrent(context)); OK(cuStreamCreate(&s, 1)); OK(cuEventCreate(&e, 0));
    for (int i = 0; i < 60; i++) {
        size_t size = rand_r(&seed) % MIB + 64;
        OK(cuMemAlloc_v2(&p, size)); OK(cuMemAllocAsync(&q, size, s));
        snprintf(text, sizeof text, "%p %d", data, i);
        OK(cuMemcpyHtoD_v2(p, text, 64)); OK(cuMemcpyDtoD_v2(q, p, 64)); launch(quick, s);
        OK(cuMemcpyDtoH_v2(back, q, 64)); CHECK(!strcmp(text, back));
        OK(cuLaunchHostFunc(s, count, (void *)&called)); OK(cuEventRecord(e, s)); OK(cuMemFreeAsync(q, s));
        OK(cuMemCreate(&h, 2 * MIB, &props, 0)); OK(cuModuleLoadData(&m, PTX));
        if (i % 20 == 0) {
            OK(cuStreamBeginCapture_v2(s, 2)); launch(quick, s); OK(cuStreamEndCapture(s, &g));
            OK(cuGraphInstantiateWithFlags(&x, g, 0)); OK(cuGraphLaunch(x, s)); OK(cuGraphExecDestroy(x)); OK(cuGraphDestroy(g));
        }
        OK(cuEventSynchronize(e)); OK(cuMemFree_v2(p)); OK(cuMemRelease(h)); OK(cuModuleUnload(m));
    }
    OK(cuStreamSynchronize(s)); OK(cuStreamDestroy_v2(s));
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    context = start(); quick = kernel("quick"); size_t before = held();
    for (size_t i = 0; i < 8; i++) CHECK(!pthread_create(&threads[i], NULL, work, (void *)(i + 1)));
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    OK(cuCtxSynchronize()); SAME(called, 8 * 60); SAME(held(), before);
    return 0;
}
