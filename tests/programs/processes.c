// Processes that the management library names on a GPU that two slices and an outsider share.
//
// processes LIBRARIES SCENE: plays a scene. Each participant is a process of its own: `a1` and `a2` in a slice, `b1` in another
// one, `o1` without the library. Participants run `processes play BYTES` and get their orders over a pipe.
//
// BLIND: the management library names no process to processes that only look. QUOTA: the limit of the slices. THIRD_FORM: bytes
// of an entry of the third form.
#include "process_lists.h"
#include "../../include/gpuslice.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PARTS = 4, ROOM = 16, UTILIZATION_VERSION = 0x01000018, DETAIL_VERSION = 0x01000018 };

struct sample {
    unsigned pid;
    u64 time;
    unsigned sm, memory, encoder, decoder;
};
struct info {
    u64 time;
    unsigned pid, sm, memory, others[4];
};
struct infos {
    unsigned version, count;
    u64 last_seen;
    struct info *entries;
};

static const char *const names[PARTS] = {"a1", "a2", "b1", "o1"};

// A participant of a scene: its process, and the pipes to it and from it.
struct part {
    int pid, to, from;
};
static struct part parts[PARTS];
static int pids[PARTS];
static const char *self, *libraries;

static const char *name_of(unsigned pid) {
    static char other[32];
    for (int part = 0; part < PARTS; part++)
        if (pids[part] && (unsigned)pids[part] == pid) return names[part];
    snprintf(other, sizeof other, "pid %u", pid);
    return other;
}

static void *nvml, *device;

static void *find(const char *name) {
    return dlsym(nvml, name);
}

static int start_nvml(void) {
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml) return 0;
    int (*init)(void) = (int (*)(void))find("nvmlInit_v2");
    int (*handle)(unsigned, void **) = (int (*)(unsigned, void **))find("nvmlDeviceGetHandleByIndex_v2");
    return init() == 0 && handle(0, &device) == 0;
}

// Byte that fills a buffer before a call. It must still be there if the call wrote nothing.
enum { UNTOUCHED = 0x5a };

static int untouched(const unsigned char *from, const unsigned char *to) {
    for (; from < to; from++)
        if (*from != UNTOUCHED) return 0;
    return 1;
}

// Prints a list by name, with the number of entries for which there is room.
static void list(const char *viewer, const char *function, size_t stride, unsigned room, int null) {
    unsigned char buffer[ROOM * sizeof(struct detail)];
    memset(buffer, UNTOUCHED, sizeof buffer);
    int (*call)(void *, unsigned *, void *) = (int (*)(void *, unsigned *, void *))find(function);
    unsigned count = room;
    int status = call(device, &count, null ? NULL : buffer);
    char line[512];
    int at = snprintf(line, sizeof line, "%s %s room %u: %d, %u", viewer, function, room, status, count);
    unsigned written = status == 0 ? count : 0;
    for (unsigned entry = 0; entry < written; entry++) {
        struct info_v2 info;
        memcpy(&info, buffer + entry * stride, sizeof(struct info_v1));
        at += snprintf(line + at, sizeof line - at, ", %s %llu", name_of(info.pid), info.used);
        if (stride < sizeof info) continue;
        memcpy(&info, buffer + entry * stride, sizeof info);
        if (info.gpu != 0xffffffff || info.compute != 0xffffffff)
            at += snprintf(line + at, sizeof line - at, " in %u.%u", info.gpu, info.compute);
    }
    if (!untouched(buffer + written * stride, buffer + sizeof buffer))
        at += snprintf(line + at, sizeof line - at, ", wrote beyond");
    say("%s", line);
}

static void detail_list(const char *viewer, unsigned mode, unsigned room, unsigned version) {
    struct detail entries[ROOM];
    struct details list = {version, mode, room, entries};
    typedef int (*function)(void *, struct details *);
    function call = (function)find("nvmlDeviceGetRunningProcessDetailList");
    int status = call(device, &list);
    char line[512];
    int at = snprintf(line, sizeof line, "%s details mode %u room %u: %d, %u", viewer, mode, room, status, list.count);
    for (unsigned entry = 0; status == 0 && entry < list.count; entry++)
        at += snprintf(line + at, sizeof line - at, ", %s %llu protected %llu", name_of(entries[entry].pid),
                       entries[entry].used, entries[entry].secret);
    say("%s", line);
}

