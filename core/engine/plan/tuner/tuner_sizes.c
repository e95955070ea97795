/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses channels and tiles by prediction: it simulates them for an algorithm and its protocols,
 * and takes the fastest ones. Pure, as tuner.c.
 */
#include "core/engine/plan/tuner/tuner_search.h"

#include "core/foundation/base/util.h"

#include <math.h>

/* What the predicted time of an algorithm counts: the product of all rows of kind WEIGHT. */
static double weight_of(const struct gyre_search *search, const struct gyre_algorithm *algorithm)
{
    const struct gyre_rows *rows = gyre_rows_of(GYRE_ROWS_HOSTS);
    struct gyre_row_call call =
        gyre_tuner_row_call(search->facts, GYRE_ROW_WEIGHT, search->coll, search->n_bytes);
    const struct gyre_row *row = NULL;
    double weight = 1;
    call.facts |= gyre_tuner_algorithm_facts(algorithm, search->coll);
    while ((row = gyre_rows_find(rows, &call, row)) != NULL)
        weight *= (double)row->rule.number / 100;
    return weight;
}

static uint64_t least_tile_of(const struct gyre_search *search,
                              const struct gyre_simulator *simulator)
{
    return gyre_max_u64(gyre_search_number(search, GYRE_ROW_LEAST_TILE),
                        gyre_simulator_least_tile_bytes(simulator));
}

/* About how many messages a call between two ranks sends in one direction. */
static uint64_t count_messages(const struct gyre_search *search, const struct gyre_choice *choice)
{
    return gyre_max_u64(choice->n_channels, gyre_div_round_up(search->n_bytes, choice->tile_bytes));
}

/* The share of the best choice's predicted time that another choice must stay below to take its
 * place: rows of kinds GAIN and MESSAGES. */
static double share_to_beat(const struct gyre_search *search, const struct gyre_choice *best,
                            const struct gyre_choice *choice)
{
    const double gain = (double)gyre_search_number(search, GYRE_ROW_GAIN) / 100;
    const uint64_t parts = gyre_search_number(search, GYRE_ROW_MESSAGES);
    double share = gain;
    if (parts == 0 || best->tile_bytes == 0)
        return share;
    for (uint64_t n = count_messages(search, best); n < count_messages(search, choice); n *= 2)
        share -= gain / (double)parts;
    return share;
}

/* Find the best tile for a number of channels. The first tile is the largest that fits a slot, and
 * smaller tiles are tried as long as the predicted time falls. @best_ns: the time of *best;
 * INFINITY as long as there is none. */
static gyre_status search_tiles(const struct gyre_search *search, struct gyre_simulator *simulator,
                                struct gyre_choice choice, struct gyre_choice *best,
                                double *best_ns)
{
    const struct gyre_simulation simulation = {.cost = search->facts->cost,
                                               .n_bytes = search->n_bytes,
                                               /* several hosts: more choices, longer programs */
                                               .is_rough = search->facts->n_hosts > 1,
                                               .limit_ns = search->weighed_ns /
                                                           weight_of(search, choice.algorithm)};
    const uint64_t least_bytes = least_tile_of(search, simulator);
    double last_ns = INFINITY;
    do {
        double time_ns;
        GYRE_TRY(gyre_search_run(search->facts, simulator, &choice, simulation, &time_ns));
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

/* Try a tile that is a quarter shorter than the best one. On many hosts it lets more slots be on
 * their way between two hosts. It counts whatever it gains, because the programs stay the same. */
static gyre_status refine_tile(const struct gyre_search *search, struct gyre_simulator *simulator,
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
        gyre_search_number(search, GYRE_ROW_MESSAGES) > 0 ||
        choice.tile_bytes < least_tile_of(search, simulator))
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_search_run(search->facts, simulator, &choice, simulation, &time_ns));
    if (time_ns < *best_ns) {
        *best = choice;
        *best_ns = time_ns;
    }
    return GYRE_SUCCESS;
}

/* The channels that the links between hosts need at least, for reasons that predictions do not
 * know: a row of kind CHANNELS. */
