// A program that keeps a GPU busy in one of the usual ways.
//
// load SECONDS LENGTHS [NAME=NUMBER...]: launches kernels of these lengths (nanoseconds, separated by commas; of several one at
// random) until the seconds are over. It says "ready", and begins with the first byte or the end of its input.
//   how=0 kernels, 1 cooperative, 2 cuLaunchKernelEx, 3 a graph of eight kernels of that length together
//   streams=1 in turn    blocks=264 of a kernel; with fewer than the device has, others run beside it
//   wait=0 two batches of 10 ms are in flight, else the program waits for this many launches together
//   work=0 pause=0: works and pauses for these times (nanoseconds) in turn, and prints "began" and when, by the monotonic clock
//   every=0 always busy; else requests of `launches` launches come at this mean interval (nanoseconds). The program waits for
//   each and prints its time from arrival to end    seed=1 of random choices
#include "host.h"
#include <errno.h>

enum { NON_BLOCKING = 1, NO_TIMING = 2, KINDS = 32, STREAMS = 32, NODES = 8, BATCH_NS = 10000000 };
enum how { KERNELS, COOPERATIVE, EX, GRAPH };

// `CUlaunchConfig` of the driver API.
struct config {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned count;
};

#define LOAD_FUNCTIONS(X) \
    X(cuModuleLoadData, (void **, const void *)) \
    X(cuModuleGetFunction, (void **, void *, const char *)) \
    X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, \
                       void **)) \
    X(cuLaunchCooperativeKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, \
                                  void **)) \
    X(cuLaunchKernelEx, (const struct config *, void *, void **, void **)) \
    X(cuEventCreate, (void **, unsigned)) \
    X(cuEventRecord, (void *, void *)) \
    X(cuEventSynchronize, (void *)) \
    X(cuCtxSynchronize, (void)) \
    X(cuStreamBeginCapture_v2, (void *, int)) \
    X(cuStreamEndCapture, (void *, void **)) \
    X(cuGraphInstantiateWithFlags, (void **, void *, u64)) \
    X(cuGraphLaunch, (void *, void *))
#define LOAD_MEMBER(symbol, parameters) int(*symbol) parameters;
static struct {
    LOAD_FUNCTIONS(LOAD_MEMBER)
} load;

static u64 lengths[KINDS], kinds, state = 1;
static void *work[KINDS], *streams[STREAMS];
static struct {
    u64 how, streams, blocks, wait, every, launches, seed, work, pause;
} wish = {.streams = 1, .blocks = 264, .launches = 1, .seed = 1};

static void must(int status, const char *what) {
    if (!status) return;
    fprintf(stderr, "load: %s returned %d\n", what, status);
    exit(1);
}
#define MUST(function, ...) must(load.function(__VA_ARGS__), #function)

