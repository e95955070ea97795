/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/algorithm.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"

#include <stdlib.h>
#include <string.h>

#define GYRE_ALGORITHM_ADDRESS(name) &gyre_algorithm_##name,
/* Written before any thread reads it. */
const struct gyre_algorithm *gyre_algorithms[GYRE_MAX_ALGORITHMS + 1] = {
    GYRE_ALGORITHM_LIST(GYRE_ALGORITHM_ADDRESS) NULL,
};

gyre_status gyre_algorithms_add(const struct gyre_algorithm *algorithm)
{
    const char *name = algorithm->name != NULL ? algorithm->name : "";
    const size_t n = strlen(name);
    const uint32_t legal = ((1U << GYRE_N_COLLECTIVES) - 1) & ~(1U << GYRE_COLL_SEND_RECV);
    int at = 0;
    while (gyre_algorithms[at] != NULL)
        at++;
    if (n == 0 || n > 15 || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != n)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "algorithm \"%.40s\": a name has 1 to 15 of the characters a-z 0-9 _",
                         name);
    if (gyre_algorithm_find(name) != NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "algorithm %s: there is one of this name; give it another", name);
    if ((algorithm->collectives & legal) == 0 || (algorithm->collectives & ~legal) != 0 ||
        (algorithm->given == NULL && (algorithm->can_do == NULL || algorithm->emit == NULL)))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "algorithm %s: it needs collectives (not send_recv), can_do and emit",
                         name);
    if (at == GYRE_MAX_ALGORITHMS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "algorithm %s: there are %d already", name,
                         GYRE_MAX_ALGORITHMS);
    gyre_algorithms[at] = algorithm;
    return GYRE_SUCCESS;
}

void gyre_algorithms_drop(int n)
{
    for (int i = n; i < GYRE_MAX_ALGORITHMS; i++)
        gyre_algorithms[i] = NULL;
}

const struct gyre_algorithm *gyre_algorithm_find(const char *name)
{
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        if (gyre_text_same(gyre_algorithms[i]->name, name))
            return gyre_algorithms[i];
    return NULL;
}

static const struct gyre_given_programs *find_given(const struct gyre_algorithm *algorithm,
                                                    const struct gyre_shape *shape)
{
    const struct gyre_given_programs *given = algorithm->given;
    while (given != NULL &&
           (given->coll != shape->coll || given->n_ranks != shape->n_ranks ||
            (algorithm->from != NULL && given->is_placed != shape->is_placed) ||
            (gyre_collectives[shape->coll].has_root && given->root != shape->root)))
        given = given->next;
    return given;
}

static struct gyre_shape with_sides(const struct gyre_algorithm *algorithm,
                                    const struct gyre_shape *shape)
{
    struct gyre_shape found = *shape;
    if (algorithm->sides[0] > 0)
        found.sides = algorithm->sides;
    return found;
}

const char *gyre_algorithm_obstacle(const struct gyre_algorithm *algorithm,
                                    const struct gyre_shape *shape, struct gyre_ability *can_out)
{
    const struct gyre_given_programs *given = find_given(algorithm, shape);
    const char *why_not = "it has no such collective";
    struct gyre_ability can = {.places = false};
    bool can_do = false;
    if (algorithm->given != NULL) {
        can_do = given != NULL;
        can = given != NULL ? given->ability : can;
        if (algorithm->from != NULL && shape->grouping != NULL && shape->grouping->n_hosts > 1)
            can.reach = GYRE_REACH_ALL; /* the file was read before the hosts were known */
        why_not = "its file has no programs for it";
    } else if (gyre_algorithm_has(algorithm, shape->coll)) {
        why_not = "it has no programs for this shape";
        const struct gyre_shape whole = with_sides(algorithm, shape);
        can_do = algorithm->can_do(&whole, &can, &why_not);
    }
    if (!can_do)
        can = (struct gyre_ability){.places = false};
    if (can_out != NULL)
        *can_out = can;
    return can_do || (shape->n_ranks == 1 && gyre_algorithm_has(algorithm, shape->coll)) ? NULL
                                                                                         : why_not;
}

