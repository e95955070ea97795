/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured choices, with one table for each kind of machine. A size counts the whole vector, or all
 * blocks where buffers are made of blocks. The tuner takes the first row that fits a call.
 */
#ifndef GYRE_PLAN_TABLE_H
#define GYRE_PLAN_TABLE_H

#include "algorithms/algorithm.h"

#include <stddef.h>

/* The choice for calls that kernels carry out. */
struct gyre_tuner_row {
    enum gyre_collective coll;
    bool is_pair;        /* 2 ranks; else more */
    uint64_t most_bytes; /* for calls of so many at most */
    const struct gyre_algorithm *algorithm;
    enum gyre_proto proto;
    uint32_t least_channels; /* with fewer channels, blocks or their slots are too few */
};

/* The choice for calls with results in windows that copy engines carry out. */
struct gyre_tuner_copy_row {
    enum gyre_collective coll;
    bool is_pair;         /* 2 ranks; else more */
    uint64_t least_bytes; /* for calls of so many at least */
    uint32_t
        least_channels; /* with fewer channels, what multiprocessors do before takes too long */
    const struct gyre_algorithm *algorithm;
};

struct gyre_tuner_table {
    const struct gyre_tuner_row *rows;
    size_t n_rows;
    const struct gyre_tuner_copy_row *copy_rows;
    size_t n_copy_rows;
};

extern const struct gyre_tuner_table gyre_tuner_table_h200;

#endif
