/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the figures of gpuslice's slices, for monitoring programs. Link with libgpuslice_read. C99, C++11.
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
 * Only gpuslice_reap writes, so the right to read a slice's region is enough. A region has mode 0600: its owner and root
 * can read it, unless its owner has changed the mode.
 *
 * A handle belongs to one slice. Its region may be removed, replaced, damaged, or initialised again for another slice.
 * From then on every function that reads returns the status for this event, and no figures. Close the handle then, and
 * open the slice again. Each figure is exact for an instant during the call. Figures of one call may be of different
 * instants.
 *
 * All functions may be called in all threads at the same time, with the same handle too. gpuslice_close must be the last
 * call with its handle. The functions may be called in a forked child, and must not be called in a signal handler. No
 * function waits for another process.
 *
 * The library keeps no state outside of handles, except a handler for SIGBUS. gpuslice_open sets it once in a process,
 * because the kernel sends SIGBUS to a process that reads a truncated file. The handler passes every other SIGBUS on to
 * the handler that was set before. It stays when the library is closed. A truncated region ends the program in two cases:
 * the program sets its own handler later, or the thread that reads blocks SIGBUS.
 *
 * Sizes are in bytes. Durations and instants are in nanoseconds. Durations are GPU time unless a comment calls them wall
 * time. Instants are on CLOCK_MONOTONIC. Counts start when the region is initialised, and never fall for a handle.
 */
#ifndef GPUSLICE_READ_H
#define GPUSLICE_READ_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. Later versions add to it; a change that would break programs needs another soname. */
#define GPUSLICE_API_VERSION 3u

/* `memory_limit` of a device without a memory limit. */
#define GPUSLICE_NO_LIMIT UINT64_MAX
/* `share_permille` of a device without a limit on its time. */
#define GPUSLICE_WHOLE_SHARE 1000u
/* `factor_millionths` without a correction. */
#define GPUSLICE_WHOLE_FACTOR 1000000u

/* Results of the functions. */
enum gpuslice_status {
    GPUSLICE_OK = 0,
    GPUSLICE_ERROR_ARGUMENT = 1,       /* a null pointer, an empty name, a structure that is too small */
    GPUSLICE_ERROR_NO_SLICE = 2,       /* there is no slice with this name, or it has not started */
    GPUSLICE_ERROR_AMBIGUOUS = 3,      /* several slices have this name: give a path */
    GPUSLICE_ERROR_PERMISSION = 4,     /* this user may not read the region; errno is set */
    GPUSLICE_ERROR_NOT_A_REGION = 5,   /* the file is not a region */
    GPUSLICE_ERROR_VERSION = 6,        /* the region has another version than gpuslice_layout_version() */
    GPUSLICE_ERROR_DAMAGED = 7,        /* the region was truncated or overwritten: the slice is lost */
    GPUSLICE_ERROR_REPLACED = 8,       /* the region was removed, or another one is in its place */
    GPUSLICE_ERROR_RENEWED = 9,        /* another slice has the region now */
    GPUSLICE_ERROR_NO_DEVICE = 10,     /* the slice has no device of this number */
    GPUSLICE_ERROR_ROOM = 11,          /* the answer is larger than the room; the room is filled */
    GPUSLICE_ERROR_TOO_MANY_OPEN = 12, /* 4096 slices are open in this process */
    GPUSLICE_ERROR_SYSTEM = 13,        /* a system call failed; errno is set */
    GPUSLICE_ERROR_BUSY = 14,          /* gpuslice_reap: another process is reaping or joining */
    GPUSLICE_ERROR_INTERNAL = 15       /* a defect of the library */
};

/* The rules by which slices divide a device's time. */
enum gpuslice_policy { GPUSLICE_POLICY_FIXED = 0, GPUSLICE_POLICY_EQUAL = 1, GPUSLICE_POLICY_BEST_EFFORT = 2 };
enum gpuslice_priority { GPUSLICE_PRIORITY_NORMAL = 0, GPUSLICE_PRIORITY_HIGH = 1, GPUSLICE_PRIORITY_LOW = 2 };

/* The source of measured GPU time. Later versions may have more values. */
enum gpuslice_meter {
    GPUSLICE_METER_NONE = 0,            /* nothing has been measured yet */
    GPUSLICE_METER_EVENTS = 1,          /* by timing events, without a correction */
    GPUSLICE_METER_EVENTS_AND_NVML = 2, /* by timing events; the time of programs that publish nothing counts too */
    GPUSLICE_METER_NVML = 3,            /* by NVML alone */
    GPUSLICE_METER_ESTIMATES = 4,       /* events fail: by estimates */
    GPUSLICE_METER_EVENTS_REPLAYED = 5, /* by timing events, corrected by the intervals of the other slices */
    GPUSLICE_METER_EVENTS_REPLAYED_AND_NVML = 6 /* the same; the time of programs that publish nothing counts too */
};

/* An open slice. */
typedef struct gpuslice_slice gpuslice_slice;

/*
 * A slice's limits on a device and its use of the device. Later versions add fields at the end. A function gets the size
 * of the caller's structure, fills no more than this size, and sets fields that it does not know to 0.
 */
