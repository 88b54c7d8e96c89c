// Tests that a program survives the unwinding of its stack, as it does without the library.
//
// unwinds WAY: takes memory, says `holds`, waits for a line, unwinds in this way, says `done`, and waits for another line.
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <string>
#include <unistd.h>

typedef unsigned long long u64;
extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(u64 *, size_t);
int cuMemFree_v2(u64);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);
int cuLaunchHostFunc(void *, void (*)(void *), void *);
int cuStreamAddCallback(void *, void (*)(void *, int, void *), void *, unsigned);
}

namespace {

enum { PIECE = 8 << 20, THROWS = 12288, SLEEPS = 20480 };

void *context, *stream;
std::string text;

__attribute__((format(printf, 1, 2))) void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char line[256];
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    line[length++] = '\n';
    if (write(1, line, length) != length) _exit(9);
}

struct Tell {
    const char *name;
    ~Tell() { say("%s is unwound", name); }
};

void through_a_call() {
    for (int i = 0; i < 3; i++) {
        u64 address;
        try {
            Tell tell{"the caller"};
            say("not thrown: %d", cuMemAlloc_v2(&address, THROWS));
        } catch (int thrown) {
            int take = cuMemAlloc_v2(&address, 4096);
            say("caught %d, takes %d, gives %d", thrown, take, cuMemFree_v2(address));
        }
    }
}

void *sleep_in_a_call(void *) {
    u64 address;
    Tell tell{"the thread"};
    if (cuCtxSetCurrent(context)) _exit(9);
    say("sleeps");
    say("woke up: %d", cuMemAlloc_v2(&address, SLEEPS));
    return nullptr;
}

void *ask_again_and_again(void *) {
    size_t left, total;
    Tell tell{"the thread"};
    if (cuCtxSetCurrent(context)) _exit(9);
    say("asks");
    for (;;) {
        if (cuMemGetInfo_v2(&left, &total)) _exit(9);
        pthread_testcancel();
    }
}

void leave_the_thread(int) { pthread_exit(nullptr); }

void end_a_thread(void *(*work)(void *), int (*end)(pthread_t)) {
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *result = nullptr;
        u64 address;
        pthread_create(&thread, nullptr, work, nullptr);
        usleep(50000);
        end(thread);
        pthread_join(thread, &result);
        int take = cuMemAlloc_v2(&address, 4096);
        say("%s, takes %d, gives %d", result == PTHREAD_CANCELED ? "cancelled" : "ended", take, cuMemFree_v2(address));
    }
}
int cancel(pthread_t thread) { return pthread_cancel(thread); }
int interrupt(pthread_t thread) { return pthread_kill(thread, SIGUSR1); }

void catch_inside(void *) {
    size_t left, total;
    try {
        Tell tell{"the function"};
        cuMemGetInfo_v2(&left, &total);
        throw std::string("thrown in a host function");
    } catch (const std::string &thrown) { text = thrown; }
}
void catch_in_callback(void *, int status, void *) {
    if (status == 0) catch_inside(nullptr);
}

std::jmp_buf place;
void jump_inside(void *) {
    size_t left, total;
    if (setjmp(place) == 0) {
        cuMemGetInfo_v2(&left, &total);
        std::longjmp(place, 1);
    }
    text = "jumped";
}

void throw_out(void *) { throw 7; }
void throw_out_of_callback(void *, int, void *) { throw 8; }

void finish(int launch) {
    int wait = cuStreamSynchronize(stream);
    say("launch %d, wait %d, %s", launch, wait, text.c_str());
}

} // namespace

int main(int count, char **words) {
    u64 address;
    char line[16];
    if (count < 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 3;
    if (cuMemAlloc_v2(&address, PIECE) || cuStreamCreate(&stream, 0)) return 3;
    say("holds");
    if (!fgets(line, sizeof line, stdin)) return 9;
    const std::string way = words[1];
    std::signal(SIGUSR1, leave_the_thread);
    if (way == "through") through_a_call();
    else if (way == "cancel") end_a_thread(sleep_in_a_call, cancel);
    else if (way == "cancel_inside") end_a_thread(ask_again_and_again, cancel);
    else if (way == "leave") end_a_thread(sleep_in_a_call, interrupt);
    else if (way == "caught") finish(cuLaunchHostFunc(stream, catch_inside, nullptr));
    else if (way == "callback") finish(cuStreamAddCallback(stream, catch_in_callback, nullptr, 0));
    else if (way == "jumped") finish(cuLaunchHostFunc(stream, jump_inside, nullptr));
    else if (way == "thrown") finish(cuLaunchHostFunc(stream, throw_out, nullptr));
    else if (way == "thrown_callback") finish(cuStreamAddCallback(stream, throw_out_of_callback, nullptr, 0));
    else return 2;
    say("done");
    if (!fgets(line, sizeof line, stdin)) return 9;
    say("gives %d", cuMemFree_v2(address));
    return 0;
}
