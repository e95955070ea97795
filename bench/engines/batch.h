/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that one sample of a comparison consists of, and how they are timed.
 */
#ifndef GYRE_BENCH_BATCH_H
#define GYRE_BENCH_BATCH_H

#include "bench/driver/graph.h"
#include "bench/engines/compare.h"

/* The calls of a sample: n_batch calls of one engine and one wait, or replays of a graph of them.
 */
struct bench_batch {
    const struct bench_engine *engine;       /* NULL = gyre */
    const struct bench_contender *contender; /* of gyre's call; NULL = as it is */
    const struct bench_call *call;
    int n_batch;
    struct bench_graph *graph; /* NULL = not captured */
    int n_replays;
};

/** bench_batch_select - make the plan choose the batch's contender, and run the call once, because
 * the plan is made anew then, which must not be timed. Does nothing for a batch without a
 * contender, or with a graph. */
gyre_status bench_batch_select(struct bench_rank *rank, const struct bench_batch *batch);

/** bench_batch_capture - capture the batch's calls as a graph, and launch it once. The caller
 * closes batch->graph. */
gyre_status bench_batch_capture(struct bench_rank *rank, struct bench_batch *batch);

/** bench_batch_time - time @n samples of one engine. Collective.
 * @us: us[i] becomes the time of a call of sample i, the longest over the ranks.
 * @host_us: the times of this rank's enqueues are added.
 * @turn_us_out: the time that the slowest rank took for all samples, divided by the calls. */
gyre_status bench_batch_time(struct bench_rank *rank, const struct bench_batch *batch, double *us,
                             size_t n, double *host_us, double *turn_us_out);

#endif
