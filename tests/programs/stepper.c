// Kills a process between two instructions.
//
// stepper QUOTA: reads commands, one a line. It forks a host for each, stops it right before a call, and steps it instruction by
// instruction. It never uses the driver itself.
//   trace CALL: steps over the whole call; prints the number of instructions, and of those in the library.
//   inside CALL N: kills the host at the instruction that was the Nth inside the library when the call was traced.
//   stop CALL N: as `inside`, but stops the host there and prints `stopped`; `kill` then ends it.
//   at CALL N: kills the host after N instructions, wherever it is.
//   system CALL N: kills the host at its Nth entry into or return from the kernel.
//   live CALL: lets a host do the call and end, without stepping.
// It answers `killed` for a killed host, and `ended` for one that got through the call before.
#include "host.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

enum { HEAP = 2, PIECE = 1 << 20, GRANULE = 2 << 20, MOST = 4 << 20 };

static u64 quota, held[2];
static void *context, *stream;

static void no_preparation(void) {}
static void ready(void) {
    if (cu.cuInit(0) || cu.cuDevicePrimaryCtxRetain(&context, 0) || cu.cuCtxSetCurrent(context)) _exit(3);
    // The first call finds things out that later calls know. It has a step of its own.
    if (cu.cuMemAlloc_v2(&held[0], PIECE)) _exit(4);
}
static void ready_with_stream(void) {
    ready();
    if (cu.cuStreamCreate(&stream, 1)) _exit(3);
}
// Gives the heap more room, which counts as the context's.
static int set_heap(void) {
    int (*set)(int, size_t) = dlsym(driver, "cuCtxSetLimit");
    return set(HEAP, 16 << 20);
}
static void ready_with_context(void) {
    ready();
    if (cu.cuCtxCreate_v2(&context, 0, 0) || cu.cuMemAlloc_v2(&held[1], PIECE) || set_heap()) _exit(3);
}

// Lets a member die that holds half of the quota. No process has noticed its death yet.
static void beside_the_dead(void) {
    int living[2];
    char byte;
    if (pipe(living)) _exit(3);
    pid_t other = fork();
    if (other == 0) {
        ready();
        if (cu.cuMemAlloc_v2(&held[1], quota / 2) || write(living[1], "", 1) != 1) _exit(4);
        for (;;) pause();
    }
    if (other < 0 || read(living[0], &byte, 1) != 1) _exit(3);
    ready();
    if (kill(other, SIGKILL) || waitpid(other, NULL, 0) != other) _exit(3);
}
// Moves to a slice of its own, in which no process lives, with a region that is left from an earlier epoch or without one.
static void alone(void) {
    char path[512];
    snprintf(path, sizeof path, "%s-alone", getenv("GPUSLICE_REGION"));
    setenv("GPUSLICE_REGION", path, 1);
}
static void without_region(void) {
    alone();
    unlink(getenv("GPUSLICE_REGION"));
}

static void join(void) { ready(); }
static void take_from_the_dead(void) { cu.cuMemAlloc_v2(&held[1], quota / 2 + PIECE); }
static void alloc(void) { cu.cuMemAlloc_v2(&held[1], PIECE); }
static void release(void) { cu.cuMemFree_v2(held[0]); }
static void refuse(void) { cu.cuMemAlloc_v2(&held[1], quota); }
static void pitch(void) {
    size_t row;
    cu.cuMemAllocPitch_v2(&held[1], &row, 1000, 100, 4);
}
static void managed(void) { cu.cuMemAllocManaged(&held[1], PIECE, 1); }
static void physical(void) {
    struct allocation wanted = {.kind = PINNED, .location = ON_DEVICE};
    u64 place, handle;
    cu.cuMemAddressReserve(&place, GRANULE, 0, 0, 0);
    cu.cuMemCreate(&handle, GRANULE, &wanted, 0);
    cu.cuMemMap(place, GRANULE, 0, handle, 0);
    cu.cuMemRelease(handle);
    cu.cuMemUnmap(place, GRANULE);
}
static void pooled(void) {
    cu.cuMemAllocAsync(&held[1], PIECE, stream);
    cu.cuMemFreeAsync(held[1], stream);
    cu.cuStreamSynchronize(stream);
}
static void grow(void) { set_heap(); }
static void destroy(void) { cu.cuCtxDestroy_v2(context); }

static const struct call {
    const char *name;
    void (*prepare)(void), (*act)(void);
} calls[] = {
    {"join", no_preparation, join},        {"alloc", ready, alloc},
    {"free", ready, release},              {"refused", ready, refuse},
    {"pitch", ready, pitch},               {"managed", ready, managed},
    {"physical", ready, physical},         {"pooled", ready_with_stream, pooled},
    {"destroy", ready_with_context, destroy}, {"reap", beside_the_dead, take_from_the_dead},
    {"make", without_region, join},        {"renew", alone, join},
    {"grow", ready, grow},
};
enum { CALLS = sizeof calls / sizeof *calls };

// Addresses of the library's code. They are the same in the hosts, which are forked.
static u64 code_start, code_end;

static void find_library(void) {
    char line[512], rights[8], path[300];
    const char *name = server_of((void *)cu.cuMemAlloc_v2);
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        u64 from, to;
        if (sscanf(line, "%llx-%llx %7s %*s %*s %*s %299s", &from, &to, rights, path) != 4) continue;
        if (!strstr(path, name) || rights[2] != 'x') continue;
        code_start = from;
        code_end = to;
    }
    if (maps) fclose(maps);
}

// Keeps this process on one processor: tracer and host take turns, and do so ten times as fast on one processor.
static void stay(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
}

