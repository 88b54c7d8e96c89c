// A kernel that cannot empty a page at a fork: `MADV_WIPEONFORK` is an invalid advice to the library.
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int madvise(void *start, size_t length, int advice) {
    if (advice == MADV_WIPEONFORK) return errno = EINVAL, -1;
    return syscall(SYS_madvise, start, length, advice);
}
