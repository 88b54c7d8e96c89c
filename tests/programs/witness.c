// A member of a slice in which others die.
//
// witness BYTES: takes BYTES, says `ready`, and then answers commands, one a line.
//   take BYTES: takes BYTES in one piece and frees them; prints status, and microseconds of the longest call.
//   keep BYTES: takes BYTES for good; prints status and microseconds.
//   left: prints how much the quota has left.
//   open: prints how many descriptors it has, and how often the region is mapped.
#include "host.h"
#include <dirent.h>
#include <time.h>

static u64 microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000ull + now.tv_nsec / 1000;
}

static void take(u64 bytes, int keep) {
    u64 address, longest = 0, start = microseconds();
    int status = cu.cuMemAlloc_v2(&address, bytes);
    longest = microseconds() - start;
    if (status == 0 && !keep) {
        start = microseconds();
        status = cu.cuMemFree_v2(address);
        if (microseconds() - start > longest) longest = microseconds() - start;
    }
    say("%d %llu", status, longest);
}

static void left(void) {
    size_t left = 0, total = 0;
    int status = cu.cuMemGetInfo_v2(&left, &total);
    say("%d %zu", status, left);
}

static void count_open(void) {
    int descriptors = 0, mappings = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) descriptors++;
    if (folder) closedir(folder);
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) mappings += strstr(line, "/region") != NULL;
    if (maps) fclose(maps);
    say("%d %d", descriptors, mappings);
}

int main(int count, char **words) {
    char line[128], what[32];
    u64 bytes = 0, address;
    if (count < 2 || !start() || cu.cuMemAlloc_v2(&address, number(words[1]))) return 3;
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%31s %llu", what, &bytes) < 1) return 2;
        if (!strcmp(what, "take")) take(bytes, 0);
        else if (!strcmp(what, "keep")) take(bytes, 1);
        else if (!strcmp(what, "left")) left();
        else if (!strcmp(what, "open")) count_open();
        else return 2;
    }
    return 0;
}