static const char *const FORMS[3][3] = {
    {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2",
     "nvmlDeviceGetComputeRunningProcesses_v3"},
    {"nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses_v2",
     "nvmlDeviceGetGraphicsRunningProcesses_v3"},
    {"nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses_v2",
     "nvmlDeviceGetMPSComputeRunningProcesses_v3"},
};

static size_t stride(int form) {
    const char *third = getenv("THIRD_FORM");
    if (form == 2 && third) return atoi(third);
    return form == 0 ? sizeof(struct info_v1) : sizeof(struct info_v2);
}

// Prints all lists, with enough room.
static void all_lists(const char *viewer) {
    for (int sort = 0; sort < 3; sort++)
        for (int form = 0; form < 3; form++) list(viewer, FORMS[sort][form], stride(form), ROOM, 0);
    for (unsigned mode = 0; mode < 4; mode++) detail_list(viewer, mode, ROOM, DETAIL_VERSION);
}

// Room that is missing, too little, or just enough; arguments that are wrong.
static void edges(const char *viewer) {
    for (int form = 0; form < 3; form++) {
        for (unsigned room = 0; room < 3; room++) list(viewer, FORMS[0][form], stride(form), room, 0);
        list(viewer, FORMS[0][form], stride(form), 0, 1);
        list(viewer, FORMS[0][form], stride(form), ROOM, 1);
        int (*call)(void *, unsigned *, void *) = (int (*)(void *, unsigned *, void *))find(FORMS[0][form]);
        unsigned count = ROOM;
        struct detail entries[ROOM];
        int no_device = call(NULL, &count, entries);
        say("%s form %d no device %d, no count %d", viewer, form + 1, no_device, call(device, NULL, entries));
    }
    for (unsigned room = 0; room < 3; room++) detail_list(viewer, 0, room, DETAIL_VERSION);
    detail_list(viewer, 0, ROOM, 7);
    int (*details)(void *, void *) = (int (*)(void *, void *))find("nvmlDeviceGetRunningProcessDetailList");
    say("%s no list %d", viewer, details(device, NULL));
}

// Prints samples of the device that the management library keeps.
static void past(const char *viewer, unsigned kind) {
    struct { u64 time; unsigned value, rest; } samples[ROOM] = {0};
    unsigned type = 99, count = ROOM;
    int (*ask)(void *, unsigned, u64, unsigned *, unsigned *, void *) =
        (int (*)(void *, unsigned, u64, unsigned *, unsigned *, void *))find("nvmlDeviceGetSamples");
    int status = ask(device, kind, 0, &type, &count, samples);
    if (status) count = 0;
    char line[512];
    int at = snprintf(line, sizeof line, "%s past of %u %d, %u:", viewer, kind, status, count);
    for (unsigned sample = 0; sample < count && sample < 4; sample++)
        at += snprintf(line + at, sizeof line - at, " %u", samples[sample].value);
    say("%s", line);
}

static void use(const char *viewer) {
    typedef int (*first)(void *, struct sample *, unsigned *, u64);
    typedef int (*second)(void *, struct infos *);
    struct sample samples[ROOM * 128];
    struct info entries[ROOM * 128];
    unsigned count = 0, room;
    first call = (first)find("nvmlDeviceGetProcessUtilization");
    second list = (second)find("nvmlDeviceGetProcessesUtilizationInfo");
    int question = call(device, NULL, &count, 0);
    say("%s use: question %d, room %s", viewer, question, count > 0 ? "some" : "none");
    room = count < ROOM * 128 ? count : ROOM * 128;
    int status = call(device, samples, &room, 0);
    char line[512];
    int at = snprintf(line, sizeof line, "%s use %d, %u", viewer, status, room);
    for (unsigned entry = 0; status == 0 && entry < room; entry++)
        at += snprintf(line + at, sizeof line - at, ", %s %u", name_of(samples[entry].pid), samples[entry].sm);
    say("%s", line);
    struct infos infos = {UTILIZATION_VERSION, 0, 0, NULL};
    question = list(device, &infos);
    infos.entries = entries;
    if (infos.count > ROOM * 128) infos.count = ROOM * 128;
    status = list(device, &infos);
    at = snprintf(line, sizeof line, "%s use list: question %d, then %d, %u", viewer, question, status, infos.count);
    for (unsigned entry = 0; status == 0 && entry < infos.count; entry++)
        at += snprintf(line + at, sizeof line - at, ", %s %u", name_of(entries[entry].pid), entries[entry].sm);
    infos.version = 7;
    say("%s, wrong version %d", line, list(device, &infos));
    unsigned rates[2] = {0};
    int (*busy)(void *, unsigned *) = (int (*)(void *, unsigned *))find("nvmlDeviceGetUtilizationRates");
    status = busy(device, rates);
    say("%s busy %d: %u %u", viewer, status, rates[0], rates[1]);
    struct { unsigned flags, domains[8][4]; } domains = {0};
    int (*states)(void *, void *) = (int (*)(void *, void *))find("nvmlDeviceGetDynamicPstatesInfo");
    status = states(device, &domains);
    say("%s domains %d: %u %u, present %u", viewer, status, domains.domains[0][1], domains.domains[1][1],
        domains.domains[0][0]);
    for (unsigned kind = 0; kind < 3; kind++) past(viewer, kind);
}

