/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of a region: the file that the processes of a gpuslice slice share. For programs in C that read it.
 *
 * All numbers are unsigned, in the machine's own byte order, and may change at any instant. Map the file shared, and
 * read each number with one load of its full width. Check `magic`, `version`, `size` and `ready` first, and refuse the
 * file if one differs. Check counts against the constants before you use them as bounds. docs/internals/region.md says which
 * process writes each word, and in which memory order. Programs in C should only read; their writes are not protected.
 */
#ifndef GPUSLICE_H
#define GPUSLICE_H

#include <stddef.h>
#include <stdint.h>

/* "gpuslice", as the first eight bytes of the file. */
#define GPUSLICE_MAGIC "gpuslice"
/* The version of this layout. Every change of the bytes gets another number, but a reserved word may get a meaning without one. */
#define GPUSLICE_VERSION 16u
/* Size of the file in bytes. */
#define GPUSLICE_SIZE 13905920u
/* The most processes, devices and uses of shared memory of a slice. */
#define GPUSLICE_SLOTS 1024
#define GPUSLICE_DEVICES 64
#define GPUSLICE_SHARES 4096
/* Busy intervals that a ring of the region keeps for a device. */
#define GPUSLICE_INTERVALS 1024
/* Usage samples that the region keeps for a device, one a second. */
#define GPUSLICE_SECONDS 64
/* `ready` of a region that may be used. */
#define GPUSLICE_READY 1u
/* `memory_limit` of a device without a quota. */
#define GPUSLICE_NO_LIMIT UINT64_MAX
/* `cores_permille` of a device without a limit on its time. */
#define GPUSLICE_WHOLE_SHARE 1000u
/* `oversubscribe` of a device on which allocations beyond the quota are served from host memory: "pill". */
#define GPUSLICE_OVERSUBSCRIBED 0x6c6c6970u
/* `host_memory` of a device that has the host's memory: "host". */
#define GPUSLICE_HOST_MEMORY 0x74736f68u
/* `unlimited_hint` while no device had a share to pay for: "free". */
#define GPUSLICE_UNLIMITED 0x65657266u
/* `state` of a slot. */
#define GPUSLICE_SLOT_FREE 0u
#define GPUSLICE_SLOT_TAKEN 1u

/* The two parts of a word of `held`: bytes held, and pending reservations, which may still be withdrawn. */
#define GPUSLICE_HELD_BYTES(word) ((uint64_t)(word) & ((UINT64_C(1) << 48) - 1))
#define GPUSLICE_HELD_PENDING(word) ((uint64_t)(word) >> 48)

/* Index of the word of a slot in its row of `held`: slots in sequence have words in different cache lines. */
#define GPUSLICE_HELD_LINES 64
#define GPUSLICE_HELD_AT(slot) \
    ((slot) % GPUSLICE_HELD_LINES * (GPUSLICE_SLOTS / GPUSLICE_HELD_LINES) + (slot) / GPUSLICE_HELD_LINES)

/*
 * Locks are open-file-description locks (F_OFD_SETLK, F_OFD_GETLK) on single bytes. A process that takes or frees a slot
 * or adds a device has a write lock on byte 0. A process that changes some of a device's limits has a write lock on the
 * byte GPUSLICE_LIMITS_LOCK_OFFSET while it reads and writes them. The process in slot i is alive while there is a write
 * lock on the byte GPUSLICE_LIFE_OFFSET(i).
 */
#define GPUSLICE_JOIN_LOCK_OFFSET 0
#define GPUSLICE_LIMITS_LOCK_OFFSET offsetof(struct gpuslice_region, devices)
#define GPUSLICE_LIFE_OFFSET(slot) (offsetof(struct gpuslice_region, slots) + (slot) * sizeof(struct gpuslice_slot))

/* GPU time that the slice owes on a device, from the end of its last process until a process uses the device again. */
struct gpuslice_debt {
    uint8_t uuid[16];        /* the device */
    uint64_t paid_until;     /* instant up to which its GPU time is paid, on the monotonic clock; 0: the entry is empty */
    uint64_t burst;          /* GPU time that the slice could save up, in nanoseconds */
    uint32_t cores_permille; /* the share that pays */
    uint32_t reserved;
};

/* Facts about the whole region. An epoch lasts from one initialisation of the region to the next. */
struct gpuslice_header {
    uint8_t magic[8];
    uint32_t version;
    uint32_t ready;
    uint64_t size;
    uint64_t epoch;            /* number of initialisations of the region */
    uint32_t slot_high_water;  /* every taken slot is below this one */
    uint32_t device_count;     /* valid entries of `devices` */
    uint32_t last_joiner_pid;  /* process that last had the lock on byte 0 */
    uint32_t share_high_water; /* every used share is below this one */
    uint64_t transfer_seq;     /* number of times that a charge moved to a share */
    uint32_t unlimited_hint;   /* GPUSLICE_UNLIMITED while no device had a share to pay for in this epoch */
    uint32_t reserved;
    uint64_t boot[2];          /* the boot of the machine in which the region was initialised; 0: not known */
    uint64_t reaper;           /* process that reaps after the file was removed; 0: none */
    struct gpuslice_debt debts[GPUSLICE_DEVICES];
    uint8_t reserved_too[1448];
};

