/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses algorithm and protocols by prediction: of those that are allowed and worth a simulation
 * it takes the fastest. Pure, as tuner.c.
 */
#include "core/engine/plan/tuner/tuner_search.h"

#include <math.h>

uint64_t gyre_search_number(const struct gyre_search *search, enum gyre_row_kind kind)
{
    const struct gyre_row_call call =
        gyre_tuner_row_call(search->facts, kind, search->coll, search->n_bytes);
    const struct gyre_row *row = gyre_rows_find(gyre_rows_of(GYRE_ROWS_HOSTS), &call, NULL);
    return row != NULL ? row->rule.number : 0;
}

/* Is the algorithm certain to be slow, so that it need not be simulated? If many ranks on several
 * hosts all send to each other, the call takes the longest and so does its simulation. An
 * all-to-all consists of such messages, so no algorithm for it can be compared with `direct` there,
 * and `direct` is taken. */
static bool is_hopeless(const struct gyre_search *search, const struct gyre_algorithm *algorithm)
{
    const bool is_all_pairs = algorithm->is_one_shot || search->coll == GYRE_COLL_ALL_TO_ALL ||
                              (algorithm->cuts_vector >> search->coll & 1U) != 0;
    return is_all_pairs && gyre_search_number(search, GYRE_ROW_FLAT_STEPS) > 0;
}

/* The row of hosts.rows of this kind that fits the call; NULL if there is none.
 * @proto: that the row must name; SIMPLE where the kind names none. */
static const struct gyre_row *find_hosts_row(const struct gyre_tuner_facts *facts,
                                             enum gyre_row_kind kind, enum gyre_collective coll,
                                             uint64_t n_bytes, enum gyre_proto proto)
{
    struct gyre_row_call call = gyre_tuner_row_call(facts, kind, coll, n_bytes);
    call.protos = 1U << proto;
    return gyre_rows_find(gyre_rows_of(GYRE_ROWS_HOSTS), &call, NULL);
}

/* Is a prediction of the protocol needed? It is if there is no other one to compare it with. */
static bool is_worth_trying(const struct gyre_search *search, const struct gyre_filter *filter,
                            enum gyre_proto proto)
{
    const bool is_mixed = search->facts->is_proxied && proto != GYRE_PROTO_SIMPLE;
    const bool has_simple = (filter->protos[search->coll] >> GYRE_PROTO_SIMPLE & 1U) != 0;
    return !is_mixed || !has_simple ||
           find_hosts_row(search->facts, GYRE_ROW_INSIDE, search->coll, search->n_bytes, proto) !=
               NULL;
}

/* As is_worth_trying(), for links that a proxy serves. On the host device lines are not faster
 * (docs/lab_notes.md), so they are tried only if the filter does not allow SIMPLE. */
static bool is_net_worth_trying(const struct gyre_search *search, const struct gyre_filter *filter,
                                enum gyre_proto proto)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const uint32_t allowed = filter->net_protos[search->coll];
    if (!facts->is_proxied)
        return proto == GYRE_PROTO_SIMPLE;
    if ((allowed >> proto & 1U) == 0 || gyre_tuner_net_proto_obstacle(facts, proto) != NULL)
        return false;
    return proto == GYRE_PROTO_SIMPLE || (allowed >> GYRE_PROTO_SIMPLE & 1U) == 0 ||
           find_hosts_row(facts, GYRE_ROW_BETWEEN, search->coll, search->n_bytes, proto) != NULL;
}

/* Try a protocol of links without a proxy with every protocol of the others. */
static gyre_status search_net_protos(struct gyre_search *search, const struct gyre_filter *filter,
                                     struct gyre_simulator *simulator,
                                     const struct gyre_algorithm *algorithm, enum gyre_proto proto)
{
    for (int i = 0; i < GYRE_N_PROTOS; i++) {
        const enum gyre_proto net_proto = (enum gyre_proto)i;
        if (is_net_worth_trying(search, filter, net_proto) &&
            gyre_tuner_go_together(search->facts, proto, net_proto) &&
            gyre_simulator_least_tile_bytes(simulator) <=
                gyre_search_largest_tile(search, algorithm, proto, net_proto))
            GYRE_TRY(gyre_search_sizes(search, simulator, algorithm, proto, net_proto));
    }
    return GYRE_SUCCESS;
}

