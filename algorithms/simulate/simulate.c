/* SPDX-License-Identifier: Apache-2.0
 *
 * Once the difference between two runs of different length is steady, the time of the other tiles
 * follows from it.
 */
#include "algorithms/simulate/simulate.h"

#include "algorithms/simulate/run.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define UNIT_BYTES 16

/* A pipeline is steady if two equal numbers of further tiles differ less. */
#define STEADY_SHARE       0.001
#define ROUGH_STEADY_SHARE 0.01

/* More steps are extrapolated even if unsteady, so that a prediction takes seconds, and a rough one
 * tens of milliseconds. */
#define MOST_STEPS       30000000
#define ROUGH_MOST_STEPS 200000

/* With longer tiles a rough prediction is one run instead of three. With much longer ones this run
 * has the fewest tiles that tell the time of one. */
#define LONG_TILE_STEPS      100000
#define VERY_LONG_TILE_STEPS 1000000

const char *const gyre_resource_names[GYRE_N_RESOURCES] = {
#define RESOURCE_NAME(id, name) #name,
    GYRE_RESOURCE_TABLE(RESOURCE_NAME)
#undef RESOURCE_NAME
};

struct gyre_simulator {
    const struct gyre_algorithm *algorithm;
    struct gyre_shape shape;
    struct gyre_machine machine;
    struct gyre_sim_network networks[GYRE_SIM_N_FOLDINGS];
    bool is_open[GYRE_SIM_N_FOLDINGS];
    enum gyre_sim_folding usual; /* others are opened when a call needs them */
    uint16_t max_range;          /* uncut */
};

/* Ranks that share cores take turns, so none stands for another. Larger shapes ignore this. */
#define MAX_RANKS_IN_TURNS 64

static struct gyre_sim_call make_call(const struct gyre_sim_network *network,
                                      const struct gyre_simulation *simulation)
{
    const uint64_t tile_bytes =
        gyre_round_up(gyre_piece_bytes(simulation->tile_bytes, network->max_range), UNIT_BYTES);
    struct gyre_sim_call call = {.network = network, .simulation = simulation};
    call.split = (struct gyre_split){.count = simulation->n_bytes,
                                     .n_channels = simulation->n_channels,
                                     .n_chunks = network->n_chunks,
                                     .tile_elems = (uint32_t)tile_bytes,
                                     .unit_elems = UNIT_BYTES};
    const struct gyre_range shortest = gyre_chunk_range(&call.split, 0, network->n_chunks - 1);
    call.n_real_tiles = simulation->n_bytes == 0 ? 0 : gyre_tile_count(&call.split);
    call.n_full_tiles = shortest.n_elems / tile_bytes;
    return call;
}

struct growth {
    double first_ns;
    double second_ns;
    double busy_ns; /* the busiest resource, in the second */
};

static double busy_ns_of(const struct gyre_prediction *prediction)
{
    return prediction->busy_share * prediction->time_ns;
}

/* Runs of 2, 3 and 4 times `more` tiles. @longest: with the steps of all; INFINITY if a run passed
 * limit_ns. */
static gyre_status measure(const struct gyre_sim_call *call, uint64_t more, struct growth *growth,
                           struct gyre_prediction *longest)
{
    struct gyre_prediction at[3] = {{0}};
    for (unsigned i = 0; i < 3; i++) {
        GYRE_TRY(gyre_sim_run(call, (2 + i) * more, NULL, &at[i]));
        *longest = at[i];
        if (at[i].time_ns > DBL_MAX)
            return GYRE_SUCCESS;
    }
    longest->n_steps = at[0].n_steps + at[1].n_steps + at[2].n_steps;
    growth->first_ns = at[1].time_ns - at[0].time_ns;
    growth->second_ns = at[2].time_ns - at[1].time_ns;
    growth->busy_ns = busy_ns_of(&at[2]) - busy_ns_of(&at[1]);
    return GYRE_SUCCESS;
}

/* By the last run alone: when all ranks were done with a tile is nearly a shorter run's time. The
 * last tile may be short, so those before it are compared. */
