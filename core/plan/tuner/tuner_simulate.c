/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses by prediction: it simulates the allowed choices and takes the fastest one. Pure, and the
 * simulator gives the same bits on every rank, so all ranks choose the same.
 */
#include "core/plan/tuner/tuner.h"

#include "core/base/util.h"

#include <math.h>

/* More channels or smaller tiles are chosen only if they lower the predicted time to this share,
 * because the error of the model is about as large as the difference. */
#define WORTH 0.95

/* A flat algorithm has to be faster than a two-level algorithm by this factor. Two-level algorithms
 * send the fewest bytes between hosts, and the speed of the links between hosts is the least
 * certain input of a prediction, because other jobs may share these links. */
#define WORTH_MORE_BETWEEN_HOSTS 0.9

#define MOST_ALL_PAIRS_RANKS     64

/* The least tile that is tried. Each tile that is tried has a quarter of the bytes of the previous
 * one. */
#define MIN_TILE_BYTES 4096

static gyre_status open_simulator(const struct gyre_tuner_facts *facts,
                                  const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                                  struct gyre_simulator **simulator_out)
{
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

/* Simulate a choice. @simulation: cost, n_bytes and limit_ns are set. */
static gyre_status run(const struct gyre_tuner_facts *facts, struct gyre_simulator *simulator,
                       const struct gyre_choice *choice, struct gyre_simulation simulation,
                       double *time_ns_out)
{
    struct gyre_prediction prediction;
    simulation.proto = choice->proto;
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
    const gyre_status status = run(facts, simulator, choice, simulation, time_ns_out);
    gyre_simulator_close(simulator);
    return status;
}

static double weight_of(const struct gyre_algorithm *algorithm)
{
    return algorithm->is_two_level ? WORTH_MORE_BETWEEN_HOSTS : 1;
}

/* A search, with the best choice that was found so far. */
struct search {
    const struct gyre_tuner_facts *facts;
    enum gyre_collective coll;
    uint64_t n_bytes;
    struct gyre_choice choice;
    double weighed_ns; /* of choice; INFINITY as long as there is none */
};

/* Find the best tile for a number of channels. The first tile is the largest that fits a slot, and
 * smaller tiles are tried as long as the predicted time falls. @best_ns: the time of *best;
 * INFINITY as long as there is none. */
static gyre_status search_tiles(const struct search *search, struct gyre_simulator *simulator,
                                struct gyre_choice choice, struct gyre_choice *best,
                                double *best_ns)
{
    const struct gyre_simulation simulation = {.cost = search->facts->cost,
                                               .n_bytes = search->n_bytes,
                                               /* several hosts: more choices, longer programs */
                                               .is_rough = search->facts->n_hosts > 1,
                                               .limit_ns = search->weighed_ns /
                                                           weight_of(choice.algorithm)};
    double last_ns = INFINITY;
    do {
        double time_ns;
        GYRE_TRY(run(search->facts, simulator, &choice, simulation, &time_ns));
        if (time_ns < *best_ns * WORTH) {
            *best = choice;
            *best_ns = time_ns;
        }
        if (time_ns >= last_ns && isfinite(time_ns))
            return GYRE_SUCCESS;
        last_ns = time_ns;
        choice.tile_bytes = choice.tile_bytes / 4 / 16 * 16;
    } while (choice.tile_bytes >=
             gyre_max_u64(MIN_TILE_BYTES, gyre_simulator_least_tile_bytes(simulator)));
    return GYRE_SUCCESS;
}

/* The least number of channels to try. With many ranks only multiples of the unit are tried,
 * because they are simulated fast. */
static uint32_t least_channels_of(const struct gyre_tuner_facts *facts, uint32_t unit,
                                  uint32_t most_channels)
{
    const uint64_t least = facts->min_channels;
    const uint64_t rounded = gyre_round_up(least, unit);
    const bool is_large = facts->n_ranks > MOST_ALL_PAIRS_RANKS && rounded <= most_channels;
    return (uint32_t)gyre_min_u64(is_large ? rounded : least, most_channels);
}

/* Try channels and tiles of one algorithm and protocol, beginning with few channels. */
static gyre_status search_proto(struct search *search, struct gyre_simulator *simulator,
                                const struct gyre_algorithm *algorithm, enum gyre_proto proto)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const uint32_t most_channels = (uint32_t)gyre_min_u64(
        facts->max_channels,
        gyre_tuner_fifos(facts, algorithm, search->coll).n_fifos / gyre_simulator_lanes(simulator));
    const uint32_t least_channels =
        least_channels_of(facts, gyre_simulator_channel_unit(simulator), most_channels);
    struct gyre_choice choice = {algorithm, proto, least_channels, 0, GYRE_PATH_STAGED};
    struct gyre_choice best = choice;
    double best_ns = INFINITY;
    choice.tile_bytes =
        gyre_tuner_payload_bytes(facts, algorithm, search->coll, proto, false) / 16 * 16;
    for (; choice.n_channels <= most_channels; choice.n_channels *= 2)
        GYRE_TRY(search_tiles(search, simulator, choice, &best, &best_ns));
    const double weighed_ns = best_ns * weight_of(algorithm);
    if (weighed_ns < search->weighed_ns) {
        search->choice = best;
        search->weighed_ns = weighed_ns;
    }
    return GYRE_SUCCESS;
}

