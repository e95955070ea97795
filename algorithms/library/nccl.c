/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's NVLS as messages between ranks. Phases are workers, so that they overlap. All-reduce of
 * four ranks, where rank k owns chunk k:
 *
 *   worker         rank 0          rank 1          rank 2          rank 3
 *     0  sends     1>1 2>2 3>3     2>2 3>3 0>0     3>3 0>0 1>1     0>0 1>1 2>2     chunk>owner
 *     1  sums      chunk 0         chunk 1         chunk 2         chunk 3
 *        sends to  1 2 3           2 3 0           3 0 1           0 1 2           over lane 1
 *     2  keeps     3 2 1           0 3 2           1 0 3           2 1 0
 *
 * Reduce-scatter is the workers 0 and 1, all-gather 1 and 2. A rank sends and receives 2(n-1)/n B;
 * a switch that sums and copies makes it (n+1)/n B, which the contender counts as faster links
 * (algorithms/contenders/nccl.c).
 *
 * nccl_p2p is NCCL's all-to-all. Sends to rank + 1, rank + 2, ... and receptions from rank - 1,
 * rank - 2, ... have blocks of their own, so none waits for another; from nine ranks on, several
 * share one. It is not for calls in place.
 */
#include "algorithms/algorithm.h"

#define RESULT_LANE 1
#define P2P_GROUPS  7 /* as many as GYRE_MAX_WORKERS allow */

struct nvls {
    struct gyre_builder *builder;
    enum gyre_collective coll;
    int n_ranks;
    int rank;
};

/* One after the other, because worker 2 may overwrite a chunk once its owner has received it. */
static void send_to_owners(const struct nvls *nvls)
{
    gyre_builder_worker(nvls->builder);
    for (int i = 1; i < nvls->n_ranks; i++) {
        const int owner = (nvls->rank + i) % nvls->n_ranks;
        const struct gyre_ref in = gyre_in(owner), to = gyre_peer(owner, 0);
        gyre_builder_step(nvls->builder, owner, &in, 1, &to, 1, 0);
    }
}

static void finish_own(const struct nvls *nvls)
{
    const int n = nvls->n_ranks, rank = nvls->rank;
    struct gyre_ref *ins = gyre_builder_allocate(nvls->builder, (size_t)n * sizeof(*ins));
    struct gyre_ref *outs = gyre_builder_allocate(nvls->builder, (size_t)n * sizeof(*outs));
    const struct gyre_ref in = gyre_in(0);
    if (ins == NULL || outs == NULL)
        return;
    for (int i = 0; i < n; i++)
        ins[i] = i == rank ? gyre_in(rank) : gyre_peer(i, 0);
    outs[0] = gyre_out(nvls->coll == GYRE_COLL_REDUCE_SCATTER ? 0 : rank);
    for (int i = 1; i < n; i++)
        outs[i] = gyre_peer((rank + i) % n, RESULT_LANE);
    gyre_builder_worker(nvls->builder);
    if (nvls->coll == GYRE_COLL_ALL_GATHER)
        gyre_builder_step(nvls->builder, rank, &in, 1, outs, 1, 0);
    else
        gyre_builder_reduce(nvls->builder, rank, ins, n, outs, 1, GYRE_STEP_FINAL);
    if (nvls->coll != GYRE_COLL_REDUCE_SCATTER)
        gyre_builder_scatter(nvls->builder, rank, outs[0], &outs[1], n - 1);
}

static void keep_results(const struct nvls *nvls)
{
    gyre_builder_worker(nvls->builder);
    for (int i = 1; i < nvls->n_ranks; i++) {
        const int owner = (nvls->rank + nvls->n_ranks - i) % nvls->n_ranks;
        const struct gyre_ref from = gyre_peer(owner, RESULT_LANE), out = gyre_out(owner);
        gyre_builder_step(nvls->builder, owner, &from, 1, &out, 1,
                          i < nvls->n_ranks - 1 ? GYRE_STEP_WITH_NEXT : 0);
    }
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct nvls nvls = {builder, shape->coll, shape->n_ranks, rank};
    gyre_builder_lanes(builder, RESULT_LANE + 1);
    if (shape->coll != GYRE_COLL_ALL_GATHER)
        send_to_owners(&nvls);
    finish_own(&nvls);
    if (shape->coll != GYRE_COLL_REDUCE_SCATTER)
        keep_results(&nvls);
}

static int n_chunks(const struct gyre_shape *shape)
{
    return shape->coll == GYRE_COLL_ALL_REDUCE ? shape->n_ranks : 1;
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.flow = GYRE_FLOW_CUT};
    return true;
}

const struct gyre_algorithm gyre_algorithm_nccl_nvls = {
    .name = "nccl_nvls",
    .summary = "all pairs, scatter, sum and gather at the same time",
    .collectives =
        1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_REDUCE_SCATTER | 1U << GYRE_COLL_ALL_GATHER,
    .can_do = can_do,
    .emit = emit,
    .n_chunks = n_chunks,
};

static void emit_p2p(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const int n = shape->n_ranks, n_groups = n - 1 < P2P_GROUPS ? n - 1 : P2P_GROUPS;
    const struct gyre_ref own_in = gyre_in(rank), own_out = gyre_out(rank);
    gyre_builder_worker(builder);
    gyre_builder_step(builder, rank, &own_in, 1, &own_out, 1, 0);
    for (int group = 0; group < 2 * n_groups; group++) {
        gyre_builder_worker(builder);
        for (int i = 1 + group / 2; i < n; i += n_groups) {
            const bool is_send = group % 2 == 0;
            const int peer = (rank + (is_send ? i : n - i)) % n;
            const struct gyre_ref fifo = gyre_peer(peer, 0);
            const struct gyre_ref data = is_send ? gyre_in(peer) : gyre_out(peer);
            gyre_builder_step(builder, peer, is_send ? &data : &fifo, 1, is_send ? &fifo : &data, 1,
                              i + n_groups < n ? GYRE_STEP_WITH_NEXT : 0);
        }
    }
}

static bool can_do_p2p(const struct gyre_shape *shape, struct gyre_ability *can_out,
                       const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.flow = GYRE_FLOW_ONE_HOP};
    return true;
}

const struct gyre_algorithm gyre_algorithm_nccl_p2p = {
    .name = "nccl_p2p",
    .summary = "all sends and receives at the same time; not in place",
    .collectives = 1U << GYRE_COLL_ALL_TO_ALL,
    .can_do = can_do_p2p,
    .emit = emit_p2p,
};
