/* Memory and addresses are separate: memory lives until its last handle and its last mapping are gone. */
#include "driver.h"

/* Returns true if this process maps the file of shared memory. */
static int is_mapped(void) {
    char line[4096]; int found = 0; FILE *maps = fopen("/proc/self/maps", "r"); CHECK(maps);
    while (fgets(line, sizeof line, maps)) found |= strstr(line, "simgpu-shared") != NULL;
    fclose(maps); return found;
}

int main(void) {
    memory_props props = {.kind = 1, .where = {1, 0}}; access_desc rw = {{1, 0}, 3};
    uint64_t h, again; ptr va, other; char back[8];
    OK(cuInit(0));
    /* An allocation on a named device needs no context. */
    STATUS(1, cuMemCreate(&h, 3 * MIB, &props, 0)); OK(cuMemCreate(&h, 4 * MIB, &props, 0));
    handle c; OK(cuCtxCreate_v2(&c, 0, 0)); SAME(held() - 300 * MIB, 4 * MIB);
    OK(cuMemRelease(h)); size_t before = held(); STATUS(1, cuMemRelease(h));

    OK(cuMemAddressReserve(&va, 64 * MIB, 0, 0, 0)); SAME(held() - before, 0);
    OK(cuMemCreate(&h, 4 * MIB, &props, 0)); SAME(held() - before, 4 * MIB);
    OK(cuMemMap(va, 4 * MIB, 0, h, 0)); STATUS(1, cuMemMap(va, 2 * MIB, 0, h, 0));
    OK(cuMemMap(va + 8 * MIB, 2 * MIB, 2 * MIB, h, 0)); OK(cuMemSetAccess(va, 4 * MIB, &rw, 1));
    /* Two mappings of one memory show the same bytes. */
    OK(cuMemcpyHtoD_v2(va + 2 * MIB, "shared", 7)); OK(cuMemcpyDtoH_v2(back, va + 8 * MIB, 7)); CHECK(!strcmp(back, "shared"));
    OK(cuMemRelease(h)); SAME(held() - before, 4 * MIB);
    OK(cuMemRetainAllocationHandle(&again, (void *)(va + 1000))); CHECK(again == h);
    OK(cuMemUnmap(va, 4 * MIB)); SAME(held() - before, 4 * MIB);
    STATUS(1, cuMemUnmap(va, 4 * MIB)); STATUS(1, cuMemUnmap(va + 8 * MIB, 1 * MIB)); STATUS(1, cuMemAddressFree(va, 64 * MIB));
    OK(cuMemUnmap(va + 8 * MIB, 2 * MIB)); SAME(held() - before, 4 * MIB);
    OK(cuMemRelease(again)); SAME(held() - before, 0);

    /* The last use may be a mapping. */
    OK(cuMemCreate(&h, 2 * MIB, &props, 0)); OK(cuMemMap(va, 2 * MIB, 0, h, 0)); OK(cuMemRelease(h));
    SAME(held() - before, 2 * MIB); OK(cuMemUnmap(va, 2 * MIB)); SAME(held() - before, 0);
    OK(cuMemAddressFree(va, 64 * MIB)); OK(cuMemAddressReserve(&other, 64 * MIB, 0, va, 0)); CHECK(other == va);

    /* A descriptor keeps no memory alive. An import of memory that has ended fails, and leaves nothing of it mapped. */
    int fd; props.handle_types = 1; OK(cuMemCreate(&h, 4 * MIB, &props, 0)); OK(cuMemExportToShareableHandle(&fd, h, 1, 0));
    CHECK(is_mapped()); OK(cuMemRelease(h)); CHECK(!is_mapped());
    STATUS(1, cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, 1)); CHECK(!is_mapped()); SAME(held() - before, 0);
    CHECK(!close(fd)); props.handle_types = 0;

    props.where.kind = 2; OK(cuMemCreate(&h, 4 * MIB, &props, 0)); SAME(held() - before, 0); OK(cuMemRelease(h));
    props.where.kind = 1; props.where.id = 9; STATUS(101, cuMemCreate(&h, 4 * MIB, &props, 0));
    props.where.id = 0; STATUS(2, cuMemCreate(&h, (size_t)17 << 30, &props, 0));
    return 0;
}
