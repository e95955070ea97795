/* SPDX-License-Identifier: Apache-2.0
 *
 * A generator is one word, so that ranks derive the same numbers from the same seed, and anything
 * that has a name has its own.
 */
#ifndef GYRE_TESTS_FUZZ_RANDOM_H
#define GYRE_TESTS_FUZZ_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct fuzz_rng {
    uint64_t state;
};

/** The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
 * 2014). */
static inline uint64_t fuzz_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline uint64_t fuzz_next(struct fuzz_rng *rng)
{
    return fuzz_mix(rng->state++);
}

static inline uint64_t fuzz_below(struct fuzz_rng *rng, uint64_t n)
{
    return fuzz_next(rng) % n;
}

static inline bool fuzz_once_in(struct fuzz_rng *rng, uint64_t n)
{
    return fuzz_below(rng, n) == 0;
}

#endif
