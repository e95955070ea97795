/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses channels and tiles by prediction: it simulates them for an algorithm and its protocols,
 * and takes the fastest ones. Pure, as tuner.c.
 */
#include "core/engine/plan/tuner/tuner_search.h"

#include "core/foundation/base/util.h"

#include <math.h>

/* More channels or smaller tiles are chosen only if they lower the predicted time to this share,
 * because the error of the model is about as large as the difference. */
#define WORTH 0.95

/* A flat algorithm has to be faster than a two-level algorithm by this factor. Two-level algorithms
 * send the fewest bytes between hosts, and the speed of the links between hosts is the least
 * certain input of a prediction, because other jobs may share these links. */
#define WORTH_MORE_BETWEEN_HOSTS 0.9

/* The simulator divides a NIC evenly between the hosts that send to it. TCP does not: two hosts
 * send to one NIC for a while, and a NIC to which they should send stands idle. If each block
 * travels along a tree of its own (fans_in), all hosts wait for each other in every tile, so this
 * time is lost. In a ring, or between two hosts, one host sends to each NIC. So over TCP between
 * more hosts a tree's predicted time counts as longer by this factor. A reduce-scatter of 8 MiB on
 * 4 hosts took 1.01 times the bound by two_level_ring and 1.25 to 1.45 times by two_level_tree, an
 * all-gather 1.01 and 1.05 to 1.09 (tests/lab/rails.py, links of 100 Mbit/s, 2026-11). */
#define WORTH_FANNING_IN 1.1

/* Over TCP a FIFO's slots go through one connection, which one thread copies, and one thread block
 * writes or reads them in host memory. Predictions only know the network, which few channels fill.
 * So calls of GPUs have a channel for so many bytes at least: an all-reduce of 16 MiB in 4 channels
 * moves 3.9 GB/s, one of 4 MiB in 32 channels 5.6 (2 H100, loopback, 8 connections, 2026-11). */
#define TCP_CHANNEL_BYTES ((uint64_t)(128 << 10))
#define MOST_TCP_CHANNELS 16

/* Calls of GPUs by lines over TCP use so many channels that each moves at most so many bytes of a
 * block, up to MOST_TCP_CHANNELS, because a multiprocessor has few reads over PCIe in flight
 * (HOST_CHANNEL_BYTES in tuner_tiles.c). The channels' frames travel together. No other number was
 * measured. */
#define TCP_LINE_CHANNEL_BYTES 512

/* Over RDMA a channel's slots go through one queue pair, in order, and one thread block copies
 * them. So calls of two GPUs have a channel for so many bytes that a rank sends: a broadcast of 4
 * MiB in one channel and tiles of 96 KiB takes 744 us over a stand-in NIC without limits, an
 * all-gather of 4 MiB in 4 channels and tiles of 512 KiB 123 and 135 (2 H100, 2026-11). */
#define RDMA_CHANNEL_BYTES ((uint64_t)(512 << 10))
#define MOST_RDMA_CHANNELS 8
/* And their tiles are no shorter than this, if the slots are not: predictions do not count what a
 * message costs a NIC. A broadcast of 1 MiB in 2 channels and tiles of 128 KiB takes 105 us over a
 * stand-in NIC of two ports of 100 Gbit/s, in 4 channels of one tile 52 (2 H100, 2026-11). */
#define LEAST_RDMA_TILE_BYTES (256 << 10)

/* With many ranks, as many channels are tried at least that none moves more bytes. One worker takes
 * 5.5 ms to send so many (24.4 GB/s, cost_text.c), and 8 channels send 1 GiB in 3 ms. Each number
 * of channels that is not tried saves seconds with thousands of ranks. */
#define MOST_CHANNEL_BYTES ((uint64_t)128 << 20)

/* The least tile that is tried. Each tile that is tried has a quarter of the bytes of the previous
 * one. */
#define MIN_TILE_BYTES 4096

static double weight_of(const struct gyre_search *search, const struct gyre_algorithm *algorithm)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const bool fans_in =
        facts->is_tcp && facts->n_hosts > 2 && (algorithm->fans_in >> search->coll & 1U) != 0;
    return (algorithm->is_two_level ? WORTH_MORE_BETWEEN_HOSTS : 1) *
           (fans_in ? WORTH_FANNING_IN : 1);
}

