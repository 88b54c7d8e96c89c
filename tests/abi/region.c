/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Without an argument: prints the layout that include/gpuslice.h has, as `name value` lines.
 * With the path of a region: prints its devices and its processes, as a program in C would read them.
 */
#define _GNU_SOURCE
#include "gpuslice.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINE(name, value) printf("%s %zu\n", name, (size_t)(value))

static void print_layout(void)
{
    LINE("version", GPUSLICE_VERSION);
    LINE("size", sizeof(struct gpuslice_region));
    LINE("slots", GPUSLICE_SLOTS);
    LINE("devices", GPUSLICE_DEVICES);
    LINE("shares", GPUSLICE_SHARES);
    LINE("places", GPUSLICE_PLACES);
    LINE("oversubscribed", GPUSLICE_OVERSUBSCRIBED);
    LINE("unpaced", GPUSLICE_UNPACED);
    LINE("host_memory", GPUSLICE_HOST_MEMORY);
    LINE("seconds", GPUSLICE_SECONDS);
    LINE("header.magic", offsetof(struct gpuslice_region, header.magic));
    LINE("header.version", offsetof(struct gpuslice_region, header.version));
    LINE("header.ready", offsetof(struct gpuslice_region, header.ready));
    LINE("header.size", offsetof(struct gpuslice_region, header.size));
    LINE("header.epoch", offsetof(struct gpuslice_region, header.epoch));
    LINE("header.claimed", offsetof(struct gpuslice_region, header.claimed));
    LINE("header.device_count", offsetof(struct gpuslice_region, header.device_count));
    LINE("header.joiner", offsetof(struct gpuslice_region, header.joiner));
    LINE("header.shared", offsetof(struct gpuslice_region, header.shared));
    LINE("header.moves", offsetof(struct gpuslice_region, header.moves));
    LINE("header.unpaced", offsetof(struct gpuslice_region, header.unpaced));
    LINE("header.boot", offsetof(struct gpuslice_region, header.boot));
    LINE("header.keeper", offsetof(struct gpuslice_region, header.keeper));
    LINE("debts.offset", offsetof(struct gpuslice_region, header.debts));
    LINE("debt.size", sizeof(struct gpuslice_debt));
    LINE("debt.uuid", offsetof(struct gpuslice_debt, uuid));
    LINE("debt.paid_until", offsetof(struct gpuslice_debt, paid_until));
    LINE("debt.burst", offsetof(struct gpuslice_debt, burst));
    LINE("debt.cores_permille", offsetof(struct gpuslice_debt, cores_permille));
    LINE("devices.offset", offsetof(struct gpuslice_region, devices));
    LINE("device.size", sizeof(struct gpuslice_device));
    LINE("device.uuid", offsetof(struct gpuslice_device, uuid));
    LINE("device.total", offsetof(struct gpuslice_device, total));
    LINE("device.memory_limit", offsetof(struct gpuslice_device, memory_limit));
    LINE("device.cores_permille", offsetof(struct gpuslice_device, cores_permille));
    LINE("device.context_bytes", offsetof(struct gpuslice_device, context_bytes));
    LINE("device.burst", offsetof(struct gpuslice_device, burst));
    LINE("device.sharing", offsetof(struct gpuslice_device, sharing));
    LINE("device.peak", offsetof(struct gpuslice_device, peak));
    LINE("device.refused", offsetof(struct gpuslice_device, refused));
    LINE("device.unmet", offsetof(struct gpuslice_device, unmet));
    LINE("device.oversubscribe", offsetof(struct gpuslice_device, oversubscribe));
    LINE("device.host_memory", offsetof(struct gpuslice_device, host_memory));
    LINE("device.left_at", offsetof(struct gpuslice_device, left_at));
    LINE("device.room", offsetof(struct gpuslice_device, room));
    LINE("device.room_at", offsetof(struct gpuslice_device, room_at));
    LINE("slots.offset", offsetof(struct gpuslice_region, slots));
    LINE("slot.size", sizeof(struct gpuslice_slot));
    LINE("slot.state", offsetof(struct gpuslice_slot, state));
    LINE("slot.pid", offsetof(struct gpuslice_slot, pid));
    LINE("slot.start", offsetof(struct gpuslice_slot, start));
    LINE("slot.pid_namespace", offsetof(struct gpuslice_slot, pid_namespace));
    LINE("slot.making", offsetof(struct gpuslice_slot, making));
    LINE("held.offset", offsetof(struct gpuslice_region, held));
    LINE("held.lines", GPUSLICE_HELD_LINES);
    LINE("held.row", sizeof(((struct gpuslice_region *)0)->held[0]));
    LINE("refused.offset", offsetof(struct gpuslice_region, refused));
    LINE("refused.row", sizeof(((struct gpuslice_region *)0)->refused[0]));
    LINE("shares.offset", offsetof(struct gpuslice_region, shares));
    LINE("share.size", sizeof(struct gpuslice_share));
    LINE("share.state", offsetof(struct gpuslice_share, state));
    LINE("share.key", offsetof(struct gpuslice_share, key));
    LINE("share.bytes", offsetof(struct gpuslice_share, bytes));
    LINE("time.offset", offsetof(struct gpuslice_region, time));
    LINE("time.size", sizeof(struct gpuslice_device_time));
    LINE("time.paid_until", offsetof(struct gpuslice_device_time, paid_until));
    LINE("time.free_from", offsetof(struct gpuslice_device_time, free_from));
    LINE("time.virtual_time", offsetof(struct gpuslice_device_time, virtual_time));
    LINE("time.bell", offsetof(struct gpuslice_device_time, bell));
    LINE("time.places", offsetof(struct gpuslice_device_time, places));
    LINE("time.overlap", offsetof(struct gpuslice_device_time, overlap));
    LINE("time.factor", offsetof(struct gpuslice_device_time, factor));
    LINE("time.meter", offsetof(struct gpuslice_device_time, meter));
    LINE("time.told", offsetof(struct gpuslice_device_time, told));
    LINE("time.elected", offsetof(struct gpuslice_device_time, elected));
    LINE("time.paid_at", offsetof(struct gpuslice_device_time, paid_at));
    LINE("time.kept_since", offsetof(struct gpuslice_device_time, kept_since));
    LINE("time.kept_until", offsetof(struct gpuslice_device_time, kept_until));
    LINE("time.step_until", offsetof(struct gpuslice_device_time, step_until));
    LINE("time.overdue_at", offsetof(struct gpuslice_device_time, overdue_at));
    LINE("time.ahead_at", offsetof(struct gpuslice_device_time, ahead_at));
    LINE("time.ahead_until", offsetof(struct gpuslice_device_time, ahead_until));
    LINE("time.ring", offsetof(struct gpuslice_device_time, ring));
    LINE("place.size", sizeof(struct gpuslice_place));
    LINE("place.ticket", offsetof(struct gpuslice_place, ticket));
    LINE("place.start", offsetof(struct gpuslice_place, start));
    LINE("place.rest", offsetof(struct gpuslice_place, rest));
    LINE("place.check", offsetof(struct gpuslice_place, check));
    LINE("time.history", offsetof(struct gpuslice_device_time, history));
    LINE("moment.size", sizeof(struct gpuslice_moment));
    LINE("moment.second", offsetof(struct gpuslice_moment, second));
    LINE("moment.used", offsetof(struct gpuslice_moment, used));
    LINE("moment.throttled", offsetof(struct gpuslice_moment, throttled));
    LINE("time.processes", offsetof(struct gpuslice_device_time, processes));
    LINE("process.size", sizeof(struct gpuslice_process_time));
    LINE("process.served", offsetof(struct gpuslice_process_time, served));
    LINE("process.wants", offsetof(struct gpuslice_process_time, wants));
    LINE("process.sleeps_until", offsetof(struct gpuslice_process_time, sleeps_until));
    LINE("process.outstanding", offsetof(struct gpuslice_process_time, outstanding));
    LINE("process.settled_at", offsetof(struct gpuslice_process_time, settled_at));
    LINE("process.queued", offsetof(struct gpuslice_process_time, queued));
    LINE("process.used", offsetof(struct gpuslice_process_time, used));
    LINE("process.throttled", offsetof(struct gpuslice_process_time, throttled));
    LINE("process.copied", offsetof(struct gpuslice_process_time, copied));
    LINE("process.launches", offsetof(struct gpuslice_process_time, launches));
    LINE("process.used_before", offsetof(struct gpuslice_process_time, used_before));
    LINE("process.throttled_before", offsetof(struct gpuslice_process_time, throttled_before));
    LINE("process.copied_before", offsetof(struct gpuslice_process_time, copied_before));
    LINE("process.launches_before", offsetof(struct gpuslice_process_time, launches_before));
    LINE("process.spilled", offsetof(struct gpuslice_process_time, spilled));
    LINE("process.contexts", offsetof(struct gpuslice_process_time, contexts));
}

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

