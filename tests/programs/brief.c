// A program with one kernel and no more, like a short program of a script.
//
// brief KERNEL wait: waits for its kernel and ends.
// brief KERNEL MICROSECONDS: ends that long after its launch, before or after the kernel.
// brief KERNEL idle: launches nothing, takes no time, and waits for the end of its input.
#include "launches.h"

int main(int count, char **words) {
    if (count < 3 || !open_all("dlsym") || !begin(words[1])) return 4;
    if (!strcmp(words[2], "idle")) return say("ready"), getchar() == EOF ? 0 : 1;
    int (*launch) KERNEL_PARAMETERS = dlsym(driver ? driver : RTLD_DEFAULT, "cuLaunchKernel");
    int code = launch(work, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    if (!strcmp(words[2], "wait")) return code || gpu.cuCtxSynchronize();
    usleep((unsigned)atoi(words[2]));
    _exit(code);
}