// Forks a host that stands still right before its call.
static pid_t host(const struct call *call, int stepped) {
    pid_t child = fork();
    if (child < 0) exit(5);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(0);
        call->prepare();
        if (stepped && (ptrace(PTRACE_TRACEME, 0, NULL, NULL) || raise(SIGSTOP))) _exit(6);
        call->act();
        _exit(0);
    }
    return child;
}

static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, __WALL) < 0 && errno == EINTR) {}
    return status;
}

static void end(pid_t child) {
    kill(child, SIGKILL);
    wait_for(child);
}

static u64 place_of(pid_t child) {
    return ptrace(PTRACE_PEEKUSER, child, (void *)offsetof(struct user_regs_struct, rip), NULL);
}

static void set_place(pid_t child, u64 at) {
    ptrace(PTRACE_POKEUSER, child, (void *)offsetof(struct user_regs_struct, rip), (void *)at);
}

// Lets a stopped host go on, with the signal that stopped it unless that was the tracer's own.
static int go(pid_t child, enum __ptrace_request how, int status) {
    int by = WSTOPSIG(status);
    long deliver = by == SIGTRAP || by == SIGSTOP ? 0 : by;
    if (ptrace(how, child, NULL, (void *)deliver)) return 0;
    return wait_for(child);
}

// An instruction of the library that was executed: its place, and how often it had been executed before.
static struct {
    unsigned place, before;
} inside[MOST];
static unsigned found;

// Steps over the whole call, and records each instruction of the library that is executed. Later commands use the record.
static void trace(const struct call *call) {
    unsigned *times = calloc(code_end - code_start, sizeof *times), traced = 0;
    pid_t child = host(call, 1);
    int status = wait_for(child);
    for (found = 0; WIFSTOPPED(status) && found < MOST; traced++) {
        u64 place = place_of(child) - code_start;
        if (place < code_end - code_start) {
            inside[found].place = place;
            inside[found++].before = times[place]++;
        }
        status = go(child, PTRACE_SINGLESTEP, status);
    }
    free(times);
    if (WIFSTOPPED(status)) end(child);
    say("%u %u", traced, found);
}

static pid_t stopped;

static void end_stopped(void) {
    if (stopped > 0) end(stopped);
    say(stopped > 0 ? "killed" : "ended");
    stopped = 0;
}

static void answer(pid_t child, int status, int only_stop) {
    if (WIFSTOPPED(status) && only_stop) {
        stopped = child;
        say("stopped");
    } else if (WIFSTOPPED(status)) {
        end(child);
        say("killed");
    } else say("ended");
}

static void kill_at(const struct call *call, u64 instructions) {
    pid_t child = host(call, 1);
    int status = wait_for(child);
    for (u64 i = 0; i < instructions && WIFSTOPPED(status); i++) status = go(child, PTRACE_SINGLESTEP, status);
    answer(child, status, 0);
}

static void kill_at_system_call(const struct call *call, u64 stops) {
    pid_t child = host(call, 1);
    int status = wait_for(child);
    for (u64 i = 0; i < stops && WIFSTOPPED(status); i++) status = go(child, PTRACE_SYSCALL, status);
    answer(child, status, 0);
}

// Runs up to a breakpoint in the library, and kills the host there or stops it. The call may execute the same instruction several
// times before. Each time the tracer puts the original byte back, steps over the instruction, and sets the breakpoint again. If
// the host stops elsewhere, it has a signal of its own: it gets the signal and goes on.
static void run_inside(const struct call *call, unsigned which, int only_stop) {
    u64 place = code_start + inside[which].place;
    pid_t child = host(call, 1);
    int status = wait_for(child);
    long code = ptrace(PTRACE_PEEKTEXT, child, (void *)place, NULL);
    long trap = (code & ~0xffl) | 0xcc;
    for (unsigned passed = 0; WIFSTOPPED(status); passed++) {
        ptrace(PTRACE_POKETEXT, child, (void *)place, (void *)trap);
        do status = go(child, PTRACE_CONT, status);
        while (WIFSTOPPED(status) && place_of(child) != place + 1);
        if (!WIFSTOPPED(status)) break;
        ptrace(PTRACE_POKETEXT, child, (void *)place, (void *)code);
        set_place(child, place);
        if (passed == inside[which].before) break;
        status = go(child, PTRACE_SINGLESTEP, status);
    }
    answer(child, status, only_stop);
}

static void live(const struct call *call) {
    int status = wait_for(host(call, 0));
    say("ended with %d", status);
}

static const struct call *call_named(const char *name) {
    for (int i = 0; i < CALLS; i++)
        if (!strcmp(calls[i].name, name)) return &calls[i];
    return NULL;
}

int main(int count, char **words) {
    char line[128], what[32], name[32];
    u64 number_of = 0;
    if (count < 2 || !open_driver()) return 2;
    quota = number(words[1]);
    find_library();
    stay();
    say("ready");
    while (fgets(line, sizeof line, stdin)) {
        int read = sscanf(line, "%31s %31s %llu", what, name, &number_of);
        const struct call *call = read >= 2 ? call_named(name) : NULL;
        if (read == 1 && !strcmp(what, "kill")) {
            end_stopped();
            continue;
        }
        if (!call) return 2;
        if (!strcmp(what, "trace")) trace(call);
        else if (!strcmp(what, "live")) live(call);
        else if (!strcmp(what, "at")) kill_at(call, number_of);
        else if (!strcmp(what, "system")) kill_at_system_call(call, number_of);
        else if (number_of < found) run_inside(call, number_of, !strcmp(what, "stop"));
        else return 2;
    }
    return 0;
}
