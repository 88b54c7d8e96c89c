/* Measures the time that the library adds to a program that never touches CUDA. Runs /bin/true without the library and with the one
 * that the first argument names, in turn, and prints the medians in nanoseconds: `name bare loaded`. */
#include "median.h"
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

enum { RUNS = 1500 };

static double run(char *environment) {
    char *arguments[] = {"/bin/true", NULL}, *variables[] = {environment, NULL};
    struct timespec start, end;
    pid_t child;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, variables)) abort();
    waitpid(child, NULL, 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec);
}

int main(int count, char **arguments) {
    static double bare[RUNS], loaded[RUNS];
    char preload[4096];
    if (count != 2) return 2;
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", arguments[1]);
    for (int i = 0; i < RUNS; i++) {
        bare[i] = run("NOTHING=");
        loaded[i] = run(preload);
    }
    printf("start_without_cuda %.0f %.0f\n", median(bare, RUNS), median(loaded, RUNS));
    return 0;
}
