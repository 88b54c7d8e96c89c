// A directory that takes FOLDER_MS milliseconds to read. Each read adds a byte to the file that FOLDER_READ names. Directories of
// /proc are as fast as ever, and are not counted.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static void slowly(void) {
    long ms = atol(getenv("FOLDER_MS"));
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
    int file = open(getenv("FOLDER_READ"), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0 || write(file, ".", 1) != 1) abort();
    close(file);
}

struct dirent64 *readdir64(DIR *folder) {
    static struct dirent64 *(*next)(DIR *);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "readdir64");
    struct dirent64 *entry = next(folder);
    struct statfs system;
    if (!entry && !fstatfs(dirfd(folder), &system) && system.f_type != PROC_SUPER_MAGIC) slowly();
    return entry;
}
