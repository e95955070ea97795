/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs all ranks' programs of one shape symbolically. A chunk or slot contains an expression over
 * contributions (rank, chunk, tile) with a node for each reducing step, so equal expressions mean
 * equal bits. docs/schedule.md lists what this proves.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_H
#define GYRE_ALGORITHMS_VERIFY_H

#include "core/foundation/model/schedule.h"

struct gyre_verify_options {
    bool in_place;    /* as gyre.h says for the collective */
    bool any_order;   /* so that ranks' bits may differ */
    uint32_t depth;   /* of each FIFO, 1..GYRE_MAX_DEPTH; 0 = the least without a deadlock */
    uint32_t n_tiles; /* at most 65535; 0 = depth + 2 */
};

/* -1 where an error concerns no single rank, worker, step, tile or chunk. */
struct gyre_verify_place {
    int32_t rank;
    int32_t worker;
    int32_t step;
    int32_t tile;
    int32_t chunk;
};

struct gyre_verify_report {
    uint32_t min_depth;    /* if options.depth was 0 */
    uint64_t n_steps;      /* of all ranks and tiles */
    bool credits_elidable; /* at depth 2 no sender waits for credit */
    bool same_bits;        /* all ranks reduce in one order */
    char reason[768];      /* "" = proved */
    struct gyre_verify_place place;
};

extern const struct gyre_verify_place gyre_verify_nowhere;

/** @programs: by rank. @report_out: always filled. Errors: INVALID_ARGUMENT (report_out->reason
 * names rank, worker, step and problem), OUT_OF_MEMORY. */
gyre_status gyre_verify(const struct gyre_program *const *programs, int n_ranks,
                        const struct gyre_verify_options *options,
                        struct gyre_verify_report *report_out);

#endif