static gyre_status measure_roughly(const struct gyre_sim_call *call, uint64_t more,
                                   struct growth *growth, struct gyre_prediction *longest)
{
    const uint64_t n_tiles = 4 * more;
    const double n_whole_tiles =
        (double)gyre_chunk_range(&call->split, 0, 0).n_elems / call->split.tile_elems -
        (double)(call->n_real_tiles - n_tiles);
    double *done_ns = calloc(n_tiles, sizeof(*done_ns));
    if (done_ns == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %llu tiles to simulate",
                         (unsigned long long)n_tiles);
    const gyre_status status = gyre_sim_run(call, n_tiles, done_ns, longest);
    growth->first_ns = done_ns[3 * more - 2] - done_ns[2 * more - 2];
    growth->second_ns = done_ns[4 * more - 2] - done_ns[3 * more - 2];
    growth->busy_ns = busy_ns_of(longest) * (double)more / n_whole_tiles;
    free(done_ns);
    return status;
}

/* Doubled until two equal numbers of tiles take as long. The shortest run fills the FIFOs, except
 * with very long tiles. */
static gyre_status extrapolate(const struct gyre_sim_call *call, bool *is_steady_out,
                               struct gyre_prediction *prediction)
{
    const bool is_rough = call->simulation->is_rough;
    const double steady_share = is_rough ? ROUGH_STEADY_SHARE : STEADY_SHARE;
    const uint64_t most_steps = is_rough ? ROUGH_MOST_STEPS : MOST_STEPS;
    *is_steady_out = false;
    const uint64_t tile_steps = is_rough ? call->network->n_steps : 0;
    const uint64_t least =
        tile_steps >= VERY_LONG_TILE_STEPS ? 2 : gyre_max_u64(call->simulation->depth, 4);
    for (uint64_t more = least; 9 * more <= call->n_real_tiles; more *= 2) {
        struct gyre_prediction longest = {0};
        struct growth growth = {0};
        GYRE_TRY(tile_steps >= LONG_TILE_STEPS ? measure_roughly(call, more, &growth, &longest)
                                               : measure(call, more, &growth, &longest));
        *is_steady_out =
            longest.time_ns > DBL_MAX || longest.n_steps >= most_steps ||
            fabs(growth.second_ns - growth.first_ns) <= steady_share * growth.second_ns;
        if (!*is_steady_out)
            continue;
        *prediction = longest;
        if (longest.time_ns > DBL_MAX)
            return GYRE_SUCCESS;
        /* While a pipeline fills, the busy time can exceed what these tiles added, and later tiles
         * take as long as it. */
        const double more_ns = fmax(growth.second_ns, growth.busy_ns);
        const uint64_t n_left = call->n_real_tiles - 4 * more;
        prediction->time_ns = longest.time_ns + more_ns / (double)more * (double)n_left;
        prediction->busy_share =
            growth.second_ns > 0 ? fmax(0, fmin(growth.busy_ns / growth.second_ns, 1)) : 0;
        if (prediction->busy_share < 0.5)
            prediction->bottleneck = GYRE_RESOURCE_LATENCY;
        prediction->is_extrapolated = true;
        return GYRE_SUCCESS;
    }
    return GYRE_SUCCESS;
}

static void close_networks(struct gyre_simulator *simulator)
{
    for (int folding = 0; folding < GYRE_SIM_N_FOLDINGS; folding++) {
        gyre_sim_network_close(&simulator->networks[folding]);
        simulator->is_open[folding] = false;
    }
}

/* Ranges are cut as communicators cut them. */
static gyre_status prepare(struct gyre_simulator *simulator,
                           const struct gyre_simulation *simulation)
{
    if (simulation->n_channels == 0 || simulation->tile_bytes == 0 || simulation->depth == 0 ||
        simulation->depth > GYRE_SIMULATE_MAX_DEPTH ||
        (unsigned)simulation->proto >= GYRE_N_PROTOS ||
        (unsigned)simulation->net_proto >= GYRE_N_PROTOS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "cannot simulate %u channels, tiles of %u bytes, %u slots (1..%d), "
                         "protocols %d and %d",
                         simulation->n_channels, simulation->tile_bytes, simulation->depth,
                         GYRE_SIMULATE_MAX_DEPTH, (int)simulation->proto,
                         (int)simulation->net_proto);
    const enum gyre_sim_folding usual = simulator->usual;
    const struct gyre_program uncut = {.coll = simulator->shape.coll,
                                       .n_ranks = simulator->shape.n_ranks,
                                       .n_chunks = (uint16_t)simulator->networks[usual].n_chunks,
                                       .max_range = simulator->max_range};
    const uint16_t range = gyre_program_range_for(&uncut, simulation->n_bytes,
                                                  simulation->n_channels, simulation->tile_bytes);
    if (range == simulator->shape.most_range)
        return GYRE_SUCCESS;
    struct gyre_sim_network network;
    struct gyre_shape shape = simulator->shape;
    shape.most_range = range;
    GYRE_TRY(
        gyre_sim_network_open(simulator->algorithm, &shape, &simulator->machine, usual, &network));
    close_networks(simulator);
    simulator->shape = shape;
    simulator->networks[usual] = network;
    simulator->is_open[usual] = true;
    return GYRE_SUCCESS;
}

