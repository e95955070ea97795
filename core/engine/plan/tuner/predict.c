/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates the algorithms, protocols, channels and tiles worth it. The simulator gives the same
 * bits on every rank.
 */
#include "core/engine/plan/tuner/tuner.h"

#include "core/foundation/base/util.h"

#include <math.h>

struct search {
    const struct gyre_tuner_facts *facts;
    const struct gyre_filter *filter;
    enum gyre_collective coll;
    uint64_t n_bytes;
    struct gyre_choice choice;
    double weighed_ns; /* INFINITY = no choice yet */
};

/* @facts: known besides the call. @protos: that the row may name, by bit. */
static const struct gyre_row *find_row(const struct search *search, enum gyre_row_kind kind,
                                       uint32_t facts, uint32_t protos)
{
    struct gyre_row_call call =
        gyre_tuner_row_call(search->facts, kind, search->coll, search->n_bytes);
    call.facts |= facts;
    call.protos = protos;
    return gyre_tuner_next_row(search->facts, &call, NULL);
}

/* 0 if no row fits. */
static uint64_t number_of(const struct search *search, enum gyre_row_kind kind)
{
    const struct gyre_row *row = find_row(search, kind, 0, UINT32_MAX);
    return row != NULL ? row->rule.number : 0;
}

/* Do predictions take long? */
static bool has_many_ranks(const struct search *search)
{
    return number_of(search, GYRE_ROW_FLAT_STEPS) > 0;
}

static double weight_of(const struct search *search, const struct gyre_algorithm *algorithm)
{
    struct gyre_row_call call =
        gyre_tuner_row_call(search->facts, GYRE_ROW_WEIGHT, search->coll, search->n_bytes);
    const struct gyre_row *row = NULL;
    double weight = 1;
    call.facts |= gyre_tuner_algorithm_facts(search->facts, algorithm, search->coll);
    while ((row = gyre_tuner_next_row(search->facts, &call, row)) != NULL)
        weight *= (double)row->rule.number / 100;
    return weight;
}

/* About, between two ranks in one direction. */
static uint64_t count_messages(const struct search *search, const struct gyre_choice *choice)
{
    return gyre_max_u64(choice->n_channels, gyre_div_round_up(search->n_bytes, choice->tile_bytes));
}

static double share_to_beat(const struct search *search, const struct gyre_choice *best,
                            const struct gyre_choice *choice)
{
    const double gain = (double)number_of(search, GYRE_ROW_GAIN) / 100;
    const uint64_t parts = number_of(search, GYRE_ROW_MESSAGES);
    double share = gain;
    if (parts == 0 || best->tile_bytes == 0)
        return share;
    for (uint64_t n = count_messages(search, best); n < count_messages(search, choice); n *= 2)
        share -= gain / (double)parts;
    return share;
}

static gyre_status open_simulator(const struct gyre_tuner_facts *facts,
                                  const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                                  struct gyre_simulator **simulator_out)
{
    if (facts->simulator != NULL && facts->simulated == algorithm) {
        *simulator_out = facts->simulator;
        return GYRE_SUCCESS;
    }
    const struct gyre_shape shape = {
        .coll = coll,
        .n_ranks = (uint16_t)facts->n_ranks,
        .root = algorithm->given != NULL ? algorithm->given->root : 0,
        .grouping = facts->grouping,
    };
    const struct gyre_machine machine = {
        .grouping = facts->grouping, .is_all_network = facts->is_proxied && facts->n_hosts == 1};
    return gyre_simulator_open(algorithm, &shape, &machine, false, simulator_out);
}

static void close_simulator(const struct gyre_tuner_facts *facts, struct gyre_simulator *simulator)
{
    if (simulator != facts->simulator)
        gyre_simulator_close(simulator);
}

/* @simulation: cost, n_bytes, is_rough and limit_ns are set. */
static gyre_status simulate(const struct gyre_tuner_facts *facts, struct gyre_simulator *simulator,
                            const struct gyre_choice *choice, struct gyre_simulation simulation,
                            double *time_ns_out)
{
    struct gyre_prediction prediction;
    simulation.proto = choice->proto;
    simulation.net_proto = choice->net_proto;
    simulation.n_channels = choice->n_channels;
    simulation.tile_bytes = choice->tile_bytes;
    simulation.depth = facts->spec.depth;
    GYRE_TRY(gyre_simulator_run(simulator, &simulation, &prediction));
    *time_ns_out = prediction.time_ns;
    return GYRE_SUCCESS;
}