static int is_alive(int file, uint32_t slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    lock.l_start = (off_t)GPUSLICE_LIFE_OFFSET(slot);
    return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* What device, or one process on it, holds beside its words. */
static uint64_t inherited(const struct gpuslice_region *region, uint32_t device, int64_t slot)
{
    uint32_t shared = at_most(load32(&region->header.shared), GPUSLICE_SHARES);
    uint64_t bytes = 0;
    for (uint32_t index = 0; index < shared; index++) {
        uint64_t state = load64(&region->shares[index].state);
        int meant = GPUSLICE_SHARE_DEVICE(state) == device && (slot < 0 || GPUSLICE_SHARE_SLOT(state) == (uint64_t)slot);
        if (meant && GPUSLICE_SHARE_COUNTS(state))
            bytes += load64(&region->shares[index].bytes);
    }
    return bytes;
}

/* GPU time that device's processes have used, the dead included. */
static uint64_t used(const struct gpuslice_region *region, uint32_t device, uint32_t claimed)
{
    const struct gpuslice_device_time *time = &region->time[device];
    uint64_t sum = 0;
    for (uint32_t slot = 0; slot < claimed; slot++)
        sum += load64(&time->processes[slot].used);
    return sum;
}

static void print_region(const struct gpuslice_region *region, int file)
{
    uint32_t devices = at_most(load32(&region->header.device_count), GPUSLICE_DEVICES);
    uint32_t claimed = at_most(load32(&region->header.claimed), GPUSLICE_SLOTS);

    for (uint32_t device = 0; device < devices; device++) {
        const struct gpuslice_device *entry = &region->devices[device];
        uint64_t held = inherited(region, device, -1);
        for (uint32_t slot = 0; slot < claimed; slot++)
            held += GPUSLICE_HELD_BYTES(load64(&region->held[device][GPUSLICE_HELD_AT(slot)]));
        printf("device %" PRIu32 " ", device);
        for (size_t byte = 0; byte < sizeof entry->uuid; byte++)
            printf("%02x", entry->uuid[byte]);
        printf(" total %" PRIu64 " limit %" PRIu64, load64(&entry->total), load64(&entry->memory_limit));
        printf(" cores %" PRIu32 " burst %" PRIu64, load32(&entry->cores_permille), load64(&entry->burst));
        printf(" held %" PRIu64 " used %" PRIu64 "\n", held, used(region, device, claimed));
    }
    for (uint32_t slot = 0; slot < claimed; slot++) {
        const struct gpuslice_slot *entry = &region->slots[slot];
        if (load32(&entry->state) == GPUSLICE_SLOT_FREE)
            continue;
        printf("process %" PRIu32 " pid %" PRIu32 " alive %d", slot, load32(&entry->pid), is_alive(file, slot));
        printf(" held %" PRIu64, GPUSLICE_HELD_BYTES(load64(&region->held[0][GPUSLICE_HELD_AT(slot)])) + inherited(region, 0, slot));
        printf(" refused %" PRIu32, load32(&region->refused[slot][0]));
        const struct gpuslice_process_time *time = &region->time[0].processes[slot];
        printf(" used %" PRIu64 "\n", load64(&time->used) - load64(&time->used_before));
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_layout();
        return 0;
    }
    int file = open(argv[1], O_RDWR | O_CLOEXEC);
    if (file < 0) {
        perror(argv[1]);
        return 1;
    }
    const struct gpuslice_region *region = mmap(NULL, GPUSLICE_SIZE, PROT_READ, MAP_SHARED, file, 0);
    if (region == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    if (memcmp(region->header.magic, GPUSLICE_MAGIC, sizeof region->header.magic) != 0
        || load32(&region->header.version) != GPUSLICE_VERSION || load64(&region->header.size) != GPUSLICE_SIZE
        || load32(&region->header.ready) != GPUSLICE_READY) {
        fprintf(stderr, "%s: no region of version %u\n", argv[1], GPUSLICE_VERSION);
        return 1;
    }
    print_region(region, file);
    return 0;
}
