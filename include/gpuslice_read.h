/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what gpuslice's slices have and use, for monitoring programs: link with libgpuslice_read. C99, C++11.
 *
 *     gpuslice_slice *slice;
 *     struct gpuslice_device_figures device;
 *     int status = gpuslice_open("red", &slice);
 *     if (status == GPUSLICE_OK) {
 *         status = gpuslice_read_device(slice, 0, &device, sizeof device);
 *         gpuslice_close(slice);
 *     }
 *     if (status != GPUSLICE_OK) fprintf(stderr, "%s\n", gpuslice_error_text(status));
 *
 * Nothing is written, but by gpuslice_reap: the right to read a slice's region is enough. (A region is its owner's
 * alone, mode 0600, unless somebody has changed that; root reads all.)
 *
 * A handle is one slice's. When its region is removed, replaced, damaged, or made anew for another slice, every
 * function that reads says so from then on, and nothing it says is taken from what is left: close it, and open it
 * again. Each figure is exact for an instant during the call; those of one call need not be of the same instant.
 *
 * All functions may be called in all threads at the same time, with the same handle too; only gpuslice_close must be
 * the last with its handle. They may be called in a forked child, and must not be in a signal handler. No function waits
 * for another process. The library keeps nothing outside of handles, but for this: gpuslice_open sets a handler for
 * SIGBUS, once in a process, because the kernel sends that signal to who reads a file that has been shortened. It
 * passes every other SIGBUS on to the handler that was there, and stays when the library is closed. A program that
 * sets its own handler later, or reads in a thread that blocks SIGBUS, is ended when a region is shortened while it
 * reads.
 *
 * Sizes are bytes, spans GPU time in nanoseconds unless they are said to be on the clock, instants nanoseconds of
 * CLOCK_MONOTONIC. Counts are since the region was made (anew), and never fall for a handle.
 */
#ifndef GPUSLICE_READ_H
#define GPUSLICE_READ_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. Later ones add; what would break a program has another soname. */
#define GPUSLICE_API_VERSION 2u

/* The memory limit of a device without one. */
#define GPUSLICE_NO_LIMIT UINT64_MAX
/* `share_permille` of a device whose time is not limited. */
#define GPUSLICE_WHOLE_SHARE 1000u
/* `factor_millionths` where nothing is taken off. */
#define GPUSLICE_WHOLE_FACTOR 1000000u

/* What a function returns. */
enum gpuslice_status {
    GPUSLICE_OK = 0,
    GPUSLICE_ERROR_ARGUMENT = 1,       /* a null pointer, an empty name, a structure that is too small */
    GPUSLICE_ERROR_NO_SLICE = 2,       /* there is none of this name, or it has not begun */
    GPUSLICE_ERROR_AMBIGUOUS = 3,      /* several have this name: give a path */
    GPUSLICE_ERROR_PERMISSION = 4,     /* this user may not read the region; errno is set */
    GPUSLICE_ERROR_NOT_A_REGION = 5,   /* the file is something else */
    GPUSLICE_ERROR_VERSION = 6,        /* the region is of another version than gpuslice_layout_version() */
    GPUSLICE_ERROR_DAMAGED = 7,        /* the region was shortened or overwritten: the slice is lost */
    GPUSLICE_ERROR_REPLACED = 8,       /* the region was removed, or another one is in its place */
    GPUSLICE_ERROR_RENEWED = 9,        /* the region was made anew: another slice */
    GPUSLICE_ERROR_NO_DEVICE = 10,     /* the slice has no device of this number */
    GPUSLICE_ERROR_ROOM = 11,          /* there is more than there is room for; what there is room for is filled */
    GPUSLICE_ERROR_TOO_MANY_OPEN = 12, /* 1024 slices are open in this process */
    GPUSLICE_ERROR_SYSTEM = 13,        /* the system refused; errno says why */
    GPUSLICE_ERROR_BUSY = 14,          /* gpuslice_reap: another process clears, or joins, just now */
    GPUSLICE_ERROR_INTERNAL = 15       /* a mistake of the library */
};

/* How slices divide a device's time. */
enum gpuslice_policy { GPUSLICE_POLICY_FIXED = 0, GPUSLICE_POLICY_EQUAL = 1, GPUSLICE_POLICY_BEST_EFFORT = 2 };
enum gpuslice_priority { GPUSLICE_PRIORITY_NORMAL = 0, GPUSLICE_PRIORITY_HIGH = 1, GPUSLICE_PRIORITY_LOW = 2 };

/* How GPU time is measured. Later versions may know more. */
enum gpuslice_meter {
    GPUSLICE_METER_NONE = 0,            /* nothing has been measured yet */
    GPUSLICE_METER_EVENTS = 1,          /* by timing events; no neighbour's time is taken off */
    GPUSLICE_METER_EVENTS_AND_NVML = 2, /* by timing events, less what is the neighbours' by NVML */
    GPUSLICE_METER_NVML = 3,            /* by NVML alone */
    GPUSLICE_METER_ESTIMATES = 4        /* events fail: estimated */
};

/* A slice that is open. */
typedef struct gpuslice_slice gpuslice_slice;

/*
 * What a slice has and uses of a device. Later versions add fields at the end: functions are told the size of the
 * caller's, fill no more, and set what they do not know to 0.
 */
