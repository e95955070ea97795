/* SPDX-License-Identifier: Apache-2.0
 *
 * Works without plans.
 */
#ifndef GYRE_TESTS_TEST_WORK_H
#define GYRE_TESTS_TEST_WORK_H

#include "kernels/executor.h"

/* A work, with what its plan would say. */
struct test_work {
    struct gyre_loaded *loaded;
    const void *in;
    void *out;
    struct gyre_split split;
    struct gyre_reduction reduction; /* with its scalar */
    uint32_t signature;
    uint64_t sequence;
    const struct gyre_placement *placement;
    int n_bases; /* of the placement, if results are placed */
    uint64_t out_offset_bytes;
    uint32_t follows;
};

/* Makes the work ready: free with gyre_ready_free(). */
static inline gyre_status test_work_ready(struct gyre_executor *executor,
                                          const struct test_work *work,
                                          struct gyre_ready **ready_out)
{
    uintptr_t addresses = (uintptr_t)work->in | (uintptr_t)work->out;
    for (int rank = 0; rank < work->n_bases; rank++)
        addresses |= (uintptr_t)work->placement->bases[rank] + work->out_offset_bytes;
    const struct gyre_ready wanted = {.loaded = work->loaded,
                                      .split = work->split,
                                      .reduction = work->reduction,
                                      .is_in_place = work->in == work->out,
                                      .is_aligned = addresses % 16 == 0};
    return executor->ops->ready(executor, &wanted, ready_out);
}

static inline struct gyre_work test_work_of(const struct test_work *work,
                                            const struct gyre_ready *ready)
{
    return (struct gyre_work){.ready = ready,
                              .in = work->in,
                              .out = work->out,
                              .scalar = work->reduction.scalar,
                              .signature = work->signature,
                              .sequence = work->sequence,
                              .placement = work->placement,
                              .out_offset_bytes = work->out_offset_bytes,
                              .follows = work->follows};
}

#define TEST_WORKS 160

/* As one launch. */
static inline gyre_status test_enqueue(struct gyre_executor *executor,
                                       const struct test_work *works, int n_works,
                                       gyre_stream stream)
{
    struct gyre_ready *ready[TEST_WORKS] = {NULL};
    struct gyre_work of_plans[TEST_WORKS];
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < n_works && status == GYRE_SUCCESS; i++) {
        status = test_work_ready(executor, &works[i], &ready[i]);
        of_plans[i] = test_work_of(&works[i], ready[i]);
    }
    if (status == GYRE_SUCCESS)
        status = executor->ops->enqueue(executor, of_plans, n_works, stream);
    for (int i = 0; i < n_works; i++)
        gyre_ready_free(ready[i]);
    return status;
}

#endif
