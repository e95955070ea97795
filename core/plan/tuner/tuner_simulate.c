/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice by prediction: every way that is allowed is simulated, the fastest is taken. Pure, and
 * the simulator gives the same bits everywhere, so all ranks choose the same.
 */
#include "core/plan/tuner/tuner.h"

#include "core/base/util.h"

/* More channels or smaller tiles have to be worth it: the model is no better than this. */
#define WORTH 0.95

/* Between hosts, algorithms of two levels send the fewest bytes. What is known least is how fast
 * the links there are, which other jobs may share: a flat algorithm has to be faster by this
 * factor. */
#define WORTH_MORE_BETWEEN_HOSTS 0.9

/* Not below this; and each a quarter of the one before. */
#define MIN_TILE_BYTES 4096

static gyre_status open_simulator(const struct gyre_tuner_facts *facts,
                                  const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                                  struct gyre_simulator **simulator_out)
{
    const struct gyre_shape shape = {
        .coll = coll, .n_ranks = (uint16_t)facts->n_ranks, .grouping = facts->grouping};
    const struct gyre_machine machine = {
        .grouping = facts->grouping, .is_all_network = facts->is_proxied && facts->n_hosts == 1};
    return gyre_simulator_open(algorithm, &shape, &machine, false, simulator_out);
}

static gyre_status run(const struct gyre_tuner_facts *facts, struct gyre_simulator *simulator,
                       const struct gyre_cost *cost, const struct gyre_choice *choice,
                       uint64_t n_bytes, double *time_ns_out)
{
    const struct gyre_simulation simulation = {.cost = cost,
                                               .proto = choice->proto,
                                               .n_channels = choice->n_channels,
                                               .tile_bytes = choice->tile_bytes,
                                               .depth = facts->spec.depth,
                                               .n_bytes = n_bytes};
    struct gyre_prediction prediction;
    GYRE_TRY(gyre_simulator_run(simulator, &simulation, &prediction));
    *time_ns_out = prediction.time_ns;
    return GYRE_SUCCESS;
}

gyre_status gyre_tuner_predict(const struct gyre_tuner_facts *facts, const struct gyre_cost *cost,
                               enum gyre_collective coll, const struct gyre_choice *choice,
                               uint64_t n_bytes, double *time_ns_out)
{
    struct gyre_simulator *simulator;
    GYRE_TRY(open_simulator(facts, choice->algorithm, coll, &simulator));
    const gyre_status status = run(facts, simulator, cost, choice, n_bytes, time_ns_out);
    gyre_simulator_close(simulator);
    return status;
}

/* The best so far. */
struct search {
    const struct gyre_tuner_facts *facts;
    uint64_t n_bytes;
    struct gyre_choice choice;
    double weighed_ns; /* of choice, once there is one */
};

/* Channels and tiles of one algorithm and protocol, plain ones first. */
static gyre_status search_proto(struct search *search, struct gyre_simulator *simulator,
                                const struct gyre_algorithm *algorithm, enum gyre_proto proto)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const uint32_t most_bytes =
        gyre_tuner_payload_bytes(&facts->spec, algorithm, proto, false) / 16 * 16;
    const uint32_t most_channels = (uint32_t)gyre_min_u64(
        facts->max_channels, facts->spec.n_fifos / gyre_simulator_lanes(simulator));
    const uint32_t least_channels = (uint32_t)gyre_min_u64(facts->min_channels, most_channels);
    struct gyre_choice best = {0};
    double best_ns = 0;
    for (uint32_t n_channels = least_channels; n_channels <= most_channels; n_channels *= 2) {
        uint32_t tile_bytes = most_bytes;
        do {
            const struct gyre_choice choice = {algorithm, proto, n_channels, tile_bytes,
                                               GYRE_PATH_STAGED};
            double time_ns;
            GYRE_TRY(run(facts, simulator, facts->cost, &choice, search->n_bytes, &time_ns));
            if (best.algorithm == NULL || time_ns < best_ns * WORTH) {
                best = choice;
                best_ns = time_ns;
            }
            tile_bytes = tile_bytes / 4 / 16 * 16;
        } while (tile_bytes >= MIN_TILE_BYTES);
    }
    const double weighed_ns = best_ns * (algorithm->is_two_level ? WORTH_MORE_BETWEEN_HOSTS : 1);
    if (search->choice.algorithm == NULL || weighed_ns < search->weighed_ns) {
        search->choice = best;
        search->weighed_ns = weighed_ns;
    }
    return GYRE_SUCCESS;
}

static gyre_status search_algorithm(struct search *search, const struct gyre_filter *filter,
                                    enum gyre_collective coll,
                                    const struct gyre_algorithm *algorithm)
{
    const struct gyre_fifo_spec *spec = &search->facts->spec;
    struct gyre_simulator *simulator;
    GYRE_TRY(open_simulator(search->facts, algorithm, coll, &simulator));
    gyre_status status = GYRE_SUCCESS;
    const bool fits = gyre_simulator_lanes(simulator) <= spec->n_fifos &&
                      gyre_simulator_min_depth(simulator) <= spec->depth;
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
    struct search search = {.facts = facts, .n_bytes = n_bytes};
    for (int i = 0; gyre_algorithms[i] != NULL; i++) {
        if ((filter->algorithms[coll] >> i & 1U) == 0 ||
            !gyre_algorithm_suits(gyre_algorithms[i], coll,
                                  filter->is_forced[coll] ? UINT32_MAX : facts->n_hosts))
            continue;
        const gyre_status status = search_algorithm(&search, filter, coll, gyre_algorithms[i]);
        if (status != GYRE_SUCCESS && status != GYRE_ERROR_UNSUPPORTED) /* too large to simulate */
            return status;
    }
    *choice_out = search.choice;
    return GYRE_SUCCESS;
}
