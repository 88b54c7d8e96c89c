/* The median of measurements: noise of the machine that meets less than half of them does not change it. */
#pragma once
#include <stdlib.h>

static int in_order(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

/* Returns the median, and leaves the values in order. */
static double median(double *values, int count) {
    qsort(values, count, sizeof *values, in_order);
    return values[count / 2];
}
