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
    LINE("intervals", GPUSLICE_INTERVALS);
    LINE("oversubscribed", GPUSLICE_OVERSUBSCRIBED);
    LINE("unlimited", GPUSLICE_UNLIMITED);
    LINE("host_memory", GPUSLICE_HOST_MEMORY);
    LINE("seconds", GPUSLICE_SECONDS);
    LINE("header.magic", offsetof(struct gpuslice_region, header.magic));
    LINE("header.version", offsetof(struct gpuslice_region, header.version));
    LINE("header.ready", offsetof(struct gpuslice_region, header.ready));
    LINE("header.size", offsetof(struct gpuslice_region, header.size));
    LINE("header.epoch", offsetof(struct gpuslice_region, header.epoch));
    LINE("header.slot_high_water", offsetof(struct gpuslice_region, header.slot_high_water));
    LINE("header.device_count", offsetof(struct gpuslice_region, header.device_count));
    LINE("header.last_joiner_pid", offsetof(struct gpuslice_region, header.last_joiner_pid));
    LINE("header.share_high_water", offsetof(struct gpuslice_region, header.share_high_water));
    LINE("header.transfer_seq", offsetof(struct gpuslice_region, header.transfer_seq));
    LINE("header.unlimited_hint", offsetof(struct gpuslice_region, header.unlimited_hint));
    LINE("header.boot", offsetof(struct gpuslice_region, header.boot));
    LINE("header.reaper", offsetof(struct gpuslice_region, header.reaper));
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
    LINE("device.quota_denials", offsetof(struct gpuslice_device, quota_denials));
    LINE("device.device_denials", offsetof(struct gpuslice_device, device_denials));
    LINE("device.oversubscribe", offsetof(struct gpuslice_device, oversubscribe));
    LINE("device.host_memory", offsetof(struct gpuslice_device, host_memory));
    LINE("device.holder_died_at", offsetof(struct gpuslice_device, holder_died_at));
    LINE("device.available", offsetof(struct gpuslice_device, available));
    LINE("slots.offset", offsetof(struct gpuslice_region, slots));
    LINE("slot.size", sizeof(struct gpuslice_slot));
    LINE("slot.state", offsetof(struct gpuslice_slot, state));
    LINE("slot.pid", offsetof(struct gpuslice_slot, pid));
    LINE("slot.start", offsetof(struct gpuslice_slot, start));
    LINE("slot.pid_namespace", offsetof(struct gpuslice_slot, pid_namespace));
    LINE("slot.context_creations", offsetof(struct gpuslice_slot, context_creations));
    LINE("slot.memory_calls", offsetof(struct gpuslice_slot, memory_calls));
    LINE("held.offset", offsetof(struct gpuslice_region, held));
    LINE("held.lines", GPUSLICE_HELD_LINES);
    LINE("held.row", sizeof(((struct gpuslice_region *)0)->held[0]));
    LINE("quota_denials.offset", offsetof(struct gpuslice_region, quota_denials));
    LINE("quota_denials.row", sizeof(((struct gpuslice_region *)0)->quota_denials[0]));
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
    LINE("time.wake_seq", offsetof(struct gpuslice_device_time, wake_seq));
    LINE("time.overlap", offsetof(struct gpuslice_device_time, overlap));
    LINE("time.correction_millionths", offsetof(struct gpuslice_device_time, correction_millionths));
    LINE("time.measure_source", offsetof(struct gpuslice_device_time, measure_source));
    LINE("time.grant", offsetof(struct gpuslice_device_time, grant));
    LINE("time.divided_at", offsetof(struct gpuslice_device_time, divided_at));
    LINE("time.programs_at", offsetof(struct gpuslice_device_time, programs_at));
    LINE("time.sampler_lease", offsetof(struct gpuslice_device_time, sampler_lease));
    LINE("time.last_payment_at", offsetof(struct gpuslice_device_time, last_payment_at));
    LINE("time.throttled_from", offsetof(struct gpuslice_device_time, throttled_from));
    LINE("time.throttled_until", offsetof(struct gpuslice_device_time, throttled_until));
    LINE("time.coupled_until", offsetof(struct gpuslice_device_time, coupled_until));
    LINE("time.overrun_seen_at", offsetof(struct gpuslice_device_time, overrun_seen_at));
    LINE("time.overdraft_at", offsetof(struct gpuslice_device_time, overdraft_at));
    LINE("time.overdraft_paid_until", offsetof(struct gpuslice_device_time, overdraft_paid_until));
    LINE("time.round", offsetof(struct gpuslice_device_time, round));
    LINE("time.interval_head", offsetof(struct gpuslice_device_time, interval_head));
    LINE("time.intervals", offsetof(struct gpuslice_device_time, intervals));
    LINE("time.relayed_head", offsetof(struct gpuslice_device_time, relayed_head));
    LINE("time.relayed", offsetof(struct gpuslice_device_time, relayed));
    LINE("interval.size", sizeof(struct gpuslice_interval));
    LINE("interval.ticket", offsetof(struct gpuslice_interval, ticket));
    LINE("interval.start", offsetof(struct gpuslice_interval, start));
    LINE("interval.packed", offsetof(struct gpuslice_interval, packed));
    LINE("interval.checksum", offsetof(struct gpuslice_interval, checksum));
    LINE("time.history", offsetof(struct gpuslice_device_time, history));
    LINE("sample.size", sizeof(struct gpuslice_usage_sample));
    LINE("sample.second", offsetof(struct gpuslice_usage_sample, second));
    LINE("sample.charged_ns", offsetof(struct gpuslice_usage_sample, charged_ns));
    LINE("sample.throttled_ns", offsetof(struct gpuslice_usage_sample, throttled_ns));
    LINE("time.processes", offsetof(struct gpuslice_device_time, processes));
    LINE("process.size", sizeof(struct gpuslice_process_time));
    LINE("process.virtual_service", offsetof(struct gpuslice_process_time, virtual_service));
    LINE("process.requested_ns", offsetof(struct gpuslice_process_time, requested_ns));
    LINE("process.sleep_deadline", offsetof(struct gpuslice_process_time, sleep_deadline));
    LINE("process.unsettled_ns", offsetof(struct gpuslice_process_time, unsettled_ns));
    LINE("process.settled_at", offsetof(struct gpuslice_process_time, settled_at));
    LINE("process.queued_ns", offsetof(struct gpuslice_process_time, queued_ns));
    LINE("process.charged_ns", offsetof(struct gpuslice_process_time, charged_ns));
    LINE("process.throttled_ns", offsetof(struct gpuslice_process_time, throttled_ns));
    LINE("process.copied_ns", offsetof(struct gpuslice_process_time, copied_ns));
    LINE("process.launches", offsetof(struct gpuslice_process_time, launches));
    LINE("process.charged_ns_at_join", offsetof(struct gpuslice_process_time, charged_ns_at_join));
    LINE("process.throttled_ns_at_join", offsetof(struct gpuslice_process_time, throttled_ns_at_join));
    LINE("process.copied_ns_at_join", offsetof(struct gpuslice_process_time, copied_ns_at_join));
    LINE("process.launches_at_join", offsetof(struct gpuslice_process_time, launches_at_join));
    LINE("process.spilled_bytes", offsetof(struct gpuslice_process_time, spilled_bytes));
    LINE("process.context_bytes", offsetof(struct gpuslice_process_time, context_bytes));
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

