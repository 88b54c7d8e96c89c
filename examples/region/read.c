/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a slice hold and use? Reads the region of a slice as a monitor in C would: mapped for reading, each number
 * with one load, nothing trusted.
 *
 *     cc -O2 -I../../include -o read read.c
 *     ./read /dev/shm/gpuslice-...
 */
#define _GNU_SOURCE
#include "gpuslice.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t load32(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint64_t load64(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint32_t at_most(uint32_t number, uint32_t most)
{
    return number < most ? number : most;
}

/* A process lives for as long as there is a lock on its byte. */
static int lives(int file, uint32_t slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    lock.l_start = (off_t)GPUSLICE_LIFE_OFFSET(slot);
    return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static int is_region(const struct gpuslice_header *header)
{
    return memcmp(header->magic, GPUSLICE_MAGIC, sizeof header->magic) == 0
        && load32(&header->version) == GPUSLICE_VERSION && load64(&header->size) == GPUSLICE_SIZE
        && load32(&header->ready) == GPUSLICE_READY;
}

/* What the slice holds beside the words of its processes: memory whose charge one of them took over from another. */
static uint64_t inherited(const struct gpuslice_region *region, uint32_t device)
{
    uint32_t shared = at_most(load32(&region->header.shared), GPUSLICE_SHARES);
    uint64_t bytes = 0;
    for (uint32_t index = 0; index < shared; index++) {
        uint64_t state = load64(&region->shares[index].state);
        if (GPUSLICE_SHARE_COUNTS(state) && GPUSLICE_SHARE_DEVICE(state) == device)
            bytes += load64(&region->shares[index].bytes);
    }
    return bytes;
}

static void print(const struct gpuslice_region *region, int file)
{
    uint32_t devices = at_most(load32(&region->header.device_count), GPUSLICE_DEVICES);
    uint32_t claimed = at_most(load32(&region->header.claimed), GPUSLICE_SLOTS);

    for (uint32_t device = 0; device < devices; device++) {
        uint64_t limit = load64(&region->devices[device].memory_limit), held = 0, used = 0;
        uint32_t share = load32(&region->devices[device].cores_permille);
        uint32_t processes = 0, refused = 0;
        for (uint32_t slot = 0; slot < claimed; slot++) {
            used += load64(&region->time[device].processes[slot].used); /* those who ended included */
            if (load32(&region->slots[slot].state) != GPUSLICE_SLOT_TAKEN || !lives(file, slot))
                continue;
            processes++;
            held += GPUSLICE_HELD_BYTES(load64(&region->held[device][GPUSLICE_HELD_AT(slot)]));
            refused += load32(&region->refused[slot][device]);
        }
        held += inherited(region, device);
        printf("device %" PRIu32 ": ", device);
        if (limit == GPUSLICE_NO_LIMIT)
            printf("no quota");
        else
            printf("quota %" PRIu64 " MiB", limit >> 20);
        printf(", held %" PRIu64 " MiB, processes %" PRIu32 ", refusals %" PRIu32, held >> 20, processes, refused);
        printf(", share %" PRIu32 ".%" PRIu32 " %%, used %" PRIu64 " ms\n", share / 10, share % 10, used / 1000000);
    }
}

int main(int argc, char **argv)
{
    struct stat status;
    if (argc != 2) {
        fprintf(stderr, "usage: %s REGION\n", argv[0]);
        return 2;
    }
    /* For writing, because the kernel asks for that where a lock for writing is asked about; nothing is written. */
    int file = open(argv[1], O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0 || fstat(file, &status) != 0) {
        perror(argv[1]);
        return 1;
    }
    const struct gpuslice_region *region = MAP_FAILED;
    if (status.st_size == GPUSLICE_SIZE)
        region = mmap(NULL, GPUSLICE_SIZE, PROT_READ, MAP_SHARED, file, 0);
    if (region == MAP_FAILED || !is_region(&region->header)) {
        fprintf(stderr, "%s: not a region of version %u\n", argv[1], GPUSLICE_VERSION);
        return 1;
    }
    print(region, file);
    return 0;
}