gyre_status gyre_tuner_predict(const struct gyre_tuner_facts *facts, const struct gyre_cost *cost,
                               enum gyre_collective coll, const struct gyre_choice *choice,
                               uint64_t n_bytes, double *time_ns_out)
{
    const struct gyre_simulation simulation = {
        .cost = cost, .n_bytes = n_bytes, .is_rough = facts->n_hosts > 1};
    struct gyre_simulator *simulator;
    GYRE_TRY(open_simulator(facts, choice->algorithm, coll, &simulator));
    const gyre_status status = simulate(facts, simulator, choice, simulation, time_ns_out);
    close_simulator(facts, simulator);
    return status;
}

uint64_t gyre_tuner_size_class(uint64_t n_bytes)
{
    uint64_t power = 256; /* in smaller calls only latency counts */
    if (n_bytes <= power)
        return power;
    while (power < n_bytes - power)
        power *= 2;
    return gyre_round_up(n_bytes, power / 4);
}

/* As long as the predicted time falls. @best_ns: INFINITY = none yet. */
static gyre_status search_tiles(const struct search *search, struct gyre_simulator *simulator,
                                struct gyre_choice choice, struct gyre_choice *best,
                                double *best_ns)
{
    const struct gyre_simulation simulation = {.cost = search->facts->cost,
                                               .n_bytes = search->n_bytes,
                                               /* more choices, longer programs */
                                               .is_rough = search->facts->n_hosts > 1,
                                               .limit_ns = search->weighed_ns /
                                                           weight_of(search, choice.algorithm)};
    const uint64_t least_bytes = number_of(search, GYRE_ROW_LEAST_TILE);
    double last_ns = INFINITY;
    do {
        double time_ns;
        GYRE_TRY(simulate(search->facts, simulator, &choice, simulation, &time_ns));
        if (time_ns < *best_ns * share_to_beat(search, best, &choice)) {
            *best = choice;
            *best_ns = time_ns;
        }
        if (time_ns >= last_ns && isfinite(time_ns))
            return GYRE_SUCCESS;
        last_ns = time_ns;
        choice.tile_bytes = choice.tile_bytes / 4 / 16 * 16;
    } while (choice.tile_bytes >= least_bytes);
    return GYRE_SUCCESS;
}

/* A quarter shorter, so that many hosts have more slots in flight. Any gain counts, because the
 * programs stay the same. */
static gyre_status refine_tile(const struct search *search, struct gyre_simulator *simulator,
                               struct gyre_choice *best, double *best_ns)
{
    const struct gyre_simulation simulation = {.cost = search->facts->cost,
                                               .n_bytes = search->n_bytes,
                                               .is_rough = true,
                                               .limit_ns = *best_ns};
    struct gyre_choice choice = *best;
    double time_ns;
    choice.tile_bytes = choice.tile_bytes / 4 * 3 / 16 * 16;
    if (!isfinite(*best_ns) || search->facts->n_hosts < 2 ||
        number_of(search, GYRE_ROW_MESSAGES) > 0 ||
        choice.tile_bytes < number_of(search, GYRE_ROW_LEAST_TILE))
        return GYRE_SUCCESS;
    GYRE_TRY(simulate(search->facts, simulator, &choice, simulation, &time_ns));
    if (time_ns < *best_ns) {
        *best = choice;
        *best_ns = time_ns;
    }
    return GYRE_SUCCESS;
}