struct gyre_ability gyre_algorithm_ability(const struct gyre_algorithm *algorithm,
                                           const struct gyre_shape *shape)
{
    struct gyre_ability can;
    gyre_algorithm_obstacle(algorithm, shape, &can);
    return can;
}

bool gyre_algorithm_suits(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape)
{
    struct gyre_ability can;
    return gyre_algorithm_obstacle(algorithm, shape, &can) == NULL &&
           (!can.two_level || (shape->grouping != NULL && shape->grouping->n_hosts > 1)) &&
           (can.flow != GYRE_FLOW_SPARING || gyre_leaf_obstacle(shape) == NULL);
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
    if (shape->coll == GYRE_COLL_SEND_RECV && shape->n_ranks > 2)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "send_recv has 1 or 2 ranks, not %u",
                         shape->n_ranks);
    if (shape->grouping != NULL)
        GYRE_TRY(check_grouping(shape->grouping, shape->n_ranks));
    const char *obstacle = gyre_algorithm_obstacle(algorithm, shape, NULL);
    if (obstacle != NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "algorithm %s has no %s of %u ranks: %s",
                         algorithm->name, gyre_collectives[shape->coll].name, shape->n_ranks,
                         obstacle);
    const int n_variants = gyre_algorithm_variants(algorithm, shape);
    if (shape->variant >= n_variants)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "variant %u of %d, counted from 0",
                         shape->variant, n_variants);
    return GYRE_SUCCESS;
}

int gyre_algorithm_variants(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape)
{
    const struct gyre_given_programs *given = find_given(algorithm, shape);
    if (given != NULL)
        return given->n_variants;
    const struct gyre_shape whole = with_sides(algorithm, shape);
    return algorithm->n_variants == NULL || shape->n_ranks < 2 ? 1 : algorithm->n_variants(&whole);
}

static gyre_status cut(struct gyre_program *program, const struct gyre_shape *shape,
                       struct gyre_program **program_out)
{
    const gyre_status status = gyre_program_cut(program, shape->most_range);
    if (status != GYRE_SUCCESS)
        gyre_program_free(program);
    else
        *program_out = program;
    return status;
}

gyre_status gyre_algorithm_emit(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, int rank,
                                struct gyre_program **program_out)
{
    GYRE_TRY(check_shape(algorithm, shape, rank));
    const struct gyre_given_programs *given = find_given(algorithm, shape);
    struct gyre_program *program = NULL;
    if (given != NULL) {
        GYRE_TRY(gyre_program_clone(given->programs[shape->variant][rank], &program));
        return cut(program, shape, program_out);
    }
    const struct gyre_shape whole = with_sides(algorithm, shape);
    const int n_chunks =
        shape->n_ranks == 1 || algorithm->n_chunks == NULL ? 1 : algorithm->n_chunks(&whole);
    struct gyre_builder *builder;
    GYRE_TRY(gyre_builder_open(algorithm->name, shape, rank, n_chunks, &builder));
    if (shape->n_ranks == 1) {
        const struct gyre_ref in = gyre_in(0), out = gyre_out(0);
        const bool reduces = gyre_collectives[shape->coll].reduces;
        gyre_builder_step(builder, 0, &in, 1, &out, 1, reduces ? GYRE_STEP_FINAL : 0);
    } else {
        algorithm->emit(&whole, rank, builder);
    }
    GYRE_TRY(gyre_builder_close(builder, &program));
    return cut(program, shape, program_out);
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
        if ((program->names == NULL) != (first->names == NULL) ||
            (program->names != NULL &&
             memcmp(program->names, first->names, first->n_ranks * sizeof(*first->names)) != 0))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "%s %s of %u ranks: rank %u and rank 0 count the blocks in different "
                             "orders",
                             first->algorithm, collective, first->n_ranks, rank);
    }
    return GYRE_SUCCESS;
}

