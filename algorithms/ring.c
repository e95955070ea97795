/* SPDX-License-Identifier: Apache-2.0
 *
 * Ring and chain. hosts.h describes the variants. All-reduce of four ranks; c2 is a sum of chunk c
 * over two ranks, a capital letter is a finished chunk:
 *
 *   round     0 -> 1     1 -> 2     2 -> 3     3 -> 0
 *     0         d          a          b          c       own input
 *     1         c2         d2         a2         b2      receive, add own input, send
 *     2         b3         c3         d3         a3      receive, add own input, send
 *     3         A          B          C          D       receive, finish, keep and send
 *     4         D          A          B          C       receive, keep and send
 *     5         C          D          A          B       receive, keep and send
 *               keeps B    keeps C    keeps D    keeps A ... and the last one is only kept
 *
 * Reduce-scatter is rounds 0 to 3 without the sends of round 3. All-gather is rounds 3 to 5 with a
 * rank's own block for the finished chunk. Broadcast and reduce are a chain. Cost (n ranks, B
 * bytes): all-reduce has 2(n-1) hops and 2(n-1)/n B a link, chains n-1 hops and B.
 *
 * The depth is 2, because a rank sends while its slot of the previous round may be unread.
 *
 * nccl_ring moves each chunk as two slices, as NCCL's Simple protocol does. Its depth is 3.
 *
 * Spread is reduce-scatter, then every rank sends its chunk to all others at once: as many bytes,
 * in n hops. With placed data the second half is large copies only.
 */
#include "algorithms/algorithm.h"
#include "algorithms/hosts.h"

struct ring {
    struct gyre_builder *builder;
    const uint16_t *order;
    int n;
    int at;
    int n_slices; /* of a chunk */
    struct gyre_ref next;
    struct gyre_ref prev;
    struct gyre_ref next_out; /* for finished chunks; may be placed */
    struct gyre_ref prev_out;
    bool is_placed;
};

static int before(const struct ring *ring, int distance)
{
    return ring->order[(ring->at - distance + 2 * ring->n) % ring->n];
}

/* False = no memory, which the builder remembers. */
static bool open_ring(struct ring *ring, const struct gyre_shape *shape, int rank, int n_slices,
                      struct gyre_builder *builder)
{
    const struct gyre_hosts *hosts = gyre_hosts_open(shape, false, builder);
    uint16_t *order = gyre_builder_allocate(builder, shape->n_ranks * sizeof(*order));
    if (hosts == NULL || order == NULL)
        return false;
    gyre_hosts_ring(hosts, shape, order);
    *ring = (struct ring){.builder = builder,
                          .order = order,
                          .n = shape->n_ranks,
                          .n_slices = n_slices,
                          .is_placed = shape->is_placed && n_slices == 1};
    while (ring->order[ring->at] != rank)
        ring->at++;
    ring->next = gyre_peer(before(ring, -1), 0);
    ring->prev = gyre_peer(before(ring, 1), 0);
    ring->next_out = ring->is_placed ? gyre_placed(before(ring, -1), 0) : ring->next;
    ring->prev_out = ring->is_placed ? gyre_placed(before(ring, 1), 0) : ring->prev;
    return true;
}

static void pass_on(const struct ring *ring, int chunk, bool is_last)
{
    const struct gyre_ref outs[] = {gyre_out(chunk), ring->next_out};
    const int n_outs = is_last ? 1 : 2;
    if (ring->is_placed)
        gyre_builder_step(ring->builder, chunk, &ring->prev_out, 1, &outs[1], n_outs - 1, 0);
    else
        gyre_builder_step(ring->builder, chunk, &ring->prev_out, 1, outs, n_outs, 0);
}

/* @owner: whose chunk is sent in round 0. */
static void send_own(const struct ring *ring, int owner)
{
    for (int slice = 0; slice < ring->n_slices; slice++) {
        const int chunk = owner * ring->n_slices + slice;
        const struct gyre_ref in = gyre_in(chunk);
        gyre_builder_step(ring->builder, chunk, &in, 1, &ring->next, 1, 0);
    }
}

/* Finishes this rank's own chunk, into OUT at @first_out and with @passes_on to the next rank. */
static void reduce_around(const struct ring *ring, int first_out, bool passes_on)
{
    send_own(ring, before(ring, 1));
    for (int round = 1; round < ring->n; round++)
        for (int slice = 0; slice < ring->n_slices; slice++) {
            const int chunk = before(ring, 1 + round) * ring->n_slices + slice;
            const struct gyre_ref ins[] = {ring->prev, gyre_in(chunk)};
            const struct gyre_ref outs[] = {gyre_out(first_out + slice), ring->next_out};
            if (round < ring->n - 1)
                gyre_builder_step(ring->builder, chunk, ins, 2, &ring->next, 1, 0);
            else
                gyre_builder_step(ring->builder, chunk, ins, 2, outs, passes_on ? 2 : 1,
                                  GYRE_STEP_FINAL);
        }
}

static void gather_around(const struct ring *ring)
{
    for (int round = 1; round < ring->n; round++)
        for (int slice = 0; slice < ring->n_slices; slice++)
            pass_on(ring, before(ring, round) * ring->n_slices + slice, round == ring->n - 1);
}

static void emit_all_gather(const struct ring *ring, int rank)
{
    for (int slice = 0; slice < ring->n_slices; slice++) {
        const int block = rank * ring->n_slices + slice;
        const struct gyre_ref in = gyre_in(slice);
        const struct gyre_ref outs[] = {gyre_out(block), ring->next_out};
        gyre_builder_step(ring->builder, block, &in, 1, outs, 2, 0);
    }
    gather_around(ring);
}

