/* Takes exactly the bytes it is told, in pieces, and exits at the end: with the others of its group, to the byte. */
#include "driver.h"

int main(int argc, char **argv) {
    ptr p; size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, piece; char c;
    start();
    for (size_t left = bytes; left; left -= piece) { piece = left > 1048577 ? 1048577 : left; OK(cuMemAlloc_v2(&p, piece)); }
    puts("held"); fflush(stdout); return read(0, &c, 1) < 0;
}
