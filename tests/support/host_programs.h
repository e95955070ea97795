/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs for tests of executors: with two lanes, scratch, fan-out and fan-in.
 */
#ifndef GYRE_TESTS_HOST_PROGRAMS_H
#define GYRE_TESTS_HOST_PROGRAMS_H

#include "algorithms/algorithm.h"
#include "core/foundation/model/schedule.h"
#include "tests/support/host_rig.h"

enum { N_LANES = 2, MAX_CHANNELS = 3 };

struct kind {
    enum gyre_collective coll;
    const struct gyre_algorithm *algorithm;
    const struct gyre_grouping *grouping;
    bool is_placed;
    uint16_t most_range;
};

static const struct kind kinds[] = {
    {GYRE_COLL_ALL_REDUCE, &gyre_algorithm_ring, NULL, false, 0},
    {GYRE_COLL_ALL_GATHER, &gyre_algorithm_direct, NULL, false, 0},
    {GYRE_COLL_REDUCE_SCATTER, &gyre_algorithm_direct, NULL, false, 0},
    {GYRE_COLL_REDUCE, &gyre_algorithm_tree, NULL, false, 0},
    {GYRE_COLL_BROADCAST, &gyre_algorithm_ring, NULL, false, 0},
    {GYRE_COLL_ALL_REDUCE, &gyre_algorithm_doubling, NULL, false, 0},
};
static const struct kind send_recv_kind = {GYRE_COLL_SEND_RECV, &gyre_algorithm_sendrecv, NULL,
                                           false, 0};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static inline struct gyre_program *make_program(const struct kind *kind, int n, int rank, int root)
{
    const struct gyre_shape shape = {.coll = kind->coll,
                                     .n_ranks = (uint16_t)n,
                                     .root = (uint16_t)root,
                                     .most_range = kind->most_range,
                                     .grouping = kind->grouping,
                                     .is_placed = kind->is_placed};
    struct gyre_program *program = NULL;
    CHECK_OK(gyre_algorithm_emit(kind->algorithm, &shape, rank, &program));
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