static gyre_status find_like(struct gyre_given_programs *given,
                             const struct gyre_grouping *grouping)
{
    struct gyre_shape shape = {.coll = given->coll,
                               .n_ranks = given->n_ranks,
                               .root = given->root,
                               .grouping = grouping,
                               .is_placed = given->is_placed};
    for (int i = 0; gyre_algorithms[i] != NULL && given->like == NULL; i++) {
        const struct gyre_algorithm *algorithm = gyre_algorithms[i];
        bool is_same = gyre_algorithm_obstacle(algorithm, &shape, NULL) == NULL &&
                       gyre_algorithm_variants(algorithm, &shape) == given->n_variants;
        for (unsigned v = 0; v < given->n_variants && is_same; v++)
            for (unsigned rank = 0; rank < given->n_ranks && is_same; rank++) {
                struct gyre_program *emitted;
                shape.variant = (uint16_t)v;
                GYRE_TRY(gyre_algorithm_emit(algorithm, &shape, (int)rank, &emitted));
                is_same = gyre_program_hash(emitted) == gyre_program_hash(given->programs[v][rank]);
                gyre_program_free(emitted);
            }
        if (is_same)
            given->like = algorithm;
    }
    return GYRE_SUCCESS;
}

static gyre_status find_ability(struct gyre_given_programs *given,
                                const struct gyre_grouping *grouping)
{
    const struct gyre_program *first = given->programs[0][0];
    bool keeps_near = grouping != NULL && grouping->n_hosts > 1, follows_ring = true;
    struct gyre_ability can = {
        .flow = gyre_collectives[first->coll].has_root && first->max_range == 1 ? GYRE_FLOW_CHAIN
                                                                                : GYRE_FLOW_RELAY,
        .ranges = first->max_range > 1,
    };
    uint8_t *is_far = malloc(given->n_ranks);
    if (is_far == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "programs of %u ranks", given->n_ranks);
    gyre_status status = GYRE_SUCCESS;
    for (unsigned rank = 0; rank < given->n_ranks && status == GYRE_SUCCESS; rank++) {
        if (keeps_near)
            status = gyre_near_peers_find(grouping, given->n_ranks, (int)rank, is_far);
        for (unsigned v = 0; v < given->n_variants; v++) {
            const struct gyre_program *program = given->programs[v][rank];
            can.places = can.places || program->is_placed != 0;
            can.keeps_sums = can.keeps_sums || program->n_scratch > 0;
            for (unsigned i = 0; i < program->n_connections; i++) {
                const struct gyre_connection *c = &program->connections[i];
                if (c->is_send != 0 && c->peer != (rank + 1) % given->n_ranks)
                    follows_ring = false;
                keeps_near = keeps_near && is_far[c->peer] == 0;
            }
        }
    }
    free(is_far);
    can.reach = follows_ring ? GYRE_REACH_RING : keeps_near ? GYRE_REACH_NEAR : GYRE_REACH_ALL;
    given->is_placed = can.places;
    given->ability = can;
    return status;
}

gyre_status gyre_algorithm_give(struct gyre_given_programs *given,
                                const struct gyre_grouping *grouping,
                                struct gyre_algorithm *algorithm_out)
{
    const struct gyre_program *first = given->programs[0][0];
    for (unsigned v = 0; v < given->n_variants; v++)
        GYRE_TRY(check_programs(given->programs[v], first));
    given->coll = first->coll;
    given->n_ranks = first->n_ranks;
    given->root = first->root;
    given->is_placed = false;
    given->like = NULL;
    GYRE_TRY(find_ability(given, grouping));
    GYRE_TRY(find_like(given, grouping));
    if (given->like != NULL) {
        const struct gyre_shape shape = {.coll = given->coll,
                                         .n_ranks = given->n_ranks,
                                         .root = given->root,
                                         .grouping = grouping,
                                         .is_placed = given->is_placed};
        given->ability = gyre_algorithm_ability(given->like, &shape);
        given->ability.places = given->is_placed;
    }
    *algorithm_out = (struct gyre_algorithm){
        .name = first->algorithm,
        .summary = given->like != NULL ? given->like->summary : "from a file",
        .collectives = 1U << first->coll,
        .given = given,
    };
    return GYRE_SUCCESS;
}
