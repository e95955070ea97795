/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of algorithms, and the checks of shapes that all algorithms share.
 */
#include "algorithms/algorithm.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"

#define GYRE_ALGORITHM_ADDRESS(name) &gyre_algorithm_##name,
const struct gyre_algorithm *const gyre_algorithms[] = {
    GYRE_ALGORITHM_LIST(GYRE_ALGORITHM_ADDRESS) NULL,
};

const struct gyre_algorithm *gyre_algorithm_find(const char *name)
{
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        if (gyre_text_same(gyre_algorithms[i]->name, name))
            return gyre_algorithms[i];
    return NULL;
}

static gyre_status check_grouping(const struct gyre_grouping *grouping, unsigned n_ranks)
{
    unsigned n_seen = 0;
    for (unsigned rank = 0; rank < n_ranks; rank++) {
        const unsigned host = grouping->host_of[rank];
        if (host < n_seen)
            continue;
        if (host > n_seen)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "rank %u is on host %u, but the hosts so far are 0..%d: hosts are "
                             "numbered by first appearance",
                             rank, host, (int)n_seen - 1);
        n_seen++;
    }
    if (n_seen != grouping->n_hosts)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%u hosts given, but ranks are on %u",
                         grouping->n_hosts, n_seen);
    return GYRE_SUCCESS;
}

static gyre_status check_shape(const struct gyre_algorithm *algorithm,
                               const struct gyre_shape *shape, int rank)
{
    if (shape->n_ranks < 1 || shape->n_ranks > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%u ranks (1..%d)", shape->n_ranks,
                         GYRE_MAX_RANKS);
    if (rank < 0 || rank >= shape->n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "rank %d of %u", rank, shape->n_ranks);
    if (shape->root >= shape->n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "root %u: the ranks are 0 to %d", shape->root,
                         shape->n_ranks - 1);
    if ((unsigned)shape->coll >= GYRE_N_COLLECTIVES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "collective %d (0..%d)", (int)shape->coll,
                         GYRE_N_COLLECTIVES - 1);
    if (!gyre_algorithm_has(algorithm, shape->coll))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "algorithm %s has no %s", algorithm->name,
                         gyre_collectives[shape->coll].name);
    if (shape->coll == GYRE_COLL_SEND_RECV && shape->n_ranks > 2)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "send_recv has 1 or 2 ranks, not %u",
                         shape->n_ranks);
    const struct gyre_given_programs *given = algorithm->given;
    if (given != NULL && (shape->n_ranks != given->n_ranks ||
                          (gyre_collectives[shape->coll].has_root && shape->root != given->root)))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "the programs of %s are for %u ranks and root %u, not for %u and root %u",
                         algorithm->name, given->n_ranks, given->root, shape->n_ranks, shape->root);
    if (shape->grouping != NULL)
        GYRE_TRY(check_grouping(shape->grouping, shape->n_ranks));
    const int n_variants = gyre_algorithm_variants(algorithm, shape);
    if (shape->variant >= n_variants)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "variant %u of %d, counted from 0",
                         shape->variant, n_variants);
    return GYRE_SUCCESS;
}

int gyre_algorithm_variants(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape)
{
    if (algorithm->given != NULL)
        return algorithm->given->n_variants;
    return algorithm->n_variants == NULL || shape->n_ranks < 2 ? 1 : algorithm->n_variants(shape);
}

gyre_status gyre_algorithm_emit(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, int rank,
                                struct gyre_program **program_out)
{
    GYRE_TRY(check_shape(algorithm, shape, rank));
    if (algorithm->given != NULL)
        return gyre_program_clone(algorithm->given->programs[shape->variant][rank], program_out);
    const int n_chunks = shape->n_ranks == 1 ? 1 : algorithm->n_chunks(shape);
    struct gyre_builder *builder;
    GYRE_TRY(gyre_builder_open(algorithm->name, shape, rank, n_chunks, &builder));
    if (shape->n_ranks == 1) {
        const struct gyre_ref in = gyre_in(0), out = gyre_out(0);
        const bool reduces = gyre_collectives[shape->coll].reduces;
        gyre_builder_step(builder, 0, &in, 1, &out, 1, reduces ? GYRE_STEP_FINAL : 0);
    } else {
        algorithm->emit(shape, rank, builder);
    }
    return gyre_builder_close(builder, program_out);
}

int gyre_peers_from_next(const struct gyre_shape *shape, int rank, bool is_placed,
                         struct gyre_ref *peers_out)
{
    for (int i = 1; i < shape->n_ranks; i++) {
        peers_out[i - 1] = gyre_peer((rank + i) % shape->n_ranks, 0);
        peers_out[i - 1].is_placed = is_placed;
    }
    return shape->n_ranks - 1;
}
