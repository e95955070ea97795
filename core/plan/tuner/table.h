/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured choices, with one table for each kind of machine. A size counts the whole vector, or all
 * blocks where buffers are made of blocks. The tuner takes the first row that fits a call.
 */
#ifndef GYRE_PLAN_TABLE_H
#define GYRE_PLAN_TABLE_H

#include "core/plan/tuner/tuner.h"

/* The choice for calls that kernels carry out. */
struct gyre_tuner_row {
    enum gyre_collective coll;
    bool is_pair;        /* 2 ranks; else more */
    uint64_t most_bytes; /* the row holds for calls of up to so many bytes */
    const struct gyre_algorithm *algorithm;
    enum gyre_proto proto;
    uint32_t least_channels; /* the row holds if the call may use so many channels. With fewer, the
                              * thread blocks or their slots do not fill the links */
};

/* The choice for calls with results in windows that copy engines carry out. */
struct gyre_tuner_copy_row {
    enum gyre_collective coll;
    bool is_pair;         /* 2 ranks; else more */
    uint64_t least_bytes; /* the row holds for calls of at least so many bytes */
    /* The row holds if the call may use so many channels. Before the copy engines copy, a kernel
     * computes sums or copies this rank's own block, which takes too long with fewer channels. */
    uint32_t least_channels;
    const struct gyre_algorithm *algorithm;
};

struct gyre_tuner_table {
    const struct gyre_tuner_row *rows;
    size_t n_rows;
    const struct gyre_tuner_copy_row *copy_rows;
    size_t n_copy_rows;
};

extern const struct gyre_tuner_table gyre_tuner_table_h200;
extern const struct gyre_tuner_table gyre_tuner_table_host_memory;

/** gyre_tuner_table_of - the measured choices. All GPUs that address each other's memory use those
 * of the H200. */
static inline const struct gyre_tuner_table *
gyre_tuner_table_of(const struct gyre_tuner_facts *facts)
{
    return facts->in_host_memory ? &gyre_tuner_table_host_memory : &gyre_tuner_table_h200;
}

#endif
