// Memory of a process that makes each call again and again: it must not grow.
//
// steady QUOTA ROUNDS: each round takes and frees memory of every kind, gets a refusal, looks functions up and asks for figures.
// It does so in this thread and in one that ends with the round.
#include "host.h"
#include <pthread.h>

static u64 quota;
static int wrong;

static void must(int status, int wanted, const char *what) {
    if (status != wanted && wrong++ < 10) say("%s: %d and not %d", what, status, wanted);
}

static void direct(void) {
    u64 address = 0;
    size_t pitch = 0, left = 0, total = 0;
    must(cu.cuMemAlloc_v2(&address, quota / 4), 0, "cuMemAlloc_v2");
    must(cu.cuMemFree_v2(address), 0, "cuMemFree_v2");
    must(cu.cuMemAlloc_v2(&address, quota + 1), 2, "cuMemAlloc_v2 beyond the quota");
    must(cu.cuMemAllocPitch_v2(&address, &pitch, 1000, 10, 4), 0, "cuMemAllocPitch_v2");
    must(cu.cuMemFree_v2(address), 0, "cuMemFree_v2 of a pitched one");
    must(cu.cuMemAllocManaged(&address, quota / 4, 1), 0, "cuMemAllocManaged");
    must(cu.cuMemFree_v2(address), 0, "cuMemFree_v2 of a managed one");
    must(cu.cuMemGetInfo_v2(&left, &total), 0, "cuMemGetInfo_v2");
}

static void mapped(void) {
    struct allocation what = {.kind = PINNED, .location = ON_DEVICE};
    size_t grain = 0;
    u64 handle = 0, address = 0;
    must(cu.cuMemGetAllocationGranularity(&grain, &what, 0), 0, "cuMemGetAllocationGranularity");
    must(cu.cuMemCreate(&handle, grain, &what, 0), 0, "cuMemCreate");
    must(cu.cuMemAddressReserve(&address, grain, 0, 0, 0), 0, "cuMemAddressReserve");
    must(cu.cuMemMap(address, grain, 0, handle, 0), 0, "cuMemMap");
    must(cu.cuMemRelease(handle), 0, "cuMemRelease");
    must(cu.cuMemUnmap(address, grain), 0, "cuMemUnmap");
    must(cu.cuMemAddressFree(address, grain), 0, "cuMemAddressFree");
}

static void ordered(void) {
    struct pool_properties what = {.kind = PINNED, .location = ON_DEVICE};
    u64 address = 0;
    void *pool = NULL;
    must(cu.cuMemAllocAsync(&address, quota / 8, NULL), 0, "cuMemAllocAsync");
    must(cu.cuMemFreeAsync(address, NULL), 0, "cuMemFreeAsync");
    must(cu.cuMemPoolCreate(&pool, &what), 0, "cuMemPoolCreate");
    must(cu.cuMemAllocFromPoolAsync(&address, quota / 8, pool, NULL), 0, "cuMemAllocFromPoolAsync");
    must(cu.cuMemFreeAsync(address, NULL), 0, "cuMemFreeAsync of a pool's");
    must(cu.cuStreamSynchronize(NULL), 0, "cuStreamSynchronize");
    must(cu.cuMemPoolDestroy(pool), 0, "cuMemPoolDestroy");
}

static void contexts(void) {
    void *context = NULL;
    must(cu.cuCtxCreate_v2(&context, 0, 0), 0, "cuCtxCreate_v2");
    direct();
    must(cu.cuCtxDestroy_v2(context), 0, "cuCtxDestroy_v2");
}

static void looked_up(void) {
    void *found = NULL;
    int answer = 0;
    if (dlsym(driver, "cuMemAlloc_v2") != (void *)cu.cuMemAlloc_v2) must(1, 0, "dlsym");
    dlsym(driver, "cuNoSuchFunction");
    must(cu.cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, &answer), 0, "cuGetProcAddress_v2");
}

static void *in_a_thread(void *context) {
    must(cu.cuCtxSetCurrent(context), 0, "cuCtxSetCurrent");
    direct();
    looked_up();
    return NULL;
}

int main(int count, char **words) {
    u64 rounds = count > 2 ? number(words[2]) : 0;
    void *context = NULL;
    pthread_t thread;
    if (!rounds || !start()) return 2;
    quota = number(words[1]);
    cu.cuCtxGetCurrent(&context);
    for (u64 i = 0; i < rounds; i++) {
        direct();
        mapped();
        ordered();
        contexts();
        cu.cuCtxSetCurrent(context);
        looked_up();
        pthread_create(&thread, NULL, in_a_thread, context);
        pthread_join(thread, NULL);
    }
    say("%d wrong", wrong);
    return wrong != 0;
}
