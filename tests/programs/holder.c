// Holds device memory until it is killed.
//
// holder BYTES DESCRIPTOR: writes a line to the descriptor once it holds the bytes.
#include "host.h"

int main(int count, char **words) {
    u64 address = 0;
    if (count < 3 || !start() || cu.cuMemAlloc_v2(&address, number(words[1])) != 0) return 3;
    dprintf(atoi(words[2]), "holds\n");
    for (;;) pause();
}