struct gpuslice_device_figures {
    uint8_t uuid[16];         /* in the byte order of CUDA and NVML */
    uint64_t total;           /* memory of the device */
    uint64_t memory_limit;    /* the slice's quota, or GPUSLICE_NO_LIMIT */
    uint64_t held;            /* bytes of living processes, pending reservations included; contexts and code if created under a quota */
    uint64_t held_by_dead;    /* bytes of dead processes; they count until a member needs them, or gpuslice_reap */
    uint64_t peak;            /* the most bytes that were granted at a time */
    uint64_t refused;         /* allocations denied because of the quota */
    uint64_t unmet;           /* allocations within the quota for which the driver had no memory */
    uint64_t spilled;         /* bytes beyond the quota, in host memory */
    uint64_t burst_ns;        /* GPU time that the slice may save up */
    uint64_t used_ns;         /* GPU time charged; includes processes that have ended, as the three counts below */
    uint64_t throttled_ns;    /* wall time that launches were throttled */
    uint64_t queued_ns;       /* predicted GPU time of work under way; not a count */
    uint64_t copied_ns;       /* GPU time of copies within the device */
    uint64_t launches;
    uint64_t paid_until_ns;   /* instant up to which the slice's GPU time is paid; in the past: time is saved up */
    uint64_t read_at_ns;      /* instant of the reading */
    uint32_t number;          /* index of the device in the slice */
    uint32_t share_permille;  /* of the device's time */
    uint32_t policy;          /* enum gpuslice_policy */
    uint32_t priority;        /* enum gpuslice_priority */
    uint32_t weight;          /* 1 to 1000 */
    uint32_t oversubscribe;   /* 1: allocations beyond the quota are served from host memory */
    uint32_t meter;           /* enum gpuslice_meter */
    uint32_t factor_millionths; /* the slice's own part of the time between events */
    uint64_t held_by_contexts; /* a part of `held`: contexts of living processes, with their limits. Since version 2 */
};

/* A process's use of a device. The process itself has written its number, start and namespace. */
struct gpuslice_process_figures {
    uint64_t start;         /* clock ticks since boot; 0: not known */
    uint64_t pid_namespace; /* inode of its process-number namespace; 0: not known */
    uint64_t held;          /* bytes charged to the process */
    uint64_t refused;       /* modulo 2^32 */
    uint64_t spilled;
    uint64_t used_ns;
    uint64_t throttled_ns;
    uint64_t queued_ns;
    uint64_t copied_ns;
    uint64_t launches;
    uint32_t slot;          /* its slot in the slice, which no other living process has */
    uint32_t pid;           /* in its own process-number namespace */
    uint64_t held_by_contexts; /* a part of `held`. Since version 2 */
};

/* The version of the library's interface: GPUSLICE_API_VERSION of its header. */
uint32_t gpuslice_api_version(void);
/* The version of regions that the library reads (docs/internals/region.md). */
uint32_t gpuslice_layout_version(void);
/* A sentence that explains a status. It is never null and never freed. */
const char *gpuslice_error_text(int status);

/*
 * Writes the paths of the regions in /dev/shm, and of the slice or container that this process is in. They are sorted. Each
 * path ends with a zero, and an empty path follows the last one. Some may not open: regions of other users, or other files.
 * Unless `needed` is null, it gets the bytes that all paths take. If `room` is less, the function writes no path, and the
 * result is GPUSLICE_ERROR_ROOM.
 */
int gpuslice_list(char *paths, size_t room, size_t *needed);

/*
 * Opens a slice. A text with a slash is the path of its region, any other text its name as `gpuslice list` shows it. On
 * failure `*opened` is null.
 */
int gpuslice_open(const char *slice, gpuslice_slice **opened);
/* Closes a slice. Null is ignored. */
void gpuslice_close(gpuslice_slice *slice);
/* The slice's name, and its region's path. They live until the slice is closed. Null for null. */
const char *gpuslice_name(const gpuslice_slice *slice);
const char *gpuslice_path(const gpuslice_slice *slice);

/* The number of initialisations of the region. It distinguishes two slices that had the same region. */
int gpuslice_epoch(const gpuslice_slice *slice, uint64_t *epoch);
/* Number of devices of the slice. 0 until its first process has started CUDA; it may grow. */
int gpuslice_device_count(const gpuslice_slice *slice, uint32_t *count);
/* Reads a device's figures. `size` is sizeof *figures. */
int gpuslice_read_device(const gpuslice_slice *slice, uint32_t device, struct gpuslice_device_figures *figures, size_t size);

/* Number of living processes of the slice. */
int gpuslice_process_count(const gpuslice_slice *slice, uint32_t *count);
/*
 * Reads the living processes' use of a device, by slot. `figures` has room for `room` structures; `size` is
 * sizeof *figures. Unless `count` is null, it gets the number of living processes. If there are more than `room`, the room
 * is filled, and the result is GPUSLICE_ERROR_ROOM. A slice has at most 1024 processes.
 */
int gpuslice_read_processes(const gpuslice_slice *slice, uint32_t device, struct gpuslice_process_figures *figures,
                            size_t size, size_t room, size_t *count);

/*
 * Reaps dead processes, as members of the slice do when they need memory, and returns their number. It is the only
 * function that writes, and needs the right to write. Programs need not call it: figures separate the dead from the living.
 */
int gpuslice_reap(const gpuslice_slice *slice, uint32_t *cleared);

#ifdef __cplusplus
}
#endif

#endif
