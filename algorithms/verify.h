/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier: a symbolic run of all ranks' programs. A value is an expression over
 * contributions (rank, chunk, tile), one n-ary node per reducing step, so equal values are equal
 * bits. It proves for one shape: every output chunk holds exactly the right contributions, the
 * same expression on every rank; FINAL exactly where a reduction is complete; no deadlock at a
 * given FIFO depth; no chunk read after it was overwritten or while another worker may write it
 * (happens-before by vector clocks); nothing left in a FIFO; buffers that a rank does not own
 * (a non-root's OUT of reduce) untouched.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_H
#define GYRE_ALGORITHMS_VERIFY_H

#include "core/model/schedule.h"

struct gyre_verify_options {
    bool in_place;    /* IN and OUT alias as gyre.h says for the collective */
    uint32_t depth;   /* slots of each FIFO, 1..GYRE_MAX_DEPTH; 0 = the least without a deadlock */
    uint32_t n_tiles; /* 0 = depth + 2 */
};

struct gyre_verify_report {
    uint32_t min_depth;    /* least depth that completes (when options.depth was 0) */
    uint64_t n_steps;      /* executed, all ranks and tiles */
    bool credits_elidable; /* at depth 2 no sender can run ahead of its receiver's credit */
    char reason[512];      /* why it was refused; "" when proved */
};

/** gyre_verify - prove one shape.
 * @programs: n_ranks programs, by rank, of one shape.
 * @report_out: always filled.
 * Returns SUCCESS when proved, INVALID_ARGUMENT when refused (report_out->reason names rank,
 * worker, step and what is wrong), OUT_OF_MEMORY. */
gyre_status gyre_verify(const struct gyre_program *const *programs, int n_ranks,
                        const struct gyre_verify_options *options,
                        struct gyre_verify_report *report_out);

#endif