static void protected(const char *viewer) {
    u64 memory[3] = {0};
    int (*ask)(void *, u64 *) = (int (*)(void *, u64 *))find("nvmlDeviceGetConfComputeProtectedMemoryUsage");
    int status = ask(device, memory);
    say("%s protected %d: total %llu, free %llu, used %llu", viewer, status, memory[0], memory[1], memory[2]);
}

static void accounting(const char *viewer) {
    unsigned found[ROOM], count = ROOM, none = 0;
    typedef int (*function)(void *, unsigned *, unsigned *);
    function list = (function)find("nvmlDeviceGetAccountingPids");
    int (*of)(void *, unsigned, void *) = (int (*)(void *, unsigned, void *))find("nvmlDeviceGetAccountingStats");
    int (*of_v2)(void *, void *) = (int (*)(void *, void *))find("nvmlDeviceGetAccountingStats_v2");
    int status = list(device, &count, found);
    char line[512];
    int at = snprintf(line, sizeof line, "%s accounting %d, %u", viewer, status, count);
    for (unsigned entry = 0; status == 0 && entry < count; entry++)
        at += snprintf(line + at, sizeof line - at, ", %s", name_of(found[entry]));
    int question = list(device, &none, NULL);
    say("%s; question %d, %u", line, question, none);
    for (int part = 0; part < PARTS; part++) {
        unsigned stats[64] = {pids[part]};
        int first = of(device, pids[part], stats), second = of_v2(device, stats);
        say("%s stats of %s: %d %d", viewer, names[part], first, second);
    }
}

// Plays a participant: holds memory of the first device if BYTES is not zero, then obeys orders.
static int play(const char *bytes) {
    u64 address = 0;
    char line[256], word[32], viewer[32];
    if (!strcmp(bytes, "nothing") && (!open_driver() || cu.cuInit(0) != 0)) return 3;
    if (number(bytes) && (!start() || cu.cuMemAlloc_v2(&address, number(bytes)) != 0)) return 3;
    if (!start_nvml()) return 4;
    if (write(4, "+", 1) != 1) return 5;
    FILE *told = fdopen(3, "r");
    while (told && fgets(line, sizeof line, told)) {
        if (sscanf(line, "%31s %31s %d %d %d %d", word, viewer, pids, pids + 1, pids + 2, pids + 3) != 6) return 6;
        if (!strcmp(word, "lists")) all_lists(viewer);
        if (!strcmp(word, "compute"))
            for (int form = 0; form < 3; form++) list(viewer, FORMS[0][form], stride(form), ROOM, 0);
        if (!strcmp(word, "edges")) edges(viewer);
        if (!strcmp(word, "use")) use(viewer);
        if (!strcmp(word, "protected")) protected(viewer);
        if (!strcmp(word, "accounting")) accounting(viewer);
        if (write(4, "+", 1) != 1) return 7;
    }
    return 0;
}

static const char *region_of(const char *slice) {
    static char region[512];
    snprintf(region, sizeof region, "%s-%s", getenv("GPUSLICE_REGION"), slice);
    return region;
}

// Sets the environment of a slice. Processes outside get none.
static void surround(const char *slice) {
    if (!slice) return;
    setenv("GPUSLICE_REGION", region_of(slice), 1);
    setenv("LD_PRELOAD", libraries, 1);
    if (getenv("QUOTA")) setenv("GPU_MEM_LIMIT", getenv("QUOTA"), 1);
}

