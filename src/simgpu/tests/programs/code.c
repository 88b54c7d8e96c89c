/* Code: the driver finds names, variables are device memory that holds bytes, and libraries load at their first use. */
#include "driver.h"

int cuModuleLoadFatBinary(handle *, const void *), cuLibraryGetGlobal(ptr *, size_t *, handle, const char *);

/* A fat binary with one image, and the wrapper that a compiler puts around it. Flag 0x8000: the image cannot be unpacked. */
static const void *fat(const void *image, size_t bytes, uint64_t flags) {
    static struct {
        uint32_t mark; uint16_t version, head; uint64_t size;
        struct { uint16_t kind, version; uint32_t head; uint64_t padded; uint32_t packed, unused, made_by, capability;
                 uint64_t names, flags, zero, unpacked; } entry;
        char image[4096];
    } whole;
    static struct { uint32_t mark, version; const void *data; void *rest; } wrapper = {0x466243b1, 1, &whole, NULL};
    memset(&whole, 0, sizeof whole); whole.mark = 0xba55ed50; whole.version = 1; whole.head = 16;
    whole.size = sizeof whole.entry + sizeof whole.image; whole.entry.kind = 1; whole.entry.head = sizeof whole.entry;
    whole.entry.padded = sizeof whole.image; whole.entry.packed = bytes; whole.entry.capability = 80; whole.entry.flags = flags;
    whole.entry.unpacked = bytes; memcpy(whole.image, image, bytes);
    return &wrapper;
}

static void fat_binaries(size_t before) {
    handle m, f, l; ptr p, q; size_t n; char back[8];
    OK(cuModuleLoadData(&m, fat(PTX, sizeof PTX, 0))); SAME(held() - before, 1024);
    OK(cuModuleGetGlobal_v2(&p, &n, m, "table")); SAME(n, 1000); STATUS(500, cuModuleGetFunction(&f, m, "missing"));
    STATUS(500, cuModuleGetGlobal_v2(&p, &n, m, "missing")); OK(cuModuleUnload(m)); SAME(held() - before, 0);

    /* If the contents of an image are unknown, every name is found: as a kernel, or as a variable without its own charge. */
    OK(cuModuleLoadFatBinary(&m, fat(PTX, sizeof PTX, 0x8000))); OK(cuModuleGetFunction(&f, m, "whatever")); SAME(held() - before, 0);
    OK(cuModuleGetGlobal_v2(&p, &n, m, "anything")); CHECK(n >= 4096); OK(cuModuleGetGlobal_v2(&q, NULL, m, "anything")); CHECK(p == q);
    OK(cuModuleGetGlobal_v2(&q, NULL, m, "another")); CHECK(p != q); STATUS(500, cuModuleGetGlobal_v2(&q, NULL, m, ""));
    OK(cuMemcpyHtoD_v2(p, "kept", 5)); OK(cuMemcpyDtoH_v2(back, p, 5)); CHECK(!strcmp(back, "kept")); STATUS(1, cuMemFree_v2(p));
    OK(cuModuleUnload(m)); SAME(held() - before, 0); STATUS(1, cuMemcpyDtoH_v2(back, p, 5));
    OK(cuLibraryLoadData(&l, fat(PTX, sizeof PTX, 0x8000), NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetGlobal(&p, &n, l, "anything")); CHECK(n >= 4096); OK(cuLibraryUnload(l)); SAME(held() - before, 0);
    unsigned char bare[16] = {0x50, 0xed, 0x55, 0xba}; OK(cuModuleLoadData(&m, bare)); OK(cuModuleGetFunction(&f, m, "whatever"));
}

int main(void) {
    handle m, f, l, k; ptr p; size_t n; char text[8] = "table", back[8];
    start(); size_t before = held();
    OK(cuModuleLoadData(&m, PTX)); SAME(held() - before, 1024); STATUS(500, cuModuleGetFunction(&f, m, "missing"));
    OK(cuModuleGetGlobal_v2(&p, &n, m, "table")); SAME(n, 1000); STATUS(500, cuModuleGetGlobal_v2(&p, &n, m, "quick"));
    OK(cuMemcpyHtoD_v2(p, text, 8)); OK(cuMemcpyDtoH_v2(back, p, 8)); CHECK(!strcmp(text, back)); STATUS(1, cuMemFree_v2(p));
    OK(cuModuleGetFunction(&f, m, "quick")); launch(f, NULL); OK(cuCtxSynchronize());
    OK(cuModuleUnload(m)); SAME(held() - before, 0); STATUS(400, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuLibraryLoadData(&l, PTX, NULL, NULL, 0, NULL, NULL, 0)); SAME(held() - before, 0);
    OK(cuLibraryGetKernel(&k, l, "quick")); launch(k, NULL); SAME(held() - before, 1024);
    OK(cuLibraryUnload(l)); SAME(held() - before, 0);
    STATUS(200, cuModuleLoadData(&m, "this is no code"));
    fat_binaries(held());
    return 0;
}
