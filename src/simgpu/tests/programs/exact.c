/* Allocates the bytes of its first argument, in pieces, and exits when its input ends. The test sums the bytes of a group. */
#include "driver.h"

int main(int argc, char **argv) {
    ptr p; size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, piece; char c;
    start();
    for (size_t left = bytes; left; left -= piece) { piece = left > 1048577 ? 1048577 : left; OK(cuMemAlloc_v2(&p, piece)); }
    puts("held"); fflush(stdout); return read(0, &c, 1) < 0;
}
