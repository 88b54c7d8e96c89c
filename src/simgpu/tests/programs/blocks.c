/* Device memory in the units of a real driver: multiples of 2 MiB, and slots of blocks that small allocations share. */
#include "driver.h"

enum { BLOCK = 2 * MIB, SLOTS = BLOCK / 512 };

int main(void) {
    ptr a, b, c, small[SLOTS]; unsigned low; size_t pitch; handle array;
    start();
    size_t before = held();
    OK(cuMemAlloc_v2(&a, MIB + 1)); SAME(held() - before, BLOCK);
    OK(cuMemAlloc_v2(&b, BLOCK + 1)); SAME(held() - before, 3 * BLOCK); CHECK(b % BLOCK == 0);
    OK(cuMemAlloc_v2(&c, 3 * BLOCK)); SAME(held() - before, 6 * BLOCK);
    OK(cuMemFree_v2(b)); OK(cuMemFree_v2(a)); OK(cuMemFree_v2(c)); SAME(held(), before);

    /* A block is full when all its slots are taken. The next allocation takes another block. */
    for (int i = 0; i < SLOTS; i++) { OK(cuMemAlloc_v2(&small[i], 1 + i % 512)); SAME(held() - before, BLOCK); }
    for (int i = 1; i < SLOTS; i++) CHECK(small[i] / BLOCK == small[0] / BLOCK);
    OK(cuMemAlloc_v2(&a, 1)); SAME(held() - before, 2 * BLOCK);
    OK(cuMemFree_v2(small[7])); SAME(held() - before, 2 * BLOCK);
    OK(cuMemFree_v2(a)); SAME(held() - before, BLOCK);
    /* The next allocation of the same size uses a freed slot. Slots of different sizes are in different blocks. */
    OK(cuMemAlloc_v2(&small[7], 512)); SAME(held() - before, BLOCK);
    OK(cuMemAlloc_v2(&a, 786432)); OK(cuMemAlloc_v2(&b, MIB)); SAME(held() - before, 2 * BLOCK);
    OK(cuMemAlloc_v2(&c, MIB)); SAME(held() - before, 3 * BLOCK);
    OK(cuMemcpyHtoD_v2(a + 786431, "x", 1));
    OK(cuMemFree_v2(a)); OK(cuMemFree_v2(b)); OK(cuMemFree_v2(c));
    for (int i = 0; i < SLOTS; i++) OK(cuMemFree_v2(small[i]));
    SAME(held(), before);

    /* Rows, 32-bit addresses, managed memory and arrays take blocks, too. A small array takes a slot without a block. */
    OK(cuMemAllocPitch_v2(&a, &pitch, 4, 3000, 4)); SAME(held() - before, BLOCK); OK(cuMemFree_v2(a));
    OK(cuMemAlloc(&low, 5000)); SAME(held() - before, BLOCK);
    OK(cuMemcpyHtoD_v2(low, "y", 1)); OK(cuMemFree(low));
    OK(cuMemAllocManaged(&a, 5000, 1)); OK(cuMemAllocManaged(&b, 60000, 1)); SAME(held() - before, BLOCK);
    strcpy((char *)a, "managed"); strcpy((char *)b, "beside"); CHECK(!strcmp((char *)a, "managed"));
    OK(cuMemFree_v2(a)); CHECK(!strcmp((char *)b, "beside")); OK(cuMemFree_v2(b)); SAME(held(), before);
    array_desc wanted = {1024, 300, 0, 0x20, 1, 0};
    OK(cuArray3DCreate_v2(&array, &wanted)); SAME(held() - before, BLOCK); OK(cuArrayDestroy(array));
    wanted.height = 0;
    OK(cuArray3DCreate_v2(&array, &wanted)); SAME(held() - before, 4096); OK(cuArrayDestroy(array));

    /* An allocation that fails keeps no memory. */
    size_t left, all; OK(cuMemGetInfo_v2(&left, &all));
    OK(cuMemAlloc_v2(&a, left - left % BLOCK)); STATUS(2, cuMemAlloc_v2(&b, 1)); OK(cuMemFree_v2(a)); SAME(held(), before);
    return 0;
}