/* Is the algorithm certain to be slow, so that it need not be simulated? If many ranks on several
 * hosts all send to each other, the call takes the longest and so does its simulation. An
 * all-to-all consists of such messages, so no algorithm for it can be compared with `direct` there,
 * and `direct` is taken. */
static bool is_hopeless(const struct gyre_tuner_facts *facts,
                        const struct gyre_algorithm *algorithm, enum gyre_collective coll)
{
    const bool is_all_pairs = algorithm->is_one_shot || coll == GYRE_COLL_ALL_TO_ALL ||
                              (algorithm->cuts_vector >> coll & 1U) != 0;
    return is_all_pairs && facts->n_hosts > 1 && facts->n_ranks > MOST_ALL_PAIRS_RANKS;
}

static gyre_status search_algorithm(struct search *search, const struct gyre_filter *filter,
                                    enum gyre_collective coll,
                                    const struct gyre_algorithm *algorithm)
{
    const struct gyre_fifo_spec *spec = &search->facts->spec;
    struct gyre_simulator *simulator;
    GYRE_TRY(open_simulator(search->facts, algorithm, coll, &simulator));
    gyre_status status = GYRE_SUCCESS;
    const bool fits =
        gyre_simulator_lanes(simulator) <=
            gyre_tuner_fifos(search->facts, algorithm, coll).n_fifos &&
        gyre_simulator_min_depth(simulator) <= spec->depth &&
        gyre_simulator_least_tile_bytes(simulator) <=
            gyre_tuner_payload_bytes(search->facts, algorithm, coll, GYRE_PROTO_SIMPLE, false);
    for (int proto = 0; proto < GYRE_N_PROTOS && fits && status == GYRE_SUCCESS; proto++)
        if ((filter->protos[coll] >> proto & 1U) != 0 &&
            gyre_tuner_proto_obstacle(search->facts, (enum gyre_proto)proto) == NULL)
            status = search_proto(search, simulator, algorithm, (enum gyre_proto)proto);
    gyre_simulator_close(simulator);
    return status;
}

gyre_status gyre_tuner_search(const struct gyre_tuner_facts *facts,
                              const struct gyre_filter *filter, enum gyre_collective coll,
                              uint64_t n_bytes, struct gyre_choice *choice_out)
{
    struct search search = {
        .facts = facts, .coll = coll, .n_bytes = n_bytes, .weighed_ns = INFINITY};
    for (int i = 0; gyre_algorithms[i] != NULL; i++) {
        if ((filter->algorithms[coll] >> i & 1U) == 0 ||
            !gyre_algorithm_suits(gyre_algorithms[i], coll,
                                  filter->is_forced[coll] ? UINT32_MAX : facts->n_hosts) ||
            gyre_tuner_algorithm_obstacle(facts, gyre_algorithms[i], coll) != NULL)
            continue;
        if (is_hopeless(facts, gyre_algorithms[i], coll) && !filter->is_forced[coll])
            continue;
        const gyre_status status = search_algorithm(&search, filter, coll, gyre_algorithms[i]);
        if (status != GYRE_SUCCESS && status != GYRE_ERROR_UNSUPPORTED) /* too large to simulate */
            return status;
    }
    *choice_out = search.choice;
    return GYRE_SUCCESS;
}