static struct part enter(const char *slice, const char *bytes) {
    int to[2], from[2];
    char ready;
    if (pipe(to) || pipe(from)) exit(10);
    int pid = fork();
    if (pid == 0) {
        // The pipes may have the numbers that the participants expect.
        int in = fcntl(to[0], F_DUPFD, 20), out = fcntl(from[1], F_DUPFD, 20);
        dup2(in, 3), dup2(out, 4);
        for (int other = 5; other < 64; other++) close(other);
        surround(slice);
        execl(self, self, "play", bytes, NULL);
        _exit(11);
    }
    close(to[0]), close(from[1]);
    fcntl(to[1], F_SETFD, FD_CLOEXEC), fcntl(from[0], F_SETFD, FD_CLOEXEC);
    if (read(from[0], &ready, 1) != 1) exit(12);
    return (struct part){pid, to[1], from[0]};
}

static void tell(struct part *part, const char *word, const char *viewer) {
    char ready;
    dprintf(part->to, "%s %s %d %d %d %d\n", word, viewer, pids[0], pids[1], pids[2], pids[3]);
    if (read(part->from, &ready, 1) != 1) say("%s ended at %s", viewer, word), exit(13);
}

static void leave(struct part *part, int kill_it) {
    int status;
    if (kill_it) kill(part->pid, SIGKILL);
    close(part->to);
    waitpid(part->pid, &status, 0);
    close(part->from);
}

// Looks at the GPU from a process that holds nothing of it.
static void look(const char *slice, const char *word, const char *viewer) {
    if (getenv("BLIND")) setenv("SIMGPU_NVML_PIDS", "none", 1);
    struct part part = enter(slice, "0");
    tell(&part, word, viewer);
    leave(&part, 0);
}

// Writes the numbers of all processes down, for a management library that is not the simulated one.
static void write_down(void) {
    FILE *list = fopen("pids", "w");
    for (int part = 0; list && part < PARTS; part++) fprintf(list, "%d\n", pids[part]);
    if (!list || fclose(list)) exit(15);
}

static void all_enter(void) {
    static const char *const slices[] = {"a", "a", "b", NULL};
    static const char *const bytes[] = {"67108864", "33554432", "16777216", "8388608"};
    for (int part = 0; part < 4; part++) {
        parts[part] = enter(slices[part], bytes[part]);
        pids[part] = parts[part].pid;
    }
    write_down();
}

// Makes the region say that `a2` is of another process-number namespace, in which its number is that of `b1` here.
static void move_away(void) {
    int file = open(region_of("a"), O_RDWR);
    struct gpuslice_region *region = mmap(NULL, sizeof *region, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || region == MAP_FAILED) exit(14);
    for (int slot = 0; slot < GPUSLICE_SLOTS; slot++) {
        if (region->slots[slot].pid != (unsigned)pids[1]) continue;
        region->slots[slot].pid = pids[2];
        region->slots[slot].pid_namespace++;
    }
}

static void all_look(const char *word) {
    tell(&parts[0], word, "a1"), tell(&parts[2], word, "b1"), tell(&parts[3], word, "o1");
    look("a", word, "watcher-of-a"), look("c", word, "watcher-of-c");
}

// Runs a program that looks from within the first slice.
static void run(char **words) {
    int status;
    int pid = fork();
    if (pid == 0) {
        surround("a");
        execv(words[0], words);
        _exit(11);
    }
    waitpid(pid, &status, 0);
    for (int part = 0; part < PARTS; part++)
        if (pids[part]) say("%s is %d", names[part], pids[part]);
    say("ended with %d", status);
}

int main(int count, char **words) {
    static char place[512];
    if (count > 2 && !strcmp(words[1], "play")) return play(words[2]);
    if (count < 3) return 2;
    ssize_t length = readlink("/proc/self/exe", place, sizeof place - 1);
    if (length < 0) return 2;
    self = place, libraries = words[1];
    const char *scene = words[2];
    all_enter();
    if (!strcmp(scene, "killed")) {
        tell(&parts[0], "compute", "before");
        leave(&parts[1], 1);
        tell(&parts[0], "compute", "a1");
        look("a", "compute", "watcher-of-a");
    } else if (!strcmp(scene, "idle")) {
        enter("a", "nothing");
        tell(&parts[0], "compute", "a1");
    } else if (!strcmp(scene, "far")) {
        move_away();
        tell(&parts[0], "compute", "a1"), tell(&parts[2], "compute", "b1");
        look("a", "compute", "watcher-of-a");
    } else if (!strcmp(scene, "run")) {
        run(words + 3);
    } else {
        all_look(scene);
    }
    return 0;
}