static uint64_t least_tile_of(const struct gyre_simulator *simulator)
{
    return gyre_max_u64(MIN_TILE_BYTES, gyre_simulator_least_tile_bytes(simulator));
}

/* Two GPUs on two hosts, by RDMA. */
static bool is_rdma_pair(const struct gyre_tuner_facts *facts)
{
    return facts->device_kind == GYRE_DEVICE_CUDA && facts->n_ranks == 2 && facts->n_hosts == 2 &&
           !facts->is_tcp;
}

/* About how many messages a call between two ranks sends in one direction. */
static uint64_t count_messages(const struct gyre_search *search, const struct gyre_choice *choice)
{
    return gyre_max_u64(choice->n_channels, gyre_div_round_up(search->n_bytes, choice->tile_bytes));
}

/* The share of the best choice's predicted time that another choice must stay below to take its
 * place. Predictions do not count what a message costs a NIC. So over verbs each doubling of the
 * messages, by more channels or by smaller tiles, must gain 1/8 more. An all-gather of 256 KiB
 * between two GPUs and a stand-in NIC took 336 us in 16 channels, for which 10 % less than for one
 * was predicted, and takes 90 now; an all-to-all of as many bytes took 89 us in one channel and 85
 * in two; a broadcast of 1 MiB in 8 messages of 128 KiB took 173 us, one of 4 MiB in 8 of 512 KiB
 * 201 (2 H100, 2026-11). Nothing else was measured, so the rule is for two GPUs. */
static double share_to_beat(const struct gyre_search *search, const struct gyre_choice *best,
                            const struct gyre_choice *choice)
{
    double share = WORTH;
    if (!is_rdma_pair(search->facts) || best->tile_bytes == 0)
        return share;
    for (uint64_t n = count_messages(search, best); n < count_messages(search, choice); n *= 2)
        share -= WORTH / 8;
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
    const uint64_t least_bytes = gyre_max_u64(
        least_tile_of(simulator), is_rdma_pair(search->facts) ? LEAST_RDMA_TILE_BYTES : 0);
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
    if (!isfinite(*best_ns) || search->facts->n_hosts < 2 || is_rdma_pair(search->facts) ||
        choice.tile_bytes < least_tile_of(simulator))
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_search_run(search->facts, simulator, &choice, simulation, &time_ns));
    if (time_ns < *best_ns) {
        *best = choice;
        *best_ns = time_ns;
    }
    return GYRE_SUCCESS;
}

/* The channels that the links between hosts need at least, for reasons that predictions do not
 * know. */
static uint64_t channels_of_link(const struct gyre_search *search, enum gyre_proto net_proto)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const uint64_t n_bytes = gyre_tuner_all_bytes(facts, search->coll, search->n_bytes);
    if (is_rdma_pair(facts))
        return gyre_min_u64(search->n_bytes / RDMA_CHANNEL_BYTES, MOST_RDMA_CHANNELS);
    if (!facts->is_tcp || facts->device_kind != GYRE_DEVICE_CUDA)
        return 1;
    return gyre_min_u64(net_proto == GYRE_PROTO_SIMPLE
                            ? n_bytes / TCP_CHANNEL_BYTES
                            : gyre_div_round_up(search->n_bytes, TCP_LINE_CHANNEL_BYTES),
                        MOST_TCP_CHANNELS);
}

/* The least number of channels to try. With many ranks only multiples of the unit are tried,
 * because they are simulated fast. */
static uint32_t least_channels_of(const struct gyre_search *search, enum gyre_proto net_proto,
                                  uint32_t unit, uint32_t most_channels)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const bool is_large = facts->n_ranks > GYRE_SEARCH_MOST_ALL_PAIRS;
    uint64_t least =
        gyre_max_u64(gyre_max_u64(facts->min_channels, 1), channels_of_link(search, net_proto));
    while (is_large &&
           gyre_tuner_all_bytes(facts, search->coll, search->n_bytes) / least > MOST_CHANNEL_BYTES)
        least *= 2;
    const uint64_t rounded = gyre_round_up(least, unit);
    return (uint32_t)gyre_min_u64(is_large && rounded <= most_channels ? rounded : least,
                                  most_channels);
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
    choice.tile_bytes = gyre_tuner_tile_in_time(
        facts, gyre_search_largest_tile(search, algorithm, proto, net_proto),
        (uint32_t)least_tile_of(simulator));
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