/* Would it take too long to simulate the algorithm, compared with what it can gain? */
static gyre_status is_too_long(const struct gyre_search *search,
                               const struct gyre_simulator *simulator,
                               const struct gyre_algorithm *algorithm, bool *is_too_long_out)
{
    const struct gyre_simulation one_tile = {.cost = search->facts->cost,
                                             .n_channels = 1,
                                             .tile_bytes =
                                                 gyre_simulator_least_tile_bytes(simulator),
                                             .depth = search->facts->spec.depth,
                                             .n_bytes = 1};
    const uint64_t most_steps = gyre_search_number(search, GYRE_ROW_FLAT_STEPS);
    uint64_t n_steps = 0;
    *is_too_long_out = false;
    if (algorithm->is_two_level || most_steps == 0 || !isfinite(search->weighed_ns))
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_simulator_steps(simulator, &one_tile, &n_steps));
    *is_too_long_out = n_steps > most_steps;
    return GYRE_SUCCESS;
}

static gyre_status search_algorithm(struct gyre_search *search, const struct gyre_filter *filter,
                                    enum gyre_collective coll,
                                    const struct gyre_algorithm *algorithm)
{
    const struct gyre_tuner_facts *facts = search->facts;
    struct gyre_simulator *simulator;
    bool too_long;
    GYRE_TRY(gyre_search_simulator_open(facts, algorithm, coll, &simulator));
    gyre_status status = is_too_long(search, simulator, algorithm, &too_long);
    const bool fits =
        !too_long &&
        gyre_simulator_lanes(simulator) <= gyre_tuner_fifos(facts, algorithm, coll).n_fifos &&
        gyre_simulator_min_depth(simulator) <= facts->spec.depth;
    for (int i = 0; i < GYRE_N_PROTOS && fits && status == GYRE_SUCCESS; i++) {
        const enum gyre_proto proto = (enum gyre_proto)i;
        if ((filter->protos[coll] >> proto & 1U) != 0 &&
            gyre_tuner_proto_obstacle(facts, proto) == NULL &&
            is_worth_trying(search, filter, proto))
            status = search_net_protos(search, filter, simulator, algorithm, proto);
    }
    gyre_search_simulator_close(facts, simulator);
    return status;
}

/* Is another algorithm the only one that is predicted? */
static bool is_left_out(const struct gyre_search *search, const struct gyre_filter *filter,
                        const struct gyre_algorithm *algorithm)
{
    const struct gyre_row *row = find_hosts_row(search->facts, GYRE_ROW_ONLY, search->coll,
                                                search->n_bytes, GYRE_PROTO_SIMPLE);
    return row != NULL && row->algorithm != algorithm &&
           gyre_filter_allows(filter, search->coll, row->algorithm);
}

static bool is_worth_simulating(const struct gyre_search *search, const struct gyre_filter *filter,
                                const struct gyre_algorithm *algorithm)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const enum gyre_collective coll = search->coll;
    const bool is_forced = filter->is_forced[coll];
    if (!gyre_algorithm_suits(algorithm, coll, is_forced ? UINT32_MAX : facts->n_hosts) ||
        gyre_tuner_algorithm_obstacle(facts, algorithm, coll) != NULL ||
        (is_hopeless(search, algorithm) && !is_forced))
        return false;
    return !is_left_out(search, filter, algorithm);
}

/* Try the two-level algorithms, or the others; with few ranks, all at once. */
static gyre_status search_level(struct gyre_search *search, const struct gyre_filter *filter,
                                bool is_two_level)
{
    const bool has_two_passes = gyre_search_number(search, GYRE_ROW_FLAT_STEPS) > 0;
    for (int i = 0; gyre_algorithms[i] != NULL; i++) {
        if ((filter->algorithms[search->coll] >> i & 1U) == 0 ||
            (has_two_passes && gyre_algorithms[i]->is_two_level != is_two_level) ||
            !is_worth_simulating(search, filter, gyre_algorithms[i]))
            continue;
        const gyre_status status =
            search_algorithm(search, filter, search->coll, gyre_algorithms[i]);
        if (status != GYRE_SUCCESS && status != GYRE_ERROR_UNSUPPORTED) /* too large to simulate */
            return status;
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_tuner_search(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out)
{
    struct gyre_search search = {
        .facts = facts, .coll = coll, .n_bytes = n_bytes, .weighed_ns = INFINITY};
    /* Simulations end as soon as they take longer than the best one so far. So with many ranks
     * two-level algorithms come first, which are simulated faster. */
    if (gyre_search_number(&search, GYRE_ROW_FLAT_STEPS) > 0)
        GYRE_TRY(search_level(&search, filter, true));
    GYRE_TRY(search_level(&search, filter, false));
    *choice_out = search.choice;
    return GYRE_SUCCESS;
}
