/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs for tests of executors: two lanes, scratch, fan-out and fan-in, without an algorithm.
 */
#ifndef GYRE_TESTS_HOST_PROGRAMS_H
#define GYRE_TESTS_HOST_PROGRAMS_H

#include "algorithms/algorithm.h"
#include "core/foundation/model/schedule.h"
#include "tests/support/host_rig.h"

enum { N_LANES = 2, MAX_CHANNELS = 3 };

/* Each chunk goes round to be reduced, then to be known. */
static inline void emit_ring_all_reduce(struct gyre_builder *builder, int n, int rank, int root)
{
    const struct gyre_ref to = gyre_peer((rank + 1) % n, 0);
    const struct gyre_ref from = gyre_peer((rank + n - 1) % n, 0);
    (void)root;
    gyre_builder_worker(builder);
    gyre_builder_min_depth(builder, 2);
    if (n == 1) {
        const struct gyre_ref in = gyre_in(0);
        const struct gyre_ref out = gyre_out(0);
        gyre_builder_step(builder, 0, &in, 1, &out, 1, GYRE_STEP_FINAL);
        return;
    }
    for (int k = 0; k < 2 * n - 1; k++) {
        const int chunk = (rank + 2 * n - 1 - k) % n;
        const struct gyre_ref ins[] = {from, gyre_in(chunk)};
        const struct gyre_ref outs[] = {to, gyre_out(chunk)};
        if (k == 0)
            gyre_builder_step(builder, chunk, &ins[1], 1, &to, 1, 0);
        else if (k < n - 1)
            gyre_builder_step(builder, chunk, ins, 2, &to, 1, 0);
        else if (k == n - 1)
            gyre_builder_step(builder, chunk, ins, 2, outs, 2, GYRE_STEP_FINAL);
        else if (k < 2 * n - 2)
            gyre_builder_step(builder, chunk, &from, 1, outs, 2, 0);
        else
            gyre_builder_step(builder, chunk, &from, 1, &outs[1], 1, 0);
    }
}

/* Two workers, on two lanes, run at once. */
static inline void emit_all_gather(struct gyre_builder *builder, int n, int rank, int root)
{
    const struct gyre_ref in = gyre_in(0);
    struct gyre_ref outs[HOST_RIG_MAX_RANKS];
    (void)root;
    gyre_builder_lanes(builder, N_LANES);
    gyre_builder_worker(builder);
    for (int k = 1; k < n; k++)
        outs[k - 1] = gyre_peer((rank + k) % n, 1);
    if (n > 1)
        gyre_builder_step(builder, 0, &in, 1, outs, n - 1, 0);
    const struct gyre_ref own = gyre_out(rank);
    gyre_builder_step(builder, 0, &in, 1, &own, 1, 0);
    gyre_builder_worker(builder);
    for (int k = 1; k < n; k++) {
        const struct gyre_ref from = gyre_peer((rank + k) % n, 1);
        const struct gyre_ref out = gyre_out((rank + k) % n);
        gyre_builder_step(builder, 0, &from, 1, &out, 1, 0);
    }
}

/* All blocks are reduced in rank order in one step. */
static inline void emit_reduce_scatter(struct gyre_builder *builder, int n, int rank, int root)
{
    struct gyre_ref ins[HOST_RIG_MAX_RANKS];
    const struct gyre_ref out = gyre_out(0);
    (void)root;
    gyre_builder_worker(builder);
    for (int k = 1; k < n; k++) {
        const int peer = (rank + k) % n;
        const struct gyre_ref block = gyre_in(peer);
        const struct gyre_ref to = gyre_peer(peer, 0);
        gyre_builder_step(builder, 0, &block, 1, &to, 1, 0);
    }
    for (int k = 0; k < n; k++)
        ins[k] = k == rank ? gyre_in(rank) : gyre_peer(k, 0);
    gyre_builder_step(builder, 0, ins, n, &out, 1, GYRE_STEP_FINAL);
}