/* A device. */
struct gpuslice_device {
    uint8_t uuid[16];
    uint64_t total;           /* bytes of memory of the device */
    uint64_t memory_limit;    /* bytes that the slice may hold */
    uint32_t cores_permille;  /* the slice's share of the device's time; below the whole only with 0 in `unlimited_hint` */
    uint32_t unused;
    uint64_t context_bytes;   /* one more than the largest measured size of a context; 0: none was measured */
    uint64_t burst;           /* GPU time that the slice may save up, in nanoseconds */
    uint64_t sharing;         /* bits 0-7 policy, 8-15 priority, from 16 weight; the first two only with 0 in `unlimited_hint` */
    uint64_t peak;            /* the most bytes that were granted at a time */
    uint64_t quota_denials;   /* allocations denied because of the quota */
    uint64_t device_denials;  /* allocations within the quota for which the driver had no memory */
    uint32_t oversubscribe;   /* GPUSLICE_OVERSUBSCRIBED: allocations beyond the quota are served from host memory */
    uint32_t host_memory;     /* GPUSLICE_HOST_MEMORY: the device's memory is the host's */
    uint64_t holder_died_at;  /* when a dead process with its memory was last reaped, on the monotonic clock; 0: never */
    uint64_t available;       /* one more than the sum of free memory and the slice's bytes; 0: not known */
    uint8_t reserved[16];
};

/* A process. */
struct gpuslice_slot {
    uint32_t state;
    uint32_t pid;               /* in its own process-number namespace */
    uint64_t start;             /* clock ticks since boot */
    uint64_t pid_namespace;     /* inode of the namespace */
    uint64_t context_creations; /* bits 0-31 contexts that it is creating, from 32 all that it began to create */
    uint64_t memory_calls;      /* bits 0-31 calls under way that take or free memory, from 32 all that began */
    uint8_t reserved[88];
};

/* A process's use of memory that other processes can use as well. */
struct gpuslice_share {
    uint64_t state; /* bits 0-7 its role, 8-15 the device, from 16 the slot */
    uint64_t key;   /* all uses of one allocation have the same key */
    uint64_t bytes;
    uint64_t unused;
};

/*
 * Whether a share's bytes count beside the words of `held`. Reasons: its process pays for the memory of another (4, 6); its
 * process is dead and the device may not have the memory back (7).
 */
#define GPUSLICE_SHARE_COUNTS(state) (((state) & 0xff) == 4 || ((state) & 0xff) == 6 || ((state) & 0xff) == 7)
#define GPUSLICE_SHARE_DEVICE(state) ((state) >> 8 & 0xff)
#define GPUSLICE_SHARE_SLOT(state) ((state) >> 16)

/* An interval in which the GPU was busy for a slice. */
struct gpuslice_interval {
    uint64_t ticket;   /* number of the interval plus 1 */
    uint64_t start;
    uint64_t packed;   /* bits 0 to 46 length, 47 to 62 context, 63 whether the work goes on */
    uint64_t checksum; /* made of the other three: docs/internals/region.md says how */
};

/* Sums over all processes at the start of a second. */
struct gpuslice_usage_sample {
    uint64_t second; /* of CLOCK_MONOTONIC, plus 1; 0 while a process writes the sample */
    uint64_t charged_ns;
    uint64_t throttled_ns;
    uint64_t unused;
};

/* The state of a process on a device. Instants are on CLOCK_MONOTONIC, durations GPU time, both in nanoseconds. */
struct gpuslice_process_time {
    uint64_t virtual_service;      /* GPU time that the process was served, as virtual time */
    uint64_t requested_ns;         /* GPU time that the process waits for; 0: it does not wait */
    uint64_t sleep_deadline;       /* 0: it does not sleep */
    uint64_t unsettled_ns;         /* prepaid GPU time, neither settled nor refunded */
    uint64_t settled_at;
    uint64_t queued_ns;            /* bits 0-61 predicted work under way, 62 work under way, 63 work without a prediction */
    uint64_t charged_ns;           /* includes earlier processes of the slot, as the next three do; never falls */
    uint64_t throttled_ns;         /* wall time that launches were throttled */
    uint64_t copied_ns;
    uint64_t launches;
    uint64_t charged_ns_at_join;   /* the counts when the process joined */
    uint64_t throttled_ns_at_join;
    uint64_t copied_ns_at_join;
    uint64_t launches_at_join;
    uint64_t spilled_bytes;        /* bytes beyond the quota that it holds in host memory */
    uint64_t context_bytes;        /* bytes of `held` for contexts */
};

