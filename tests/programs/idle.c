// Says `ready` and waits. It needs nothing but a C library, of any kind and linked in any way.
#include <stdio.h>
#include <unistd.h>

int main(void) {
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
