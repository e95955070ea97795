/* SPDX-License-Identifier: Apache-2.0
 *
 * Two-shot: the owner of a chunk receives it from all ranks, and sends the sum to all. All-reduce
 * of four ranks, where rank k owns chunk k:
 *
 *   round          rank 0        rank 1        rank 2        rank 3
 *     0  sends     1>1 2>2 3>3   2>2 3>3 0>0   3>3 0>0 1>1   0>0 1>1 2>2   chunk>owner, unordered
 *     1  sums      chunk 0       chunk 1       chunk 2       chunk 3       in the order of ranks,
 *        sends to  1 2 3         2 3 0         3 0 1         0 1 2         and keeps it
 *     2  keeps     3 2 1         0 3 2         1 0 3         2 1 0         as they come
 *
 * With placed data round 2 only waits.
 *
 * In broadcast and reduce the root owns no chunk, so that it sends or receives the vector only
 * once.
 *
 * Cost (n ranks, B bytes): two hops. In an all-reduce every rank sends and receives 2(n-1)/n B.
 *
 * The depth is 2, because an owner sends its sum while its slot of round 0 may be unread.
 */
#include "algorithms/algorithm.h"

struct owners {
    int n_ranks;
    int root; /* owns nothing; -1 = none */
    bool is_placed;
};

static struct owners owners_of(const struct gyre_shape *shape)
{
    const bool has_root = gyre_collectives[shape->coll].has_root;
    struct owners owners = {shape->n_ranks, has_root ? shape->root : -1,
                            shape->is_placed && shape->coll == GYRE_COLL_ALL_REDUCE};
    return owners;
}

static int chunk_of(struct owners owners, int rank)
{
    return owners.root < 0 ? rank : (rank - owners.root - 1 + owners.n_ranks) % owners.n_ranks;
}

/* 1: ascending from the next rank. -1: descending, the order in which they send to this rank.
 * Returns 0 = no memory, which the builder remembers. */
static int other_owners(struct owners owners, int rank, int direction, struct gyre_builder *builder,
                        const uint16_t **owners_out)
{
    uint16_t *others = gyre_builder_allocate(builder, (size_t)owners.n_ranks * sizeof(*others));
    int n = 0;
    for (int i = 1; i < owners.n_ranks && others != NULL; i++) {
        const int peer = (rank + direction * i + owners.n_ranks) % owners.n_ranks;
        if (peer != owners.root)
            others[n++] = (uint16_t)peer;
    }
    *owners_out = others;
    return n;
}

/* With `keep` copy to OUT too. Where owners place data into this rank's OUT, which may be IN, one
 * send follows the other: an owner may overwrite a chunk once it has received it. */
static void send_to_owners(struct owners owners, int rank, bool keep, struct gyre_builder *builder)
{
    const uint16_t *peers;
    const int n_peers = other_owners(owners, rank, 1, builder, &peers);
    for (int i = 0; i < n_peers; i++) {
        const int chunk = chunk_of(owners, peers[i]);
        const struct gyre_ref in = gyre_in(chunk);
        const struct gyre_ref outs[] = {gyre_peer(peers[i], 0), gyre_out(chunk)};
        gyre_builder_step(builder, chunk, &in, 1, outs, keep ? 2 : 1,
                          i < n_peers - 1 && !owners.is_placed ? GYRE_STEP_WITH_NEXT : 0);
    }
}

static struct gyre_ref finished_at(struct owners owners, int owner)
{
    return owners.is_placed ? gyre_placed(owner, 0) : gyre_peer(owner, 0);
}

/* Placed chunks are in OUT already. */
static void keep_from_owners(struct owners owners, int rank, struct gyre_builder *builder)
{
    const uint16_t *peers;
    const int n_peers = other_owners(owners, rank, -1, builder, &peers);
    for (int i = 0; i < n_peers; i++) {
        const int chunk = chunk_of(owners, peers[i]);
        const struct gyre_ref in = finished_at(owners, peers[i]), out = gyre_out(chunk);
        gyre_builder_step(builder, chunk, &in, 1, &out, owners.is_placed ? 0 : 1,
                          i < n_peers - 1 ? GYRE_STEP_WITH_NEXT : 0);
    }
}

