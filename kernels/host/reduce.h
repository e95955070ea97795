/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_HOST_REDUCE_H
#define GYRE_KERNELS_HOST_REDUCE_H

#include "kernels/executor.h"

struct gyre_reduce_step {
    const struct gyre_reduction *reduction;
    const void *ins[GYRE_STEP_MAX_INS]; /* in reduction order; any alignment */
    void *outs[GYRE_STEP_MAX_OUTS];     /* equal to an input or disjoint from all */
    uint32_t n_ins;                     /* >= 1 */
    uint32_t n_outs;
    uint32_t premultiply_mask; /* bit k: ins[k] times the scalar, rounded to dtype */
    bool divide;               /* integers, towards zero */
    uint64_t n_elems;
};

/** gyre_reduce_run - all inputs in order to all outputs. f16, bf16 and fp8 accumulate in f32 and
 * round once. About 24 KiB of stack. Any thread. */
void gyre_reduce_run(const struct gyre_reduce_step *step);

#endif
