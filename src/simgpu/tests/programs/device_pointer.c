/* Nobody takes a device pointer for one of the host's and lives. */
#include "driver.h"

int main(void) { ptr p; start(); OK(cuMemAlloc_v2(&p, 4096)); return *(volatile char *)p; }
