/* SPDX-License-Identifier: Apache-2.0
 *
 * Groupings of ranks into hosts, and the programs of all ranks.
 */
#ifndef GYRE_TESTS_SHAPES_H
#define GYRE_TESTS_SHAPES_H

#include "algorithms/algorithm.h"
#include "core/foundation/base/status.h"

#include <stdlib.h>

#define N_GROUPINGS 5

static const char *const grouping_names[N_GROUPINGS] = {"one host", "2 hosts", "4 hosts",
                                                        "3 hosts round-robin", "uneven hosts"};

/* Before numbering by first appearance. */
static inline unsigned raw_host(int grouping, unsigned rank, unsigned n_ranks)
{
    switch (grouping) {
    case 1:
        return rank * 2 / n_ranks;
    case 2:
        return rank * 4 / n_ranks;
    case 3:
        return rank % 3;
    case 4: { /* hosts of 1, 2, 3, ... ranks */
        unsigned host = 0, end = 1;
        while (rank >= end)
            end += ++host + 1;
        return host;
    }
    default:
        return 0;
    }
}

/* NULL for one host. Returns `storage`, filled. */
static inline const struct gyre_grouping *make_grouping(int grouping, unsigned n_ranks,
                                                        struct gyre_grouping *storage)
{
    int host_of_raw[GYRE_MAX_RANKS];
    if (grouping == 0)
        return NULL;
    storage->n_hosts = 0;
    storage->n_nics = 0;
    storage->weak_part = 0;
    for (unsigned i = 0; i < GYRE_MAX_RANKS; i++)
        host_of_raw[i] = -1;
    for (unsigned rank = 0; rank < n_ranks; rank++) {
        const unsigned raw = raw_host(grouping, rank, n_ranks);
        if (host_of_raw[raw] < 0)
            host_of_raw[raw] = storage->n_hosts++;
        storage->host_of[rank] = (uint16_t)host_of_raw[raw];
    }
    return storage;
}

/* Of staged results, root 0, on one host. */
static inline struct gyre_ability ability_of(const struct gyre_algorithm *algorithm, int coll,
                                             unsigned n_ranks)
{
    const struct gyre_shape shape = {.coll = (enum gyre_collective)coll,
                                     .n_ranks = (uint16_t)n_ranks};
    return gyre_algorithm_ability(algorithm, &shape);
}

static inline bool suits_hosts(const struct gyre_algorithm *algorithm, int coll, unsigned n_hosts)
{
    const struct gyre_grouping grouping = {.n_hosts = (uint16_t)n_hosts};
    const struct gyre_shape shape = {
        .coll = (enum gyre_collective)coll, .n_ranks = 2, .grouping = &grouping};
    return gyre_algorithm_suits(algorithm, &shape);
}

static inline void free_programs(struct gyre_program **programs, int n_ranks)
{
    for (int rank = 0; rank < n_ranks; rank++)
        gyre_program_free(programs[rank]);
    free(programs);
}

/* NULL, with a printed cause, when one cannot be emitted. */
static inline struct gyre_program **emit_all(const struct gyre_algorithm *algorithm,
                                             const struct gyre_shape *shape)
{
    struct gyre_program **programs = calloc(shape->n_ranks, sizeof(*programs));
    for (int rank = 0; programs != NULL && rank < shape->n_ranks; rank++) {
        if (gyre_algorithm_emit(algorithm, shape, rank, &programs[rank]) != GYRE_SUCCESS) {
            free_programs(programs, rank);
            return NULL;
        }
    }
    return programs;
}

#endif