/* In the order of ranks. */
static void reduce_mine(struct owners owners, int rank, const struct gyre_ref *outs, int n_outs,
                        struct gyre_builder *builder)
{
    struct gyre_ref *ins = gyre_builder_allocate(builder, (size_t)owners.n_ranks * sizeof(*ins));
    const int mine = chunk_of(owners, rank);
    if (ins == NULL)
        return;
    for (int i = 0; i < owners.n_ranks; i++)
        ins[i] = i == rank ? gyre_in(mine) : gyre_peer(i, 0);
    gyre_builder_reduce(builder, mine, ins, owners.n_ranks, outs, n_outs, GYRE_STEP_FINAL);
}

/* 0 = no memory. */
static int everywhere(struct owners owners, int rank, struct gyre_builder *builder,
                      struct gyre_ref **outs_out)
{
    const uint16_t *peers;
    const int n_peers = other_owners(owners, rank, 1, builder, &peers);
    struct gyre_ref *outs = gyre_builder_allocate(builder, (1 + (size_t)n_peers) * sizeof(*outs));
    *outs_out = outs;
    if (outs == NULL)
        return 0;
    outs[0] = gyre_out(chunk_of(owners, rank));
    for (int i = 0; i < n_peers; i++)
        outs[1 + i] = finished_at(owners, peers[i]);
    return 1 + n_peers;
}

static void hand_out_rest(struct owners owners, int rank, const struct gyre_ref *outs, int n_outs,
                          struct gyre_builder *builder)
{
    const int mine = chunk_of(owners, rank);
    if (n_outs > GYRE_STEP_MAX_OUTS)
        gyre_builder_scatter(builder, mine, gyre_out(mine), &outs[GYRE_STEP_MAX_OUTS],
                             n_outs - GYRE_STEP_MAX_OUTS);
}

static void emit_all_reduce(struct owners owners, int rank, struct gyre_builder *builder)
{
    struct gyre_ref *outs;
    const int n_outs = everywhere(owners, rank, builder, &outs);
    send_to_owners(owners, rank, false, builder);
    reduce_mine(owners, rank, outs, n_outs < GYRE_STEP_MAX_OUTS ? n_outs : GYRE_STEP_MAX_OUTS,
                builder);
    hand_out_rest(owners, rank, outs, n_outs, builder);
    keep_from_owners(owners, rank, builder);
}

static void emit_broadcast(struct owners owners, int rank, struct gyre_builder *builder)
{
    if (rank == owners.root) {
        send_to_owners(owners, rank, true, builder);
        return;
    }
    struct gyre_ref *outs;
    const int n_outs = everywhere(owners, rank, builder, &outs);
    const struct gyre_ref root = gyre_peer(owners.root, 0);
    gyre_builder_step(builder, chunk_of(owners, rank), &root, 1, outs,
                      n_outs < GYRE_STEP_MAX_OUTS ? n_outs : GYRE_STEP_MAX_OUTS, 0);
    hand_out_rest(owners, rank, outs, n_outs, builder);
    keep_from_owners(owners, rank, builder);
}

static void emit_reduce(struct owners owners, int rank, struct gyre_builder *builder)
{
    send_to_owners(owners, rank, false, builder);
    if (rank == owners.root) {
        keep_from_owners(owners, rank, builder);
        return;
    }
    const struct gyre_ref root = gyre_peer(owners.root, 0);
    reduce_mine(owners, rank, &root, 1, builder);
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const struct owners owners = owners_of(shape);
    switch (shape->coll) {
    case GYRE_COLL_ALL_REDUCE:
        emit_all_reduce(owners, rank, builder);
        gyre_builder_min_depth(builder, 2);
        break;
    case GYRE_COLL_BROADCAST:
        emit_broadcast(owners, rank, builder);
        break;
    default:
        emit_reduce(owners, rank, builder);
        break;
    }
}

static int n_chunks(const struct gyre_shape *shape)
{
    return shape->coll == GYRE_COLL_ALL_REDUCE ? shape->n_ranks : shape->n_ranks - 1;
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    (void)why_not;
    const bool is_all_reduce = shape->coll == GYRE_COLL_ALL_REDUCE;
    *can_out = (struct gyre_ability){.flow = is_all_reduce ? GYRE_FLOW_CUT : GYRE_FLOW_CHAIN,
                                     .places = is_all_reduce};
    return true;
}

const struct gyre_algorithm gyre_algorithm_twoshot = {
    .name = "twoshot",
    .summary = "all pairs, two hops; least bytes with all links at once",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_BROADCAST | 1U << GYRE_COLL_REDUCE,
    .can_do = can_do,
    .emit = emit,
    .n_chunks = n_chunks,
};
