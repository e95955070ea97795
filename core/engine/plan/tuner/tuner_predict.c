/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts the time of a choice. Pure, and the simulator gives the same bits on every rank, so all
 * ranks that choose by predictions choose the same.
 */
#include "core/engine/plan/tuner/tuner_search.h"

gyre_status gyre_search_simulator_open(const struct gyre_tuner_facts *facts,
                                       const struct gyre_algorithm *algorithm,
                                       enum gyre_collective coll,
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

void gyre_search_simulator_close(const struct gyre_tuner_facts *facts,
                                 struct gyre_simulator *simulator)
{
    if (simulator != facts->simulator)
        gyre_simulator_close(simulator);
}

gyre_status gyre_search_run(const struct gyre_tuner_facts *facts, struct gyre_simulator *simulator,
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
    GYRE_TRY(gyre_search_simulator_open(facts, choice->algorithm, coll, &simulator));
    const gyre_status status = gyre_search_run(facts, simulator, choice, simulation, time_ns_out);
    gyre_search_simulator_close(facts, simulator);
    return status;
}