static void emit_broadcast(const struct ring *ring)
{
    const struct gyre_ref in = gyre_in(0);
    const struct gyre_ref outs[] = {gyre_out(0), ring->next_out};
    if (ring->at == 0)
        gyre_builder_step(ring->builder, 0, &in, 1, outs, 2, 0);
    else
        pass_on(ring, 0, ring->at == ring->n - 1);
}

static void emit_reduce(const struct ring *ring)
{
    const bool is_first = ring->at == 0, is_root = ring->at == ring->n - 1;
    const struct gyre_ref ins[] = {gyre_in(0), ring->prev};
    const struct gyre_ref out = is_root ? gyre_out(0) : ring->next;
    gyre_builder_step(ring->builder, 0, ins, is_first ? 1 : 2, &out, 1,
                      is_root ? GYRE_STEP_FINAL : 0);
}

static void emit_sliced(const struct gyre_shape *shape, int rank, int n_slices,
                        struct gyre_builder *builder)
{
    struct ring ring;
    if (!open_ring(&ring, shape, rank, n_slices, builder))
        return;
    switch (shape->coll) {
    case GYRE_COLL_ALL_REDUCE:
        reduce_around(&ring, rank * n_slices, true);
        gather_around(&ring);
        break;
    case GYRE_COLL_REDUCE_SCATTER:
        reduce_around(&ring, 0, false);
        break;
    case GYRE_COLL_ALL_GATHER:
        emit_all_gather(&ring, rank);
        break;
    case GYRE_COLL_BROADCAST:
        emit_broadcast(&ring);
        return;
    default:
        emit_reduce(&ring);
        return;
    }
    gyre_builder_min_depth(builder, n_slices + 1);
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit_sliced(shape, rank, 1, builder);
}

#define NCCL_SLICES 2

static void emit_nccl(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    emit_sliced(shape, rank, NCCL_SLICES, builder);
}

static void emit_spread(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    struct ring ring;
    const struct gyre_ref mine = gyre_out(rank);
    struct gyre_ref *peers = gyre_builder_allocate(builder, shape->n_ranks * sizeof(*peers));
    if (peers == NULL || !open_ring(&ring, shape, rank, 1, builder))
        return;
    reduce_around(&ring, rank, false);
    const int n_peers = gyre_peers_from_next(shape, rank, shape->is_placed, peers);
    gyre_builder_scatter(builder, rank, mine, peers, n_peers);
    /* All ranks send in the same order, so the previous rank's chunk arrives first. */
    for (int i = n_peers; i > 0; i--) {
        const int owner = peers[i - 1].index;
        const struct gyre_ref out = gyre_out(owner);
        gyre_builder_step(builder, owner, &peers[i - 1], 1, &out, shape->is_placed ? 0 : 1,
                          i > 1 ? GYRE_STEP_WITH_NEXT : 0);
    }
    gyre_builder_min_depth(builder, 2);
}

static int n_chunks(const struct gyre_shape *shape)
{
    return shape->coll == GYRE_COLL_ALL_REDUCE ? shape->n_ranks : 1;
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    (void)why_not;
    const enum gyre_collective coll = shape->coll;
    *can_out = (struct gyre_ability){
        .reach = GYRE_REACH_RING,
        .flow = coll == GYRE_COLL_BROADCAST || coll == GYRE_COLL_REDUCE ? GYRE_FLOW_CHAIN
                                                                        : GYRE_FLOW_RELAY,
        .places = coll == GYRE_COLL_ALL_REDUCE || coll == GYRE_COLL_ALL_GATHER ||
                  coll == GYRE_COLL_BROADCAST,
        .copy_tail = coll == GYRE_COLL_ALL_GATHER || coll == GYRE_COLL_BROADCAST,
    };
    return true;
}

static int n_slices_of_nccl(const struct gyre_shape *shape)
{
    return NCCL_SLICES * n_chunks(shape);
}

static bool can_do_nccl(const struct gyre_shape *shape, struct gyre_ability *can_out,
                        const char **why_not)
{
    (void)shape;
    (void)why_not;
    *can_out = (struct gyre_ability){.reach = GYRE_REACH_RING};
    return true;
}

const struct gyre_algorithm gyre_algorithm_nccl_ring = {
    .name = "nccl_ring",
    .summary = "ring of NCCL's Simple protocol: two slices a chunk",
    .collectives =
        1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_REDUCE_SCATTER,
    .can_do = can_do_nccl,
    .n_variants = gyre_hosts_variants,
    .emit = emit_nccl,
    .n_chunks = n_slices_of_nccl,
};

const struct gyre_algorithm gyre_algorithm_ring = {
    .name = "ring",
    .summary = "neighbours only; least bytes, most hops",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE | 1U << GYRE_COLL_BROADCAST | 1U << GYRE_COLL_REDUCE |
                   1U << GYRE_COLL_ALL_GATHER | 1U << GYRE_COLL_REDUCE_SCATTER,
    .can_do = can_do,
    .n_variants = gyre_hosts_variants,
    .emit = emit,
    .n_chunks = n_chunks,
};

static bool can_do_spread(const struct gyre_shape *shape, struct gyre_ability *can_out,
                          const char **why_not)
{
    (void)why_not;
    *can_out = (struct gyre_ability){
        .reach = shape->is_placed ? GYRE_REACH_RING : GYRE_REACH_ALL,
        .places = true,
        .copy_tail = true,
    };
    return true;
}

const struct gyre_algorithm gyre_algorithm_spread = {
    .name = "spread",
    .summary = "sums along a ring, results to all at once; for copy engines",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE,
    .can_do = can_do_spread,
    .n_variants = gyre_hosts_variants,
    .emit = emit_spread,
    .n_chunks = n_chunks,
};