/* Returns the bytes that processes pay for in the table of shared memory: of a device, or of one slot on it. */
static uint64_t transferred(const struct gpuslice_region *region, uint32_t device, int64_t slot)
{
    uint32_t shared = at_most(load32(&region->header.share_high_water), GPUSLICE_SHARES);
    uint64_t bytes = 0;
    for (uint32_t index = 0; index < shared; index++) {
        uint64_t state = load64(&region->shares[index].state);
        int meant = GPUSLICE_SHARE_DEVICE(state) == device && (slot < 0 || GPUSLICE_SHARE_SLOT(state) == (uint64_t)slot);
        if (meant && GPUSLICE_SHARE_COUNTS(state))
            bytes += load64(&region->shares[index].bytes);
    }
    return bytes;
}

/* Returns the GPU time that a device's processes have used, dead ones included. */
static uint64_t used(const struct gpuslice_region *region, uint32_t device, uint32_t claimed)
{
    const struct gpuslice_device_time *time = &region->time[device];
    uint64_t sum = 0;
    for (uint32_t slot = 0; slot < claimed; slot++)
        sum += load64(&time->processes[slot].charged_ns);
    return sum;
}

static void print_region(const struct gpuslice_region *region, int file)
{
    uint32_t devices = at_most(load32(&region->header.device_count), GPUSLICE_DEVICES);
    uint32_t claimed = at_most(load32(&region->header.slot_high_water), GPUSLICE_SLOTS);

    for (uint32_t device = 0; device < devices; device++) {
        const struct gpuslice_device *entry = &region->devices[device];
        uint64_t held = transferred(region, device, -1);
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
        printf(" held %" PRIu64, GPUSLICE_HELD_BYTES(load64(&region->held[0][GPUSLICE_HELD_AT(slot)])) + transferred(region, 0, slot));
        printf(" refused %" PRIu32, load32(&region->quota_denials[slot][0]));
        const struct gpuslice_process_time *time = &region->time[0].processes[slot];
        printf(" used %" PRIu64 "\n", load64(&time->charged_ns) - load64(&time->charged_ns_at_join));
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
