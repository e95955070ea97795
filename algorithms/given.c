/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes an algorithm of given programs, which come from a file, and finds its traits for the tuner.
 * If an algorithm of the table emits the same programs, the new algorithm gets that algorithm's
 * traits, so calls are carried out in the same way. Otherwise the traits are derived from the steps
 * of the programs.
 */
#include "algorithms/algorithm.h"
#include "core/foundation/base/status.h"

#include <stdlib.h>

/* Check that these are the programs of all ranks of one shape, by rank. @first: a program of the
 * first variant. */
static gyre_status check_programs(const struct gyre_program *const *programs,
                                  const struct gyre_program *first)
{
    for (unsigned rank = 0; rank < first->n_ranks; rank++) {
        const struct gyre_program *program = programs[rank];
        const char *collective = gyre_collectives[first->coll].name;
        if (program->coll != first->coll || program->n_ranks != first->n_ranks ||
            program->root != first->root || program->rank != rank)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "%s %s of %u ranks, root %u: expected the program of rank %u, found "
                             "that of rank %u of %s of %u ranks, root %u",
                             first->algorithm, collective, first->n_ranks, first->root, rank,
                             program->rank, gyre_collectives[program->coll].name, program->n_ranks,
                             program->root);
        if (program->n_chunks != first->n_chunks || program->n_lanes != first->n_lanes ||
            program->min_depth != first->min_depth || program->max_range != first->max_range)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "%s %s of %u ranks: rank %u has %u chunks, %u lanes, depth %u and "
                             "range %u, rank 0 has %u, %u, %u and %u; they are the same on all "
                             "ranks",
                             first->algorithm, collective, first->n_ranks, rank, program->n_chunks,
                             program->n_lanes, program->min_depth, program->max_range,
                             first->n_chunks, first->n_lanes, first->min_depth, first->max_range);
    }
    return GYRE_SUCCESS;
}

static bool is_any_placed(const struct gyre_given_programs *given)
{
    bool is_placed = false;
    for (unsigned v = 0; v < given->n_variants; v++)
        for (unsigned rank = 0; rank < given->n_ranks; rank++)
            is_placed = is_placed || given->programs[v][rank]->is_placed != 0;
    return is_placed;
}

/* Does the algorithm emit exactly the given programs? The first difference ends the search. */
static gyre_status compare_with(const struct gyre_algorithm *algorithm,
                                const struct gyre_given_programs *given, struct gyre_shape shape,
                                bool *is_same_out)
{
    *is_same_out = gyre_algorithm_variants(algorithm, &shape) == given->n_variants;
    for (unsigned v = 0; v < given->n_variants && *is_same_out; v++)
        for (unsigned rank = 0; rank < given->n_ranks && *is_same_out; rank++) {
            struct gyre_program *emitted;
            shape.variant = (uint16_t)v;
            GYRE_TRY(gyre_algorithm_emit(algorithm, &shape, (int)rank, &emitted));
            *is_same_out =
                gyre_program_hash(emitted) == gyre_program_hash(given->programs[v][rank]);
            gyre_program_free(emitted);
        }
    return GYRE_SUCCESS;
}

static gyre_status find_like(struct gyre_given_programs *given,
                             const struct gyre_grouping *grouping)
{
    const struct gyre_shape shape = {.coll = given->coll,
                                     .n_ranks = given->n_ranks,
                                     .root = given->root,
                                     .grouping = grouping,
                                     .is_placed = given->is_placed};
    for (int i = 0; gyre_algorithms[i] != NULL; i++) {
        bool is_same = false;
        if (gyre_algorithm_has(gyre_algorithms[i], given->coll))
            GYRE_TRY(compare_with(gyre_algorithms[i], given, shape, &is_same));
        if (is_same) {
            given->like = gyre_algorithms[i];
            return GYRE_SUCCESS;
        }
    }
    return GYRE_SUCCESS;
}

static bool has_scratch(const struct gyre_given_programs *given)
{
    for (unsigned v = 0; v < given->n_variants; v++)
        for (unsigned rank = 0; rank < given->n_ranks; rank++)
            if (given->programs[v][rank]->n_scratch > 0)
                return true;
    return false;
}

static bool sends_to_next_only(const struct gyre_given_programs *given)
{
    for (unsigned v = 0; v < given->n_variants; v++)
        for (unsigned rank = 0; rank < given->n_ranks; rank++) {
            const struct gyre_program *program = given->programs[v][rank];
            for (unsigned i = 0; i < program->n_connections; i++)
                if (program->connections[i].is_send != 0 &&
                    program->connections[i].peer != (rank + 1) % given->n_ranks)
                    return false;
        }
    return true;
}

/* Does every rank send only to ranks that are near, on several hosts? */
static gyre_status find_near(const struct gyre_given_programs *given,
                             const struct gyre_grouping *grouping, bool *keeps_near_out)
{
    bool keeps_near = grouping != NULL && grouping->n_hosts > 1;
    uint8_t *is_far = malloc(given->n_ranks);
    gyre_status status = GYRE_SUCCESS;
    if (is_far == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "programs of %u ranks", given->n_ranks);
    for (unsigned rank = 0; rank < given->n_ranks && keeps_near; rank++) {
        status = gyre_near_peers_find(grouping, given->n_ranks, (int)rank, is_far);
        if (status != GYRE_SUCCESS)
            break;
        for (unsigned v = 0; v < given->n_variants; v++) {
            const struct gyre_program *program = given->programs[v][rank];
            for (unsigned i = 0; i < program->n_connections; i++)
                keeps_near = keeps_near && is_far[program->connections[i].peer] == 0;
        }
    }
    free(is_far);
    *keeps_near_out = keeps_near;
    return status;
}

gyre_status gyre_algorithm_give(struct gyre_given_programs *given,
                                const struct gyre_grouping *grouping,
                                struct gyre_algorithm *algorithm_out)
{
    const struct gyre_program *first = given->programs[0][0];
    const uint32_t mask = 1U << first->coll;
    for (unsigned v = 0; v < given->n_variants; v++)
        GYRE_TRY(check_programs(given->programs[v], first));
    given->coll = first->coll;
    given->n_ranks = first->n_ranks;
    given->root = first->root;
    given->is_placed = is_any_placed(given);
    given->like = NULL;
    bool keeps_near = false;
    GYRE_TRY(find_like(given, grouping));
    GYRE_TRY(find_near(given, grouping, &keeps_near));
    struct gyre_algorithm algorithm = {
        .summary = "from a file",
        .follows_ring = sends_to_next_only(given),
        .keeps_near = keeps_near ? mask : 0,
        .chains = gyre_collectives[first->coll].has_root && first->max_range == 1 ? mask : 0,
        .keeps_sums = has_scratch(given),
        .ranges = first->max_range > 1 ? mask : 0,
    };
    if (given->like != NULL)
        algorithm = *given->like;
    algorithm.name = first->algorithm;
    algorithm.collectives = mask;
    algorithm.places = given->is_placed ? mask : 0;
    algorithm.given = given;
    *algorithm_out = algorithm;
    return GYRE_SUCCESS;
}
