// Answers of all look-ups.
//
// matrix NAMES VERSIONS [symbols]: files with one name and one version a line; VERSIONS in rising order. With `symbols`, the
// program asks dlsym for every name; otherwise it asks both forms of cuGetProcAddress, with flags 0 to 4. It prints an answer
// that differs from that of the version before.
#include "host.h"

static char *names[4096];
static void *known[4096]; // address of the export of that name
static int name_count, versions[512], version_count;
static const void *home;  // file in which the first export lies
static u64 outside;

static void read_lists(const char *name_file, const char *version_file) {
    char line[256];
    FILE *file = fopen(name_file, "r");
    while (file && fgets(line, sizeof line, file) && name_count < 4096) {
        line[strcspn(line, "\n")] = 0;
        names[name_count++] = strdup(line);
    }
    if (file) fclose(file);
    file = fopen(version_file, "r");
    while (file && fgets(line, sizeof line, file) && version_count < 512) versions[version_count++] = atoi(line);
    if (file) fclose(file);
}

static const void *object_of(const void *where) {
    Dl_info info;
    return dladdr(where, &info) ? info.dli_fbase : NULL;
}

static int order[4096], exported;

static void learn(void) {
    for (int i = 0; i < name_count; i++) {
        known[i] = *names[i] ? dlsym(driver, names[i]) : NULL;
        if (known[i]) order[exported++] = i;
    }
}

// Returns the exported name of an address.
static const char *symbol_at(const void *where) {
    for (int low = 0, high = exported - 1; low <= high;) {
        int middle = (low + high) / 2;
        if (known[order[middle]] == where) return names[order[middle]];
        if ((char *)known[order[middle]] < (const char *)where) low = middle + 1;
        else high = middle - 1;
    }
    return "not an export";
}

static int sort_order(const void *a, const void *b) {
    const char *left = known[*(const int *)a], *right = known[*(const int *)b];
    if (left != right) return left < right ? -1 : 1;
    return *(const int *)a - *(const int *)b;
}

struct answer {
    int result, status;
    void *found;
};

static const char *describe(void *found) {
    if (found == (void *)-1l) return "untouched";
    if (!found) return "null";
    if (object_of(found) != home) outside++;
    return symbol_at(found);
}

static void ask(const char *name, int form, u64 flags) {
    struct answer last = {-1, -1, NULL};
    for (int i = 0; i < version_count; i++) {
        struct answer now = {-1, -7, (void *)-1l};
        now.result = form == 1 ? cu.cuGetProcAddress(name, &now.found, versions[i], flags)
                               : cu.cuGetProcAddress_v2(name, &now.found, versions[i], flags, &now.status);
        if (i && now.result == last.result && now.status == last.status && now.found == last.found) continue;
        last = now;
        printf("%s form %d flags %llu from %d: %d %d %s\n", name, form, flags, versions[i], now.result, now.status,
               describe(now.found));
    }
}

int main(int count, char **words) {
    if (count < 3) return 2;
    if (!open_driver()) return puts("no driver"), 3;
    read_lists(words[1], words[2]);
    learn();
    if (count > 3) {
        for (int i = 0; i < name_count; i++) printf("%s %s\n", names[i], known[i] ? "there" : "null");
        return 0;
    }
    qsort(order, exported, sizeof *order, sort_order);
    home = object_of((void *)cu.cuGetProcAddress);
    for (int i = 0; i < name_count; i++) {
        for (u64 flags = 0; flags <= 4; flags++) {
            ask(names[i], 1, flags);
            if (cu.cuGetProcAddress_v2) ask(names[i], 2, flags);
        }
        void *found = NULL;
        if (cu.cuGetProcAddress_v2 && cu.cuGetProcAddress_v2(names[i], &found, 13041, 0, NULL) == 0)
            printf("%s without status: %s\n", names[i], describe(found));
    }
    printf("answers outside the library of cuGetProcAddress: %llu\n", outside);
    return 0;
}