static void sleep_until(u64 instant) {
    struct timespec time = {.tv_sec = instant / 1000000000, .tv_nsec = instant % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {}
}

// Returns a random number, by splitmix64.
static u64 chance(void) {
    u64 mixed = state += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return mixed ^ mixed >> 31;
}

// Returns a time between two arrivals: minus the logarithm of a number between 0 and 1, by its series.
static u64 exponential(u64 mean) {
    double part = ((double)(chance() >> 11) + 1) / 9007199254740992.0, sum = 0;
    for (; part < 0.5; part *= 2) sum += 0.693147180559945;
    double y = (1 - part) / (1 + part), square = y * y;
    return (sum + 2 * y * (1 + square / 3 + square * square / 5 + square * square * square / 7)) * mean;
}

static void launch(u64 kind, void *stream) {
    unsigned blocks = wish.blocks;
    struct config config = {.grid = {blocks, 1, 1}, .block = {1024, 1, 1}, .stream = stream};
    switch (wish.how) {
        case COOPERATIVE: MUST(cuLaunchCooperativeKernel, work[kind], blocks, 1, 1, 1024, 1, 1, 0, stream, NULL); break;
        case EX: MUST(cuLaunchKernelEx, &config, work[kind], NULL, NULL); break;
        case GRAPH: MUST(cuGraphLaunch, work[kind], stream); break;
        default: MUST(cuLaunchKernel, work[kind], blocks, 1, 1, 1024, 1, 1, 0, stream, NULL, NULL);
    }
}

static u64 launch_any(void) {
    static u64 count;
    u64 kind = kinds > 1 ? chance() % kinds : 0;
    launch(kind, streams[count++ % wish.streams]);
    return lengths[kind];
}

// Records kernels as a graph, which stands for them from then on.
static void *record(void *kernel) {
    void *graph = NULL, *executable = NULL;
    MUST(cuStreamBeginCapture_v2, streams[0], 2);
    for (int i = 0; i < NODES; i++)
        MUST(cuLaunchKernel, kernel, wish.blocks, 1, 1, 1024, 1, 1, 0, streams[0], NULL, NULL);
    MUST(cuStreamEndCapture, streams[0], &graph);
    MUST(cuGraphInstantiateWithFlags, &executable, graph, 0);
    return executable;
}

static void prepare(void) {
    char image[4096] = ".version 8.0\n.target sm_90\n.address_size 64\n", name[64];
    void *module = NULL;
    u64 nodes = wish.how == GRAPH ? NODES : 1;
    for (u64 i = 0; i < kinds; i++)
        sprintf(image + strlen(image), ".visible .entry k%llu_spin_%lluns() { ret; }\n", i, lengths[i] / nodes);
    MUST(cuModuleLoadData, &module, image);
    for (u64 i = 0; i < wish.streams; i++) must(cu.cuStreamCreate(&streams[i], NON_BLOCKING), "cuStreamCreate");
    for (u64 i = 0; i < kinds; i++) {
        sprintf(name, "k%llu_spin_%lluns", i, lengths[i] / nodes);
        MUST(cuModuleGetFunction, &work[i], module, name);
        if (wish.how == GRAPH) work[i] = record(work[i]);
    }
}

// Waits for all streams, or for the batch before the last if there are events.
static void wait_for_batch(void *events[2], u64 batch) {
    int is_marked = events[0] && !load.cuEventRecord(events[batch % 2], streams[0]);
    if (!is_marked) MUST(cuCtxSynchronize);
    else if (batch > 0) MUST(cuEventSynchronize, events[(batch - 1) % 2]);
}

static void be_busy(u64 end) {
    void *events[2] = {NULL, NULL};
    u64 batch = 0, unawaited = 0;
    for (int i = 0; i < 2; i++)
        if (load.cuEventCreate(&events[i], NO_TIMING)) events[0] = NULL;
    u64 rest = 0;
    while (now() < end) {
        if (wish.work && now() >= rest) {
            if (rest) {
                MUST(cuCtxSynchronize);
                sleep_until(now() + wish.pause);
            }
            say("began %llu", now());
            rest = now() + wish.work;
        }
        u64 sum = launch_any();
        if (wish.wait) {
            if (++unawaited < wish.wait) continue;
            MUST(cuCtxSynchronize);
            unawaited = 0;
            continue;
        }
        while (sum < BATCH_NS) sum += launch_any();
        wait_for_batch(events, batch++);
    }
}

static void serve(u64 end) {
    static u64 latencies[1 << 20];
    u64 arrival = now(), count = 0;
    for (; count < sizeof latencies / sizeof *latencies; count++, arrival += exponential(wish.every)) {
        if (arrival >= end) break;
        sleep_until(arrival);
        for (u64 i = 0; i < wish.launches; i++) launch_any();
        MUST(cuCtxSynchronize);
        latencies[count] = now() - arrival;
    }
    for (u64 i = 0; i < count; i++) printf("%llu\n", latencies[i]);
}

static int read_wish(int count, char **words) {
    struct {
        const char *name;
        u64 *value;
    } names[] = {{"how", &wish.how},     {"streams", &wish.streams},   {"blocks", &wish.blocks}, {"wait", &wish.wait},
                 {"every", &wish.every}, {"launches", &wish.launches}, {"seed", &wish.seed},
                 {"work", &wish.work},   {"pause", &wish.pause}};
    for (int i = 3; i < count; i++) {
        char *value = strchr(words[i], '=');
        u64 *place = NULL;
        if (!value) return 0;
        *value++ = 0;
        for (unsigned j = 0; j < sizeof names / sizeof *names; j++)
            if (!strcmp(words[i], names[j].name)) place = names[j].value;
        if (!place) return 0;
        *place = number(value);
    }
    for (char *word = strtok(words[2], ","); word && kinds < KINDS; word = strtok(NULL, ",")) lengths[kinds++] = number(word);
    return kinds && wish.streams >= 1 && wish.streams <= STREAMS && wish.launches;
}

int main(int count, char **words) {
    char byte;
    if (count < 3 || !read_wish(count, words)) return 2;
    if (!start()) return 3;
#define LOAD_FIND(symbol, parameters) *(void **)&load.symbol = dlsym(driver, #symbol);
    LOAD_FUNCTIONS(LOAD_FIND)
    state = wish.seed;
    prepare();
    say("ready");
    if (read(0, &byte, 1) < 0) return 4;
    u64 end = now() + (u64)(atof(words[1]) * 1e9);
    if (wish.every) serve(end);
    else be_busy(end);
    return 0;
}
