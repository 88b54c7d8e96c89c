// Random numbers that a seed repeats: the upper half of a linear congruential generator.
#pragma once
#include "host.h"

// Returns a number below `below`. Multiplier and increment are those of Knuth's MMIX.
static u64 draw(u64 *state, u64 below) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (*state >> 33) % below;
}