static uint64_t channels_of_link(const struct gyre_search *search, enum gyre_proto net_proto)
{
    struct gyre_row_call call =
        gyre_tuner_row_call(search->facts, GYRE_ROW_CHANNELS, search->coll, search->n_bytes);
    call.facts |= gyre_tuner_proto_facts(net_proto);
    const struct gyre_row *row = gyre_rows_find(gyre_rows_of(GYRE_ROWS_HOSTS), &call, NULL);
    return row == NULL ? 1
                       : gyre_tuner_row_channels(&row->rule, search->facts, search->coll,
                                                 search->n_bytes, UINT32_MAX);
}

/* The least number of channels to try. With many ranks only multiples of the unit are tried,
 * because they are simulated fast. */
static uint32_t least_channels_of(const struct gyre_search *search, enum gyre_proto net_proto,
                                  uint32_t unit, uint32_t most_channels)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const uint64_t most_bytes = gyre_search_number(search, GYRE_ROW_CHANNEL_BYTES);
    uint64_t least =
        gyre_max_u64(gyre_max_u64(facts->min_channels, 1), channels_of_link(search, net_proto));
    while (most_bytes > 0 &&
           gyre_tuner_all_bytes(facts, search->coll, search->n_bytes) / least > most_bytes)
        least *= 2;
    const uint64_t rounded = gyre_round_up(least, unit);
    return (uint32_t)gyre_min_u64(most_bytes > 0 && rounded <= most_channels ? rounded : least,
                                  most_channels);
}

/* The largest tile to try, which over slow TCP is shorter than a slot: rows of kind TILE_NS. */
static uint32_t tile_in_time(const struct gyre_search *search, uint32_t largest_bytes,
                             uint64_t least_bytes)
{
    const double in_time_bytes = search->facts->cost->nic_bytes_per_ns *
                                 (double)gyre_search_number(search, GYRE_ROW_TILE_NS);
    if (in_time_bytes <= 0 || in_time_bytes >= largest_bytes)
        return largest_bytes;
    const uint64_t tile_bytes = (uint32_t)in_time_bytes / 16 * 16;
    return gyre_min_u32(largest_bytes,
                        (uint32_t)gyre_max_u64(tile_bytes, gyre_round_up(least_bytes, 16)));
}

uint32_t gyre_search_largest_tile(const struct gyre_search *search,
                                  const struct gyre_algorithm *algorithm, enum gyre_proto proto,
                                  enum gyre_proto net_proto)
{
    return gyre_min_u32(
        gyre_tuner_payload_bytes(search->facts, algorithm, search->coll, proto, false) / 16 * 16,
        gyre_tuner_net_payload_bytes(search->facts, net_proto));
}

gyre_status gyre_search_sizes(struct gyre_search *search, struct gyre_simulator *simulator,
                              const struct gyre_algorithm *algorithm, enum gyre_proto proto,
                              enum gyre_proto net_proto)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const uint32_t most_channels = (uint32_t)gyre_min_u64(
        facts->max_channels,
        gyre_tuner_fifos(facts, algorithm, search->coll).n_fifos / gyre_simulator_lanes(simulator));
    const uint32_t least_channels =
        least_channels_of(search, net_proto, gyre_simulator_channel_unit(simulator), most_channels);
    struct gyre_choice choice = {.algorithm = algorithm,
                                 .proto = proto,
                                 .net_proto = net_proto,
                                 .n_channels = least_channels,
                                 .path = GYRE_PATH_STAGED};
    struct gyre_choice best = choice;
    double best_ns = INFINITY;
    choice.tile_bytes =
        tile_in_time(search, gyre_search_largest_tile(search, algorithm, proto, net_proto),
                     least_tile_of(search, simulator));
    for (; choice.n_channels <= most_channels; choice.n_channels *= 2)
        GYRE_TRY(search_tiles(search, simulator, choice, &best, &best_ns));
    GYRE_TRY(refine_tile(search, simulator, &best, &best_ns));
    const double weighed_ns = best_ns * weight_of(search, algorithm);
    if (weighed_ns < search->weighed_ns) {
        search->choice = best;
        search->weighed_ns = weighed_ns;
    }
    return GYRE_SUCCESS;
}
