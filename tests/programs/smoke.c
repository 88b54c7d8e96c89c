// Calls of each entry of the table with arguments that are all zero.
//
// smoke NAMES [started]: one function a line. The program calls each in a child of its own, so that it sees and counts a crash.
// `started` starts the driver in the child first. Prints the status or signal of each.
#include "host.h"
#include <signal.h>
#include <sys/wait.h>

// More zeros than any function has parameters, because parameters by value on the stack must be zero too.
#define ZERO 0ul, 0ul, 0ul, 0ul
typedef unsigned long (*any)(unsigned long, ...);

static unsigned long call(void *entry) {
    return ((any)entry)(ZERO, ZERO, ZERO, ZERO, ZERO, ZERO);
}

static void child(const char *name, int started) {
    alarm(20);
    if (started && !start()) _exit(7);
    if (!driver && !open_driver()) _exit(7);
    void *management = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    void *entry = dlsym(!strncmp(name, "nvml", 4) ? management : driver, name);
    if (started && !strncmp(name, "nvml", 4)) {
        int (*init)(void) = (int (*)(void))dlsym(management, "nvmlInit_v2");
        say("%s: nvmlInit_v2 %d", name, init ? init() : -1);
    }
    if (!entry) {
        say("%s: not there", name);
        _exit(0);
    }
    unsigned long status = call(entry);
    if (!strcmp(name, "nvmlErrorString")) say("%s: %s", name, status ? (const char *)status : "null");
    else say("%s: %d", name, (int)status);
    _exit(0);
}

int main(int count, char **words) {
    char name[256];
    FILE *names = count > 1 ? fopen(words[1], "r") : NULL;
    if (!names) return 2;
    while (fgets(name, sizeof name, names)) {
        int status = 0;
        name[strcspn(name, "\n")] = 0;
        pid_t pid = fork();
        if (!pid) child(name, count > 2);
        waitpid(pid, &status, 0);
        if (WIFSIGNALED(status)) say("%s: CRASH by signal %d", name, WTERMSIG(status));
        else if (WEXITSTATUS(status)) say("%s: EXIT %d", name, WEXITSTATUS(status));
    }
    return 0;
}
