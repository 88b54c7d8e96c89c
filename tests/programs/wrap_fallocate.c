// A signal comes while the library allocates space: the first calls of `posix_fallocate` are interrupted. At the end it prints
// how many calls there were.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int calls;

int posix_fallocate(int file, off_t start, off_t length) {
    static int (*real)(int, off_t, off_t);
    if (!real) real = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
    return ++calls <= 3 ? EINTR : real(file, start, length);
}

__attribute__((destructor)) static void end(void) {
    char line[64];
    int length = snprintf(line, sizeof line, "interrupted, %s\n", calls > 3 ? "and tried again" : "and given up");
    if (write(STDOUT_FILENO, line, length) != length) _exit(9);
}
