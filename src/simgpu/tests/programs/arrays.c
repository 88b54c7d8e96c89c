/* Charge of arrays: element sizes, a height of 0, mip levels, layers, and sparse arrays, which cost nothing. */
#include "driver.h"

static size_t cost(size_t w, size_t h, size_t d, unsigned format, unsigned channels, unsigned flags) {
    array_desc desc = {w, h, d, format, channels, flags}; handle array; size_t before = held();
    OK(cuArray3DCreate_v2(&array, &desc)); size_t bytes = held() - before; OK(cuArrayDestroy(array)); SAME(held(), before);
    return bytes;
}

int main(void) {
    handle array, level, last; char back[64], text[64] = "text in an array";
    start(); size_t before = held();
    SAME(cost(1024, 0, 0, 0x20, 1, 0), 4096);
    SAME(cost(1024, 1024, 0, 0x01, 1, 0), MIB);
    SAME(cost(256, 256, 6, 0x20, 4, 1), 256 * 256 * 6 * 16);
    SAME(cost(64, 64, 64, 0x10, 2, 0), 64 * 64 * 64 * 4);
    SAME(cost(1 << 20, 64, 0, 0x20, 1, 0x40), 0);
    array_desc desc = {1024, 1024, 0, 0x20, 1, 0};
    OK(cuMipmappedArrayCreate(&array, &desc, 3)); SAME(held() - before, 4 * (MIB + MIB / 4 + MIB / 16));
    OK(cuMipmappedArrayGetLevel(&level, array, 1)); OK(cuMipmappedArrayGetLevel(&last, array, 2)); STATUS(1, cuMipmappedArrayGetLevel(&last, array, 3));
    OK(cuMemcpyHtoA_v2(level, 512, text, 64)); OK(cuMemcpyAtoH_v2(back, level, 512, 64)); CHECK(!memcmp(text, back, 64));
    STATUS(400, cuArrayDestroy(level)); OK(cuMipmappedArrayDestroy(array)); STATUS(400, cuMemcpyHtoA_v2(level, 0, text, 64));
    SAME(held(), before);
    desc.width = 0; STATUS(1, cuArray3DCreate_v2(&array, &desc));
    return 0;
}
