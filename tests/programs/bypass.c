// Look-ups that may lead past the library.
//
// bypass STEP...: each step is a line of the answer.
//   dlsym:NAME, legacy:NAME, thread:NAME  looks a name up with dlsym, or with cuGetProcAddress and such a flag, twice
//   table                                 asks for the private table that can launch, twice
//   init, take                            starts the driver; makes a context and takes a page
#include "host.h"

static const unsigned char LAUNCHING[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                            0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

static void *find(const char *how, const char *name) {
    void *found = NULL;
    int status = -1;
    if (!strcmp(how, "dlsym")) return dlsym(driver, name);
    int (*ask)(const char *, void **, int, u64, int *) =
        (int (*)(const char *, void **, int, u64, int *))dlsym(driver, "cuGetProcAddress_v2");
    return ask(name, &found, 13000, strcmp(how, "thread") ? 1 : 2, &status) == 0 ? found : NULL;
}

static void take(void) {
    void *context = NULL;
    u64 address = 0;
    int made = cu.cuDevicePrimaryCtxRetain(&context, 0);
    if (made == 0) cu.cuCtxSetCurrent(context);
    say("context %d, take %d", made, cu.cuMemAlloc_v2(&address, 4096));
}

int main(int count, char **words) {
    if (!open_driver()) return say("no driver"), 3;
    for (int i = 1; i < count; i++) {
        char *name = strchr(words[i], ':');
        if (name) {
            *name++ = 0;
            find(words[i], name);
            say("%s %s by %s", words[i], name, server_of(find(words[i], name)));
        } else if (!strcmp(words[i], "table")) {
            const void *table = NULL;
            cu.cuGetExportTable(&table, LAUNCHING);
            int status = cu.cuGetExportTable(&table, LAUNCHING);
            say("table %d, %s", status, server_of(table));
        } else if (!strcmp(words[i], "init")) {
            say("init %d", cu.cuInit(0));
        } else {
            take();
        }
    }
    return 0;
}