static gyre_status search_sizes(struct search *search, struct gyre_simulator *simulator,
                                struct gyre_choice choice)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const uint32_t most_channels = (uint32_t)gyre_min_u64(
        facts->max_channels, gyre_tuner_fifos(facts, choice.algorithm, search->coll).n_fifos /
                                 gyre_simulator_lanes(simulator));
    /* With many ranks only multiples of the simulator's unit, which are simulated fast. */
    const enum gyre_proto net_proto = choice.net_proto;
    const uint32_t unit = gyre_simulator_channel_unit(simulator);
    const uint64_t bytes_per_channel = number_of(search, GYRE_ROW_CHANNEL_BYTES);
    const struct gyre_row *row =
        find_row(search, GYRE_ROW_LEAST_CHANNELS, gyre_tuner_proto_facts(net_proto), UINT32_MAX);
    uint64_t least = gyre_max_u64(facts->min_channels, 1);
    if (row != NULL)
        least = gyre_max_u64(least, gyre_tuner_row_channels(&row->rule, facts, search->coll,
                                                            search->n_bytes, UINT32_MAX));
    while (bytes_per_channel > 0 &&
           gyre_tuner_all_bytes(facts, search->coll, search->n_bytes) / least > bytes_per_channel)
        least *= 2;
    const uint64_t rounded = gyre_round_up(least, unit);
    choice.n_channels = (uint32_t)gyre_min_u64(
        bytes_per_channel > 0 && rounded <= most_channels ? rounded : least, most_channels);
    struct gyre_choice best = choice;
    double best_ns = INFINITY;
    /* Shorter over slow TCP, for less time on the wire. */
    const uint64_t least_bytes = number_of(search, GYRE_ROW_LEAST_TILE);
    const uint32_t most_bytes =
        gyre_min_u32(gyre_tuner_payload_bytes(search->facts, choice.algorithm, search->coll,
                                              choice.proto, false) /
                         16 * 16,
                     gyre_tuner_net_payload_bytes(search->facts, choice.net_proto));
    const double in_time_bytes =
        search->facts->cost->nic_bytes_per_ns * (double)number_of(search, GYRE_ROW_TILE_NS);
    choice.tile_bytes =
        in_time_bytes <= 0 || in_time_bytes >= most_bytes
            ? most_bytes
            : gyre_min_u32(most_bytes, (uint32_t)gyre_max_u64((uint32_t)in_time_bytes / 16 * 16,
                                                              gyre_round_up(least_bytes, 16)));
    for (; choice.n_channels <= most_channels; choice.n_channels *= 2)
        GYRE_TRY(search_tiles(search, simulator, choice, &best, &best_ns));
    GYRE_TRY(refine_tile(search, simulator, &best, &best_ns));
    const double weighed_ns = best_ns * weight_of(search, choice.algorithm);
    if (weighed_ns < search->weighed_ns) {
        search->choice = best;
        search->weighed_ns = weighed_ns;
    }
    return GYRE_SUCCESS;
}

/* Worth a prediction, or without alternative. */
static bool tries_proto(const struct search *search, enum gyre_proto proto)
{
    const uint32_t allowed = search->filter->protos[search->coll];
    if ((allowed >> proto & 1U) == 0 || gyre_tuner_proto_obstacle(search->facts, proto) != NULL)
        return false;
    return !search->facts->is_proxied || proto == GYRE_PROTO_SIMPLE ||
           (allowed >> GYRE_PROTO_SIMPLE & 1U) == 0 ||
           find_row(search, GYRE_ROW_INSIDE, 0, 1U << proto) != NULL;
}

static bool tries_net_proto(const struct search *search, enum gyre_proto proto)
{
    const uint32_t allowed = search->filter->net_protos[search->coll];
    if (!search->facts->is_proxied)
        return proto == GYRE_PROTO_SIMPLE;
    if ((allowed >> proto & 1U) == 0 || gyre_tuner_net_proto_obstacle(search->facts, proto) != NULL)
        return false;
    return proto == GYRE_PROTO_SIMPLE || (allowed >> GYRE_PROTO_SIMPLE & 1U) == 0 ||
           find_row(search, GYRE_ROW_BETWEEN, 0, 1U << proto) != NULL;
}

static gyre_status search_protos(struct search *search, struct gyre_simulator *simulator,
                                 const struct gyre_algorithm *algorithm)
{
    for (int i = 0; i < GYRE_N_PROTOS * GYRE_N_PROTOS; i++) {
        const struct gyre_choice choice = {.algorithm = algorithm,
                                           .proto = (enum gyre_proto)(i / GYRE_N_PROTOS),
                                           .net_proto = (enum gyre_proto)(i % GYRE_N_PROTOS),
                                           .path = GYRE_PATH_STAGED};
        if (tries_proto(search, choice.proto) && tries_net_proto(search, choice.net_proto) &&
            gyre_tuner_go_together(search->facts, choice.proto, choice.net_proto))
            GYRE_TRY(search_sizes(search, simulator, choice));
    }
    return GYRE_SUCCESS;
}

/* No rank of `leaf` stands for others, so its steps are counted before its programs are emitted. */
static bool gains_by_sparing(const struct search *search)
{
    const struct gyre_shape shape = {.n_ranks = (uint16_t)search->facts->n_ranks,
                                     .grouping = search->facts->grouping};
    const uint64_t n_others = search->facts->n_ranks - 1;
    return gyre_leaf_obstacle(&shape) == NULL &&
           (!has_many_ranks(search) ||
            2 * n_others * n_others <= number_of(search, GYRE_ROW_FLAT_STEPS));
}

