/* A program that reads a device pointer as a host pointer crashes. */
#include "driver.h"

int main(void) { ptr p; start(); OK(cuMemAlloc_v2(&p, 4096)); return *(volatile char *)p; }