struct gpuslice_device_figures {
    uint8_t uuid[16];         /* as CUDA and NVML have it */
    uint64_t total;           /* memory of the device */
    uint64_t memory_limit;    /* the slice's quota, or GPUSLICE_NO_LIMIT */
    uint64_t held;            /* by living processes, reservations under way included; contexts and code if made under a quota */
    uint64_t held_by_dead;    /* counts as well until a member needs it, or gpuslice_reap */
    uint64_t peak;            /* the most that was granted at a time */
    uint64_t refused;         /* allocations that passed the quota */
    uint64_t unmet;           /* allocations within the quota that the driver had no memory for */
    uint64_t spilled;         /* beyond the quota, in host memory */
    uint64_t burst_ns;        /* that may be saved up */
    uint64_t used_ns;         /* by processes that have ended too; as are the three counts below */
    uint64_t throttled_ns;    /* on the clock, that launches waited for the share */
    uint64_t queued_ns;       /* predicted for the work that is under way; no count */
    uint64_t copied_ns;       /* by copies within the device */
    uint64_t launches;
    uint64_t paid_until_ns;   /* instant up to which the slice's GPU time is paid: one that has passed is time saved up */
    uint64_t read_at_ns;      /* instant of this reading */
    uint32_t number;          /* of the device, in the slice */
    uint32_t share_permille;  /* of the device's time */
    uint32_t policy;          /* enum gpuslice_policy */
    uint32_t priority;        /* enum gpuslice_priority */
    uint32_t weight;          /* 1 to 1000 */
    uint32_t oversubscribe;   /* 1: what passes the quota is served from host memory */
    uint32_t meter;           /* enum gpuslice_meter */
    uint32_t factor_millionths; /* the slice's own part of the time between events */
    uint64_t held_by_contexts; /* a part of `held`: all contexts of the living, and what limits of theirs were seen to add. Since version 2 */
};

/* What a process has and uses of a device. What it is, it says itself. */
struct gpuslice_process_figures {
    uint64_t start;         /* clock ticks since boot; 0: not known */
    uint64_t pid_namespace; /* inode of its process-number namespace; 0: not known */
    uint64_t held;          /* what it is charged for */
    uint64_t refused;       /* modulo 2^32 */
    uint64_t spilled;
    uint64_t used_ns;
    uint64_t throttled_ns;
    uint64_t queued_ns;
    uint64_t copied_ns;
    uint64_t launches;
    uint32_t slot;          /* its place in the slice, which no other living process has */
    uint32_t pid;           /* in its own process-number namespace */
    uint64_t held_by_contexts; /* a part of `held`. Since version 2 */
};

/* The version of the library's interface: GPUSLICE_API_VERSION of its header. */
uint32_t gpuslice_api_version(void);
/* The version of regions that the library reads (docs/region.md). */
uint32_t gpuslice_layout_version(void);
/* What a status means: a sentence that lives for ever. Never null. */
const char *gpuslice_error_text(int status);

/*
 * Writes the paths of the regions in /dev/shm and of that of the slice or container that this process is in, sorted, each
 * ended by a zero and an empty one behind the last. Some may not open: other users', or no region at all. `needed`, unless it is null, becomes the bytes that all take; if `room`
 * is less, nothing is written, and it is GPUSLICE_ERROR_ROOM.
 */
int gpuslice_list(char *paths, size_t room, size_t *needed);

/*
 * Opens a slice: by the path of its region if there is a slash in it, otherwise by its name as `gpuslice list` shows it.
 * `*opened` becomes null where it fails.
 */
int gpuslice_open(const char *slice, gpuslice_slice **opened);
/* Closes it. Null does nothing. */
void gpuslice_close(gpuslice_slice *slice);
/* The slice's name, and its region's path. They live until it is closed; null for null. */
const char *gpuslice_name(const gpuslice_slice *slice);
const char *gpuslice_path(const gpuslice_slice *slice);

/* How often the region has been made anew: tells two slices apart that had the same region. */
int gpuslice_epoch(const gpuslice_slice *slice, uint64_t *epoch);
/* Devices of the slice: their numbers are below it. None until its first process has started CUDA; more may come. */
int gpuslice_device_count(const gpuslice_slice *slice, uint32_t *count);
/* Reads a device's figures. `size` is sizeof *figures. */
int gpuslice_read_device(const gpuslice_slice *slice, uint32_t device, struct gpuslice_device_figures *figures, size_t size);

/* Living processes of the slice. */
int gpuslice_process_count(const gpuslice_slice *slice, uint32_t *count);
/*
 * Reads what the living processes have and use of a device, by slot. There is room for `room` of them in `figures`;
 * `size` is sizeof *figures. `count`, unless it is null, becomes how many live; if they are more than `room`, as many as
 * fit are filled, and it is GPUSLICE_ERROR_ROOM. A slice has at most 1024.
 */
int gpuslice_read_processes(const gpuslice_slice *slice, uint32_t device, struct gpuslice_process_figures *figures,
                            size_t size, size_t room, size_t *count);

/*
 * Clears what dead processes hold, as the slice's members do when they need room, and says of how many. The only function
 * that writes: it needs that right. Nobody else has to call it: figures tell the dead from the living without.
 */
int gpuslice_reap(const gpuslice_slice *slice, uint32_t *cleared);

#ifdef __cplusplus
}
#endif

#endif