/* Towards the root, at last by way of scratch. */
static inline void emit_chain_reduce(struct gyre_builder *builder, int n, int rank, int root)
{
    const int place = (rank - root + n) % n; /* 0 = root; n-1 begins */
    const struct gyre_ref ins[] = {gyre_peer((rank + 1) % n, 0), gyre_in(0)};
    const struct gyre_ref to = gyre_peer((rank + n - 1) % n, 0);
    const struct gyre_ref scratch = gyre_scratch(0);
    const struct gyre_ref out = gyre_out(0);
    gyre_builder_worker(builder);
    if (place == n - 1 && n > 1) {
        gyre_builder_step(builder, 0, &ins[1], 1, &to, 1, 0);
    } else if (place > 0) {
        gyre_builder_step(builder, 0, ins, 2, &to, 1, 0);
    } else {
        gyre_builder_step(builder, 0, n > 1 ? ins : &ins[1], n > 1 ? 2 : 1, &scratch, 1,
                          GYRE_STEP_FINAL);
        gyre_builder_step(builder, 0, &scratch, 1, &out, 1, 0);
    }
}

static inline void emit_chain_broadcast(struct gyre_builder *builder, int n, int rank, int root)
{
    const int place = (rank - root + n) % n;
    const struct gyre_ref in = place == 0 ? gyre_in(0) : gyre_peer((rank + n - 1) % n, 0);
    const struct gyre_ref outs[] = {gyre_out(0), gyre_peer((rank + 1) % n, 0)};
    gyre_builder_worker(builder);
    gyre_builder_step(builder, 0, &in, 1, outs, place == n - 1 ? 1 : 2, 0);
}

static inline void emit_send_recv(struct gyre_builder *builder, int n, int rank, int root)
{
    const struct gyre_ref in = rank == root ? gyre_in(0) : gyre_peer(1 - rank, 0);
    const struct gyre_ref out = rank != root || n == 1 ? gyre_out(0) : gyre_peer(1 - rank, 0);
    gyre_builder_worker(builder);
    gyre_builder_step(builder, 0, &in, 1, &out, 1, 0);
}

struct kind {
    enum gyre_collective coll;
    void (*emit)(struct gyre_builder *builder, int n, int rank, int root);
    bool has_chunks;                        /* n of them */
    const struct gyre_algorithm *algorithm; /* instead of emit */
    const struct gyre_grouping *grouping;
    bool is_placed;
    uint16_t most_range;
};

static const struct kind kinds[] = {
    {GYRE_COLL_ALL_REDUCE, emit_ring_all_reduce, true, NULL, NULL, false, 0},
    {GYRE_COLL_ALL_GATHER, emit_all_gather, false, NULL, NULL, false, 0},
    {GYRE_COLL_REDUCE_SCATTER, emit_reduce_scatter, false, NULL, NULL, false, 0},
    {GYRE_COLL_REDUCE, emit_chain_reduce, false, NULL, NULL, false, 0},
    {GYRE_COLL_BROADCAST, emit_chain_broadcast, false, NULL, NULL, false, 0},
};
static const struct kind send_recv_kind = {
    GYRE_COLL_SEND_RECV, emit_send_recv, false, NULL, NULL, false, 0};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static inline struct gyre_program *make_program(const struct kind *kind, int n, int rank, int root)
{
    const struct gyre_shape shape = {.coll = kind->coll,
                                     .n_ranks = (uint16_t)n,
                                     .root = (uint16_t)root,
                                     .most_range = kind->most_range,
                                     .grouping = kind->grouping,
                                     .is_placed = kind->is_placed};
    struct gyre_builder *builder = NULL;
    struct gyre_program *program = NULL;
    if (kind->algorithm != NULL) {
        CHECK_OK(gyre_algorithm_emit(kind->algorithm, &shape, rank, &program));
        return program;
    }
    CHECK_OK(gyre_builder_open("test", &shape, rank, kind->has_chunks ? n : 1, &builder));
    kind->emit(builder, n, rank, root);
    CHECK_OK(gyre_builder_close(builder, &program));
    return program;
}

static inline struct gyre_loaded *load(struct host_rig *rig, int rank, const struct kind *kind,
                                       int root, uint32_t n_channels)
{
    struct gyre_program *program = make_program(kind, rig->n_ranks, rank, root);
    struct gyre_loaded *loaded = NULL;
    const struct gyre_load_config config = {.program = program, .n_channels = n_channels};
    CHECK_OK(gyre_executor_host.load(rig->executors[rank], &config, &loaded));
    gyre_program_free(program); /* the host executor keeps what it needs */
    return loaded;
}

#endif
