// A program among other preloads, allocators and sanitizers.
//
// chain QUOTA: linked with the driver; takes more than the quota by link and by look-up, and uses files and memory.
#include "host.h"
#include <pthread.h>

extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(u64 *, size_t), cuMemFree_v2(u64);

static void *churn(void *unused) {
    void *kept[64] = {NULL};
    for (int i = 0; i < 20000; i++) {
        free(kept[i % 64]);
        kept[i % 64] = malloc(i % 4096 + 1);
    }
    for (int i = 0; i < 64; i++) free(kept[i]);
    return unused;
}

static void show_count(const char *name) {
    unsigned long (*count)(void) = (unsigned long (*)(void))dlsym(RTLD_DEFAULT, name);
    if (count) say("%s: %s", name, count() ? "some" : "none");
}

int main(int count, char **words) {
    u64 quota = count > 1 ? number(words[1]) : 0, first = 0, second = 0;
    void *context = NULL;
    FILE *file = fopen("/dev/null", "r");
    say("file %s", file ? "open" : "not open");
    if (file) fclose(file);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, churn, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    int init = cuInit(0);
    int retain = cuDevicePrimaryCtxRetain(&context, 0);
    say("start %d %d %d", init, retain, cuCtxSetCurrent(context));
    int take = cuMemAlloc_v2(&first, quota);
    int over = cuMemAlloc_v2(&second, 1);
    say("take %d, one more %d", take, over);
    say("give %d", cuMemFree_v2(first));
    if (!open_driver()) return say("no driver"), 3;
    take = cu.cuMemAlloc_v2(&first, quota);
    say("looked up: take %d, one more %d", take, cu.cuMemAlloc_v2(&second, 1));
    say("give %d", cu.cuMemFree_v2(first));
    show_count("wrapped_opens");
    show_count("wrapped_takes");
    show_count("wrapped_allocations");
    return 0;
}
