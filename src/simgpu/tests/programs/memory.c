/* Ordinary memory: exact charges, a limited capacity, the pitch of a real device, and contents that can be read back. */
#include "driver.h"

typedef struct { size_t x, y; unsigned kind; const void *host; ptr device; handle array; size_t pitch; } plane_end;
typedef struct { plane_end from, to; size_t width, height; } plane_copy;
int cuMemcpy2D_v2(const plane_copy *);

int main(void) {
    ptr a, b; size_t pitch, size; unsigned low; char text[16] = "not overwritten", back[16]; void *pinned; unsigned kind;
    start();
    size_t before = held();
    OK(cuMemAlloc_v2(&a, 1001)); SAME(held() - before, 1001); CHECK(a % 512 == 0);
    OK(cuMemAlloc_v2(&b, 1)); CHECK(b >= a + 1001 || b + 1 <= a); SAME(held() - before, 1002);
    OK(cuMemGetAddressRange_v2(&b, &size, a + 1000)); CHECK(b == a); SAME(size, 1001);
    STATUS(1, cuMemFree_v2(a + 512)); STATUS(1, cuMemFree_v2(0xdeadbeef)); OK(cuMemFree_v2(0));
    SAME(held() - before, 1002);
    OK(cuMemFree_v2(a)); STATUS(1, cuMemFree_v2(a)); SAME(held() - before, 1);

    /* Two million rows of 4 bytes take a gigabyte, not eight megabytes, because a row takes the pitch of 512 bytes. */
    OK(cuMemAllocPitch_v2(&a, &pitch, 4, 2000000, 4)); SAME(pitch, 512); SAME(held() - before, 1 + 512 * 2000000LL);
    OK(cuMemFree_v2(a));

    OK(cuMemAllocManaged(&a, 3 * MIB, 1)); SAME(held() - before, 1 + 3 * MIB);
    strcpy((char *)a, "managed"); OK(cuMemcpyDtoH_v2(back, a, 8)); CHECK(!strcmp(back, "managed"));
    OK(cuMemFree_v2(a));

    /* Functions of the first generation have outputs of 32 bits, and write no more. */
    unsigned words[4] = {1, 2, 3, 4};
    OK(cuMemAlloc(&words[1], 5000)); CHECK(words[0] == 1 && words[2] == 3); low = words[1];
    SAME(held() - before, 5001);
    OK(cuMemcpyHtoD_v2(low, text, 16)); OK(cuMemcpyDtoH_v2(back, low, 16)); CHECK(!memcmp(text, back, 16));
    OK(cuMemFree(low));
    OK(cuMemGetInfo(&words[1], &words[2])); CHECK(words[0] == 1 && words[3] == 4);
    OK(cuDeviceTotalMem(&words[1], 0)); CHECK(words[2] != 0 && words[3] == 4);

    /* An allocation that does not fit returns status 2, leaves its output untouched, and holds nothing. */
    a = 77; size_t left, all; OK(cuMemGetInfo_v2(&left, &all));
    STATUS(2, cuMemAlloc_v2(&a, left + 1)); SAME(a, 77); SAME(held() - before, 1);
    OK(cuMemAlloc_v2(&a, left)); STATUS(2, cuMemAlloc_v2(&b, 1)); OK(cuMemFree_v2(a));
    STATUS(1, cuMemAlloc_v2(&a, 0)); STATUS(1, cuMemAlloc_v2(NULL, 1));

    /* Ten gigabytes take no memory of the host until a copy writes them. */
    OK(cuMemAlloc_v2(&a, (size_t)10 << 30));
    OK(cuMemsetD32_v2(a + ((size_t)9 << 30), 0x01020304, 1024));
    OK(cuMemcpyDtoD_v2(a, a + ((size_t)9 << 30), 4096));
    OK(cuMemcpyDtoH_v2(back, a + 4092, 4)); CHECK(back[0] == 4 && back[3] == 1);
    STATUS(1, cuMemcpyHtoD_v2(a + ((size_t)10 << 30) - 8, text, 16));
    OK(cuMemFree_v2(a));

    OK(cuMemHostAlloc(&pinned, 1 * MIB, 0)); strcpy(pinned, "pinned"); SAME(held() - before, 1);
    OK(cuMemAlloc_v2(&a, 100)); OK(cuMemcpy(a, (ptr)pinned, 7)); OK(cuMemcpy((ptr)back, a, 7)); CHECK(!strcmp(back, "pinned"));
    OK(cuPointerGetAttribute(&kind, 2, a)); SAME(kind, 2); OK(cuPointerGetAttribute(&kind, 2, (ptr)pinned)); SAME(kind, 1);
    STATUS(1, cuPointerGetAttribute(&kind, 2, (ptr)text));

    /* Sizes and offsets that leave the address space are invalid. */
    plane_copy far = {{.y = 2, .kind = 1, .host = text, .pitch = (size_t)1 << 63}, {.kind = 2, .device = a}, 4, 1};
    STATUS(1, cuMemcpy2D_v2(&far)); STATUS(1, cuMemsetD8_v2((ptr)pinned + 8, 0, SIZE_MAX - 3));
    STATUS(1, cuMemcpy((ptr)back, (ptr)text, SIZE_MAX));
    OK(cuMemFreeHost(pinned)); STATUS(1, cuMemFreeHost(pinned));
    return 0;
}
