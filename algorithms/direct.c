/* SPDX-License-Identifier: Apache-2.0
 *
 * Direct ("one-shot"). All-reduce of four ranks with whole vectors, of which other collectives send
 * parts:
 *
 *   round          rank 0        rank 1        rank 2        rank 3
 *     0  sends to  1 2 3         2 3 0         3 0 1         0 1 2        own input, unordered
 *     1  sums      0+1+2+3       0+1+2+3       0+1+2+3       0+1+2+3      in this order, all alike
 *
 * Cost (n ranks, B bytes a rank): one hop. An all-reduce sends (n-1) B, all-gather, reduce-scatter
 * and all-to-all the fewest possible bytes. More than eight contributions are summed in groups of
 * eight, the same on all ranks.
 *
 * `sendrecv`: the root sends; the plan maps the two ranks to the communicator's. Four ranks that
 * swap data in pairs:
 *
 *   0 -> 1    in  ->  out        program of (0, 1), and at the same time of (1, 0)
 *   2 -> 3    in  ->  out        program of (2, 3), and at the same time of (3, 2)
 */
#include "algorithms/algorithm.h"

#define PLACES (1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_ALL_TO_ALL)

/* Received blocks need no slots if the ranks can address each other's OUT. */
static bool places(const struct gyre_shape *shape)
{
    return shape->is_placed && (PLACES >> shape->coll & 1U) != 0;
}

/* @own: NULL, or where to copy IN(0). */
static void send_own(const struct gyre_shape *shape, int rank, const struct gyre_ref *own,
                     struct gyre_builder *builder)
{
    struct gyre_ref *outs = gyre_builder_allocate(builder, shape->n_ranks * sizeof(*outs));
    if (outs == NULL)
        return;
    int n_outs = gyre_peers_from_next(shape, rank, places(shape), outs);
    if (own != NULL)
        outs[n_outs++] = *own;
    const bool is_block = gyre_collectives[shape->coll].out_blocks;
    gyre_builder_scatter(builder, is_block ? rank : 0, gyre_in(0), outs, n_outs);
}

static void send_blocks(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    for (int i = 1; i < shape->n_ranks; i++) {
        const int peer = (rank + i) % shape->n_ranks;
        const struct gyre_ref in = gyre_in(peer);
        const struct gyre_ref out = places(shape) ? gyre_placed(peer, 0) : gyre_peer(peer, 0);
        const bool with_next = i < shape->n_ranks - 1 && !places(shape);
        gyre_builder_step(builder, places(shape) ? rank : peer, &in, 1, &out, 1,
                          with_next ? GYRE_STEP_WITH_NEXT : 0);
    }
}

/* In the order in which the peers send. */
static void keep_blocks(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    for (int i = 1; i < shape->n_ranks; i++) {
        const int peer = (rank - i + shape->n_ranks) % shape->n_ranks;
        const struct gyre_ref in = places(shape) ? gyre_placed(peer, 0) : gyre_peer(peer, 0);
        const struct gyre_ref out = gyre_out(peer);
        gyre_builder_step(builder, peer, &in, 1, &out, places(shape) ? 0 : 1,
                          i < shape->n_ranks - 1 ? GYRE_STEP_WITH_NEXT : 0);
    }
}

/* In the order of ranks. */
static void reduce_all(const struct gyre_shape *shape, int rank, int own, int chunk,
                       struct gyre_builder *builder)
{
    struct gyre_ref *ins = gyre_builder_allocate(builder, shape->n_ranks * sizeof(*ins));
    if (ins == NULL)
        return;
    for (int i = 0; i < shape->n_ranks; i++)
        ins[i] = i == rank ? gyre_in(own) : gyre_peer(i, 0);
    const struct gyre_ref out = gyre_out(0);
    gyre_builder_reduce(builder, chunk, ins, shape->n_ranks, &out, 1, GYRE_STEP_FINAL);
}

static void one_step(struct gyre_builder *builder, int chunk, struct gyre_ref in,
                     struct gyre_ref out)
{
    gyre_builder_step(builder, chunk, &in, 1, &out, 1, 0);
}

static void emit_rooted(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct gyre_ref root = gyre_peer(shape->root, 0);
    const struct gyre_ref out = gyre_out(0);
    const bool is_root = rank == shape->root;
    switch (shape->coll) {
    case GYRE_COLL_BROADCAST:
        if (is_root)
            send_own(shape, rank, &out, builder);
        else
            one_step(builder, 0, root, out);
        break;
    case GYRE_COLL_REDUCE:
        if (is_root)
            reduce_all(shape, rank, 0, 0, builder);
        else
            one_step(builder, 0, gyre_in(0), root);
        break;
    case GYRE_COLL_GATHER:
        one_step(builder, rank, gyre_in(0), is_root ? gyre_out(rank) : root);
        if (is_root)
            keep_blocks(shape, rank, builder);
        break;
    default:
        if (is_root)
            send_blocks(shape, rank, builder);
        one_step(builder, rank, is_root ? gyre_in(rank) : root, out);
        break;
    }
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct gyre_ref own = gyre_out(rank);
    switch (shape->coll) {
    case GYRE_COLL_ALL_REDUCE:
        send_own(shape, rank, NULL, builder);
        reduce_all(shape, rank, 0, 0, builder);
        break;
    case GYRE_COLL_REDUCE_SCATTER:
        send_blocks(shape, rank, builder);
        reduce_all(shape, rank, rank, rank, builder);
        break;
    case GYRE_COLL_ALL_GATHER:
        send_own(shape, rank, &own, builder);
        keep_blocks(shape, rank, builder);
        break;
    case GYRE_COLL_ALL_TO_ALL:
        send_blocks(shape, rank, builder);
        one_step(builder, rank, gyre_in(rank), own);
        keep_blocks(shape, rank, builder);
        break;
    default:
        emit_rooted(shape, rank, builder);
        break;
    }
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    (void)why_not;
    const bool may_place = (PLACES >> shape->coll & 1U) != 0;
    *can_out = (struct gyre_ability){
        .flow = GYRE_FLOW_ONE_HOP, .places = may_place, .copy_tail = may_place};
    return true;
}

const struct gyre_algorithm gyre_algorithm_direct = {
    .name = "direct",
    .summary = "all pairs, one hop; for small vectors and for blocks",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_BROADCAST | 1U << GYRE_COLL_REDUCE |
                   1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_REDUCE_SCATTER |
                   1U << GYRE_COLL_ALL_TO_ALL | 1U << GYRE_COLL_GATHER | 1U << GYRE_COLL_SCATTER,
    .can_do = can_do,
    .emit = emit,
};

static void emit_send_recv(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const bool is_sender = rank == shape->root;
    const struct gyre_ref peer = gyre_peer(1 - rank, 0);
    const struct gyre_ref in = is_sender ? gyre_in(0) : peer;
    const struct gyre_ref out = is_sender ? peer : gyre_out(0);
    gyre_builder_step(builder, 0, &in, 1, &out, 1, 0);
}

static bool can_do_send_recv(const struct gyre_shape *shape, struct gyre_ability *can_out,
                             const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.flow = GYRE_FLOW_RELAY};
    return true;
}

const struct gyre_algorithm gyre_algorithm_sendrecv = {
    .name = "sendrecv",
    .summary = "one rank to another",
    .collectives = 1U << GYRE_COLL_SEND_RECV,
    .can_do = can_do_send_recv,
    .emit = emit_send_recv,
};