gyre_status gyre_simulator_steps(struct gyre_simulator *simulator,
                                 const struct gyre_simulation *simulation, uint64_t *n_steps_out)
{
    GYRE_TRY(prepare(simulator, simulation));
    const struct gyre_sim_network *network = &simulator->networks[simulator->usual];
    *n_steps_out = make_call(network, simulation).n_real_tiles * network->n_steps;
    return GYRE_SUCCESS;
}

gyre_status gyre_simulator_run(struct gyre_simulator *simulator,
                               const struct gyre_simulation *simulation,
                               struct gyre_prediction *prediction_out)
{
    GYRE_TRY(prepare(simulator, simulation));
    enum gyre_sim_folding folding = simulator->usual;
    const struct gyre_sim_network *usual = &simulator->networks[folding];
    if (usual->is_folded && simulation->cost->cores_per_host > 0 &&
        simulator->shape.n_ranks <= MAX_RANKS_IN_TURNS)
        folding = GYRE_SIM_FOLD_NOTHING;
    else if (simulation->n_channels % usual->channel_unit != 0)
        folding = GYRE_SIM_FOLD_ANY_CHANNELS;
    if (!simulator->is_open[folding])
        GYRE_TRY(gyre_sim_network_open(simulator->algorithm, &simulator->shape, &simulator->machine,
                                       folding, &simulator->networks[folding]));
    simulator->is_open[folding] = true;
    const struct gyre_sim_call call = make_call(&simulator->networks[folding], simulation);
    struct gyre_prediction prediction = {0};
    bool is_steady = false;
    if (!simulation->all_tiles)
        GYRE_TRY(extrapolate(&call, &is_steady, &prediction));
    if (!is_steady)
        GYRE_TRY(gyre_sim_run(&call, call.n_real_tiles, NULL, &prediction));
    *prediction_out = prediction;
    return GYRE_SUCCESS;
}

gyre_status gyre_simulator_open(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, const struct gyre_machine *machine,
                                bool all_ranks, struct gyre_simulator **simulator_out)
{
    struct gyre_simulator *simulator = calloc(1, sizeof(*simulator));
    if (simulator == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate a simulator");
    simulator->algorithm = algorithm;
    simulator->shape = *shape;
    simulator->machine = *machine;
    simulator->usual = all_ranks ? GYRE_SIM_FOLD_NOTHING : GYRE_SIM_FOLD_ALL;
    struct gyre_sim_network *network = &simulator->networks[simulator->usual];
    const gyre_status status =
        gyre_sim_network_open(algorithm, shape, machine, simulator->usual, network);
    simulator->is_open[simulator->usual] = status == GYRE_SUCCESS;
    simulator->max_range = (uint16_t)network->max_range;
    if (status != GYRE_SUCCESS)
        free(simulator);
    else
        *simulator_out = simulator;
    return status;
}

void gyre_simulator_close(struct gyre_simulator *simulator)
{
    if (simulator == NULL)
        return;
    close_networks(simulator);
    free(simulator);
}

uint32_t gyre_simulator_lanes(const struct gyre_simulator *simulator)
{
    return simulator->networks[simulator->usual].n_lanes;
}

uint32_t gyre_simulator_channel_unit(const struct gyre_simulator *simulator)
{
    return simulator->networks[simulator->usual].channel_unit;
}

uint32_t gyre_simulator_min_depth(const struct gyre_simulator *simulator)
{
    return simulator->networks[simulator->usual].min_depth;
}