/* A device's compute ledger. Each of its first parts has a line of 128 bytes. */
struct gpuslice_device_time {
    uint64_t paid_until;            /* instant up to which the slice's GPU time is paid */
    uint64_t free_from;             /* instant from which time is free */
    uint8_t reserved0[112];
    uint64_t virtual_time;
    uint8_t reserved1[120];
    uint32_t wake_seq;              /* a futex */
    uint8_t reserved2[124];
    uint64_t overlap;
    uint8_t reserved3[120];
    uint32_t correction_millionths; /* the slice's own part of busy time; 0: not known, and all of it counts */
    uint32_t measure_source;        /* the source of measured GPU time: docs/internals/region.md */
    uint64_t grant;                 /* the rate that the arbiter grants: docs/internals/region.md */
    uint64_t divided_at;            /* when the node agent last divided the GPU */
    uint64_t programs_at;           /* when the node agent last saw programs on the GPU that publish nothing */
    uint8_t reserved4[96];
    uint64_t sampler_lease;         /* the process that samples NVML */
    uint8_t reserved5[120];
    uint64_t last_payment_at;       /* when a process last paid */
    uint64_t throttled_from;        /* when the last long throttle began */
    uint64_t throttled_until;       /* when that throttle ended */
    uint64_t coupled_until;         /* instant until which the device is coupled with others */
    uint64_t overrun_seen_at;       /* when a batch was last seen that may wait for another device */
    uint64_t overdraft_at;          /* when a launch last went beyond the share for such a batch */
    uint64_t overdraft_paid_until;  /* instant up to which overdrafts of any kind are paid */
    uint64_t round;                 /* number of the last payment among those of coupled devices */
    uint8_t reserved6[64];
    uint64_t interval_head;         /* number of published intervals */
    uint8_t reserved7[120];
    struct gpuslice_interval intervals[GPUSLICE_INTERVALS];
    uint64_t relayed_head;          /* number of intervals that the node agent has relayed */
    uint8_t reserved8[120];
    struct gpuslice_interval relayed[GPUSLICE_INTERVALS]; /* of slices of other directories */
    struct gpuslice_usage_sample history[GPUSLICE_SECONDS];
    struct gpuslice_process_time processes[GPUSLICE_SLOTS];
    uint8_t reserved[896];
};

/* The whole file. Only the first `device_count` entries of `time` have space; do not touch the others. */
struct gpuslice_region {
    struct gpuslice_header header;
    struct gpuslice_device devices[GPUSLICE_DEVICES];
    struct gpuslice_slot slots[GPUSLICE_SLOTS];
    uint64_t held[GPUSLICE_DEVICES][GPUSLICE_SLOTS];
    uint32_t quota_denials[GPUSLICE_SLOTS][GPUSLICE_DEVICES];
    struct gpuslice_share shares[GPUSLICE_SHARES];
    struct gpuslice_device_time time[GPUSLICE_DEVICES];
};

#if defined(__cplusplus)
#define GPUSLICE_ASSERT(what) static_assert(what, #what)
#else
#define GPUSLICE_ASSERT(what) _Static_assert(what, #what)
#endif

GPUSLICE_ASSERT(offsetof(struct gpuslice_header, ready) == 12);
GPUSLICE_ASSERT(offsetof(struct gpuslice_header, size) == 16);
GPUSLICE_ASSERT(offsetof(struct gpuslice_header, slot_high_water) == 32);
GPUSLICE_ASSERT(offsetof(struct gpuslice_header, last_joiner_pid) == 40);
GPUSLICE_ASSERT(offsetof(struct gpuslice_device, cores_permille) == 32);
GPUSLICE_ASSERT(offsetof(struct gpuslice_device, context_bytes) == 40);
GPUSLICE_ASSERT(offsetof(struct gpuslice_slot, pid_namespace) == 16);
GPUSLICE_ASSERT(offsetof(struct gpuslice_region, devices) == 4096);
GPUSLICE_ASSERT(offsetof(struct gpuslice_region, slots) == 12288);
GPUSLICE_ASSERT(offsetof(struct gpuslice_region, held) == 143360);
GPUSLICE_ASSERT(offsetof(struct gpuslice_region, quota_denials) == 667648);
GPUSLICE_ASSERT(offsetof(struct gpuslice_region, shares) == 929792);
GPUSLICE_ASSERT(offsetof(struct gpuslice_device, burst) == 48);
GPUSLICE_ASSERT(offsetof(struct gpuslice_process_time, context_bytes) == 120);
GPUSLICE_ASSERT(sizeof(struct gpuslice_process_time) == 128);
GPUSLICE_ASSERT(offsetof(struct gpuslice_device_time, intervals) == 1024);
GPUSLICE_ASSERT(sizeof(struct gpuslice_device_time) == 200704);
GPUSLICE_ASSERT(offsetof(struct gpuslice_region, time) == 1060864);
GPUSLICE_ASSERT(sizeof(struct gpuslice_region) == GPUSLICE_SIZE);

#undef GPUSLICE_ASSERT

#endif
