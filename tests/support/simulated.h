/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines in these tests are mostly one latency and one rate, so that a schedule's time can be
 * written down.
 */
#ifndef GYRE_TESTS_SUPPORT_SIMULATED_H
#define GYRE_TESTS_SUPPORT_SIMULATED_H

#include "algorithms/simulate/simulate.h"
#include "tests/support/check.h"

#include <math.h>

static inline bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b) + 1e-9;
}

#define HOP_NS       1000.0
#define BYTES_PER_NS 8.0

/* Only hops and each rank's outgoing side. */
static inline struct gyre_cost plain_cost(double hop_ns, double bytes_per_ns)
{
    struct gyre_cost cost = {0};
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++) {
        cost.wire_efficiency[proto] = 1;
        for (int link = 0; link < GYRE_N_LINKS; link++)
            cost.hop_ns[proto][link] = hop_ns;
    }
    for (int link = 0; link < GYRE_N_LINKS; link++)
        cost.egress_bytes_per_ns[link] = bytes_per_ns;
    return cost;
}

/* Zeros stand for one channel, depth 8, and the whole chunk in one tile. */
struct question {
    const struct gyre_algorithm *algorithm;
    enum gyre_collective coll;
    unsigned n_ranks;
    uint64_t n_bytes;
    uint32_t tile_bytes;
    uint32_t n_channels;
    uint32_t depth;
    const struct gyre_grouping *grouping;
    bool is_all_network;
    bool is_placed;
    bool all_ranks;
    bool all_tiles;
};

static inline struct gyre_prediction ask(const struct gyre_cost *cost,
                                         const struct question *question)
{
    const struct gyre_shape shape = {.coll = question->coll,
                                     .n_ranks = (uint16_t)question->n_ranks,
                                     .grouping = question->grouping,
                                     .is_placed = question->is_placed};
    const struct gyre_machine machine = {.grouping = question->grouping,
                                         .is_all_network = question->is_all_network};
    const struct gyre_simulation simulation = {
        .cost = cost,
        .n_channels = question->n_channels > 0 ? question->n_channels : 1,
        .tile_bytes = question->tile_bytes > 0 ? question->tile_bytes : 1U << 30,
        .depth = question->depth > 0 ? question->depth : 8,
        .n_bytes = question->n_bytes,
        .all_tiles = question->all_tiles};
    struct gyre_prediction prediction = {.time_ns = -1};
    struct gyre_simulator *simulator = NULL;
    CHECK_OK(gyre_simulator_open(question->algorithm, &shape, &machine, question->all_ranks,
                                 &simulator));
    if (simulator != NULL)
        CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
    gyre_simulator_close(simulator);
    return prediction;
}

static inline double time_of(const struct gyre_cost *cost, const struct question *question)
{
    return ask(cost, question).time_ns;
}

#define CHECK_TIME(cost, question, expected)                                                \
    do {                                                                                    \
        const double time_ns_ = time_of(cost, question);                                    \
        CHECK_MSG(is_near(time_ns_, expected), "%s %s, %u ranks: %.17g ns, expected %.17g", \
                  (question)->algorithm->name, gyre_collectives[(question)->coll].name,     \
                  (question)->n_ranks, time_ns_, (double)(expected));                       \
    } while (0)

static inline struct gyre_grouping even_hosts(unsigned n_hosts, unsigned n_of_host)
{
    struct gyre_grouping grouping = {.n_hosts = (uint16_t)n_hosts};
    for (unsigned rank = 0; rank < n_hosts * n_of_host; rank++)
        grouping.host_of[rank] = (uint16_t)(rank / n_of_host);
    return grouping;
}

#endif