/* If all ranks of several hosts send to each other, simulation takes longest. All-to-alls are such
 * messages, so there `direct` is taken unpredicted. */
static bool tries_algorithm(const struct search *search, const struct gyre_algorithm *algorithm)
{
    const enum gyre_collective coll = search->coll;
    const bool is_forced = search->filter->is_forced[coll];
    const struct gyre_ability can = gyre_tuner_ability(search->facts, algorithm, coll, false);
    const bool is_all_pairs =
        can.flow == GYRE_FLOW_ONE_HOP || coll == GYRE_COLL_ALL_TO_ALL || can.flow == GYRE_FLOW_CUT;
    if (!gyre_filter_allows(search->filter, coll, algorithm) ||
        gyre_tuner_algorithm_obstacle(search->facts, algorithm, coll) != NULL ||
        (can.two_level && search->facts->n_hosts < 2 && !is_forced) ||
        (can.flow == GYRE_FLOW_SPARING && !is_forced && !gains_by_sparing(search)) ||
        (is_all_pairs && has_many_ranks(search) && !is_forced) ||
        /* not measured yet */
        (can.ranges && search->facts->device_kind == GYRE_DEVICE_CUDA && !is_forced))
        return false;
    const struct gyre_row *only = find_row(search, GYRE_ROW_ONLY, 0, UINT32_MAX);
    if (only != NULL && gyre_filter_allows(search->filter, coll, only->algorithm) &&
        gyre_tuner_algorithm_obstacle(search->facts, only->algorithm, coll) == NULL)
        return only->algorithm == algorithm;
    return algorithm->from == NULL || is_forced;
}

static bool is_two_level(const struct search *search, const struct gyre_algorithm *algorithm)
{
    return gyre_tuner_ability(search->facts, algorithm, search->coll, false).two_level;
}

/* Compared with what the algorithm can gain. */
static gyre_status is_too_long(const struct search *search, struct gyre_simulator *simulator,
                               const struct gyre_algorithm *algorithm, bool *is_too_long_out)
{
    const struct gyre_simulation one_tile = {.cost = search->facts->cost,
                                             .n_channels = 1,
                                             .tile_bytes = 16 * GYRE_MAX_RANKS, /* one slot */
                                             .depth = search->facts->spec.depth,
                                             .n_bytes = 1};
    uint64_t n_steps = 0;
    *is_too_long_out = false;
    if (is_two_level(search, algorithm) || !has_many_ranks(search) || !isfinite(search->weighed_ns))
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_simulator_steps(simulator, &one_tile, &n_steps));
    *is_too_long_out = n_steps > number_of(search, GYRE_ROW_FLAT_STEPS);
    return GYRE_SUCCESS;
}

static gyre_status search_algorithm(struct search *search, const struct gyre_algorithm *algorithm)
{
    const struct gyre_tuner_facts *facts = search->facts;
    struct gyre_simulator *simulator;
    bool too_long;
    GYRE_TRY(open_simulator(facts, algorithm, search->coll, &simulator));
    gyre_status status = is_too_long(search, simulator, algorithm, &too_long);
    if (!too_long &&
        gyre_simulator_lanes(simulator) <=
            gyre_tuner_fifos(facts, algorithm, search->coll).n_fifos &&
        gyre_simulator_min_depth(simulator) <= facts->spec.depth && status == GYRE_SUCCESS)
        status = search_protos(search, simulator, algorithm);
    close_simulator(facts, simulator);
    return status == GYRE_ERROR_UNSUPPORTED ? GYRE_SUCCESS : status; /* too large to simulate */
}

gyre_status gyre_tuner_search(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out)
{
    struct search search = {
        .facts = facts, .filter = filter, .coll = coll, .n_bytes = n_bytes, .weighed_ns = INFINITY};
    /* Simulations end beyond the best time. Two-level algorithms are simulated faster, so with many
     * ranks they come first. */
    const bool is_sorted = has_many_ranks(&search);
    for (int is_flat = !is_sorted; is_flat < 2; is_flat++)
        for (int i = 0; gyre_algorithms[i] != NULL; i++)
            if ((!is_sorted || is_two_level(&search, gyre_algorithms[i]) == !is_flat) &&
                tries_algorithm(&search, gyre_algorithms[i]))
                GYRE_TRY(search_algorithm(&search, gyre_algorithms[i]));
    *choice_out = search.choice;
    return GYRE_SUCCESS;
}
