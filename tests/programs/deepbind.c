// A library that is opened with RTLD_DEEPBIND: its scope, and the charge for its memory.
//
// deepbind LIBRARY WAY BYTES
// The library is found by this program's RUNPATH.
#include "host.h"
#include <errno.h>

// The library also has a function of this name.
const char *whose(void) { return "the program"; }

static void missing(void) {
    errno = 0;
    void *found = dlopen("libnowhere.so", RTLD_NOW | RTLD_DEEPBIND);
    int error = errno;
    say("missing: %s, errno %d", found ? "found" : dlerror(), error);
    say("and then: %s", dlerror() ? "an error" : "no error");
}

// The program itself finds no driver, before and after a library has one for itself.
static void nowhere(void *scope, const char *name) {
    dlerror();
    void *found = dlsym(scope, "cuInit");
    say("%s: %s, %s", name, found ? "found" : "not found", dlerror() ? "an error" : "no error");
}

int main(int count, char **words) {
    if (count < 4) return 2;
    missing();
    nowhere(RTLD_DEFAULT, "default");
    nowhere(RTLD_NEXT, "next");
    dlsym(RTLD_DEFAULT, "nobody_has_this");
    void *library = dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND);
    if (!library) return say("cannot open: %s", dlerror()), 3;
    const char *error = dlerror();
    say("pending: %s", error ? error : "nothing");
    const char *(*seen)(void) = (const char *(*)(void))dlsym(library, "seen");
    int (*take)(const char *, size_t) = (int (*)(const char *, size_t))dlsym(library, "take");
    if (!seen || !take) return 3;
    say("looks in %s first", seen());
    say("takes: %d", take(words[2], number(words[3])));
    say("takes within the quota: %d", take(words[2], number(words[3]) / 4));
    nowhere(RTLD_DEFAULT, "default again");
    nowhere(RTLD_NEXT, "next again");
    return 0;
}
