/* SPDX-License-Identifier: Apache-2.0
 *
 * A concrete interpreter of programs, written from docs/schedule.md and gyre.h and not from the
 * verifier: it runs all ranks with random integers in a random interleaving, the steps of a
 * WITH_NEXT run in random order, and compares OUT with the collective's formula.
 *
 * A value has two words: a sum, which any right order gives, and a hash of the order of its
 * reduction. Loading IN multiplies the sum, and FINAL multiplies it by something else, so that
 * doing either twice, too early or not at all shows.
 */
#ifndef GYRE_TESTS_INTERPRET_H
#define GYRE_TESTS_INTERPRET_H

#include "core/foundation/model/schedule.h"

enum interpret_result {
    INTERPRET_RIGHT,
    INTERPRET_WRONG,    /* than the formula, or between ranks */
    INTERPRET_HANGS,    /* no worker can go on */
    INTERPRET_LEFTOVER, /* slots remain, the next call would read them */
};

struct interpret_options {
    bool in_place;
    uint32_t depth;
    uint32_t n_tiles;
    uint64_t seed; /* of data and interleaving */
};

/** Structurally right programs of one shape, once. A step moves 32 chunks at most. */
enum interpret_result interpret(struct gyre_program *const *programs,
                                const struct interpret_options *options);

/** Splitmix64. */
uint64_t next_random(uint64_t *state);

#endif
