/* The driver has no private tables. It tells a program on the CUDA runtime once why the program stops. */
#include "driver.h"

int cuGetExportTable(const void **, const void *);
static const unsigned char runtime[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
static const unsigned char other[16] = {1, 2, 3};

static void ask(const void *which) {
    const void *table = &table;
    STATUS(1, cuGetExportTable(&table, which)); CHECK(!table);
}

int main(int count, char **words) {
    ask(other); if (count > 1 && !strcmp(words[1], "other")) return 0;
    ask(runtime); OK(cuInit(0)); ask(runtime); return 0;
}
