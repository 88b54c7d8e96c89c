// The management library's lists of processes, in all versions.
#pragma once
#include "host.h"

struct info_v1 {
    unsigned pid;
    u64 used;
};
struct info_v2 {
    unsigned pid;
    u64 used;
    unsigned gpu, compute;
};
struct detail {
    unsigned pid;
    u64 used;
    unsigned gpu, compute;
    u64 secret;
};
struct details {
    unsigned version, mode, count;
    struct detail *entries;
};
