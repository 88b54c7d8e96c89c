/* Time: kernels run for the duration in their names, and the work of a stream runs in order. */
#include "driver.h"

static volatile int ran, refused; static int64_t ran_at;
/* Notes that it ran. A host function may not use the driver. */
static void note(void *data) { size_t a, b; ran_at = now_us(); refused = cuMemGetInfo_v2(&a, &b); *(volatile int *)data = 1; }

int main(void) {
    handle s, t, a, b; float ms; int64_t begin; gate g;
    start(); handle five = kernel("spin_5ms"), twenty = kernel("spin_20ms");
    OK(cuStreamCreate(&s, 1)); OK(cuStreamCreate(&t, 1)); OK(cuEventCreate(&a, 0)); OK(cuEventCreate(&b, 0));
    STATUS(400, cuEventElapsedTime(&ms, a, b)); OK(cuEventQuery(a)); OK(cuStreamQuery(s));

    shut(&g, s); OK(cuEventRecord(a, s)); launch(five, s); launch(five, s); OK(cuEventRecord(b, s));
    STATUS(600, cuStreamQuery(s)); STATUS(600, cuEventQuery(b)); STATUS(600, cuEventElapsedTime(&ms, a, b));
    begin = now_us(); g.open = 1; OK(cuEventSynchronize(b)); CHECK(now_us() - begin >= 10000);
    /* All work was queued in time, so the time between the events is the time of the kernels and of one event. */
    OK(cuEventElapsedTime(&ms, a, b)); CHECK(ms > 10.0024f && ms < 10.0026f); OK(cuStreamQuery(s));

    /* One stream waits for the event of the other, and its host function runs in order. */
    begin = now_us(); launch(twenty, s); OK(cuEventRecord(a, s)); OK(cuStreamWaitEvent(t, a, 0));
    OK(cuLaunchHostFunc(t, note, (void *)&ran)); CHECK(!ran); OK(cuStreamSynchronize(t));
    CHECK(ran && ran_at - begin >= 20000); SAME(refused, 800);

    /* A blocking call waits for the work before it. */
    ptr p; char c = 7, d = 0; OK(cuMemAlloc_v2(&p, 1)); OK(cuMemcpyHtoD_v2(p, &c, 1));
    begin = now_us(); launch(twenty, NULL); OK(cuMemcpyDtoH_v2(&d, p, 1)); CHECK(now_us() - begin >= 20000 && d == 7);
    begin = now_us(); launch(twenty, s); OK(cuMemFree_v2(p)); CHECK(now_us() - begin >= 20000);

    STATUS(1, cuLaunchKernel(five, 0, 1, 1, 1, 1, 1, 0, s, NULL, NULL)); STATUS(1, cuLaunchKernel(five, 1, 1, 1, 2048, 1, 1, 0, s, NULL, NULL));
    STATUS(400, cuLaunchKernel((handle)8, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL)); STATUS(400, cuStreamSynchronize((handle)0x99));
    OK(cuStreamDestroy_v2(s)); STATUS(400, cuStreamQuery(s));
    return 0;
}
