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

/* The simulator divides a NIC evenly between the hosts that send to it. TCP does not: two hosts
 * send to one NIC for a while, and a NIC to which they should send stands idle. If each block
 * travels along a tree of its own (fans_in), all hosts wait for each other in every tile, so this
 * time is lost. In a ring, or between two hosts, one host sends to each NIC. So over TCP between
 * more hosts a tree's predicted time counts as longer by this factor. A reduce-scatter of 8 MiB on
 * 4 hosts took 1.01 times the bound by two_level_ring and 1.25 to 1.45 times by two_level_tree, an
 * all-gather 1.01 and 1.05 to 1.09 (tests/lab/rails.py, links of 100 Mbit/s, 2026-11). */
#define WORTH_FANNING_IN     1.1

#define MOST_ALL_PAIRS_RANKS 64

/* On several hosts a line protocol inside the hosts is tried for calls of up to so many bytes. It
 * saves latency, and larger calls depend on rates, where SIMPLE is at least as good. Predictions
 * for many ranks take long, so none is made without need. */
#define MOST_MIXED_BYTES ((uint64_t)(4 << 20))

/* Over TCP a FIFO's slots go through one connection, which one thread copies, and one thread block
 * writes or reads them in host memory. Predictions only know the network, which few channels fill.
 * So calls of GPUs have a channel for so many bytes at least: an all-reduce of 16 MiB in 4 channels
 * moves 3.9 GB/s, one of 4 MiB in 32 channels 5.6 (2 H100, loopback, 8 connections, 2026-11). */
#define TCP_CHANNEL_BYTES ((uint64_t)(128 << 10))
#define MOST_TCP_CHANNELS 16

/* With many ranks, as many channels are tried at least that none moves more bytes. One worker takes
 * 5.5 ms to send so many (24.4 GB/s, cost_text.c), and 8 channels send 1 GiB in 3 ms. Each number
 * of channels that is not tried saves seconds with thousands of ranks. */
#define MOST_CHANNEL_BYTES ((uint64_t)128 << 20)

/* With many ranks a flat algorithm is not tried if a tile of it has more steps than this and a
 * two-level algorithm can run the call. If hosts differ in size no host stands for others, and to
 * simulate the rings of 127 ranks on 16 hosts took 20 seconds, and all others 1.4. */
#define MOST_FLAT_STEPS 100000

/* The least tile that is tried. Each tile that is tried has a quarter of the bytes of the previous
 * one. */
#define MIN_TILE_BYTES 4096

/* Find or open the simulator of an algorithm. The caller closes it with close_simulator(). */
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

/* Simulate a choice. @simulation: cost, n_bytes and limit_ns are set. */
static gyre_status run(const struct gyre_tuner_facts *facts, struct gyre_simulator *simulator,
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
    const gyre_status status = run(facts, simulator, choice, simulation, time_ns_out);
    close_simulator(facts, simulator);
    return status;
}

/* A search, with the best choice that was found so far. */
struct search {
    const struct gyre_tuner_facts *facts;
    enum gyre_collective coll;
    uint64_t n_bytes;
    struct gyre_choice choice;
    double weighed_ns; /* of choice; INFINITY as long as there is none */
};

static double weight_of(const struct search *search, const struct gyre_algorithm *algorithm)
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
                                                           weight_of(search, choice.algorithm)};
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
    } while (choice.tile_bytes >= least_tile_of(simulator));
    return GYRE_SUCCESS;
}

/* Try a tile that is a quarter shorter than the best one. On many hosts it lets more slots be on
 * their way between two hosts. It counts whatever it gains, because the programs stay the same. */
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
        choice.tile_bytes < least_tile_of(simulator))
        return GYRE_SUCCESS;
    GYRE_TRY(run(search->facts, simulator, &choice, simulation, &time_ns));
    if (time_ns < *best_ns) {
        *best = choice;
        *best_ns = time_ns;
    }
    return GYRE_SUCCESS;
}

/* The least number of channels to try. With many ranks only multiples of the unit are tried,
 * because they are simulated fast. */
static uint32_t least_channels_of(const struct search *search, uint32_t unit,
                                  uint32_t most_channels)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const bool is_gpu_tcp = facts->is_tcp && facts->device_kind == GYRE_DEVICE_CUDA;
    const uint64_t of_tcp =
        gyre_min_u64(gyre_tuner_all_bytes(facts, search->coll, search->n_bytes) / TCP_CHANNEL_BYTES,
                     MOST_TCP_CHANNELS);
    const bool is_large = facts->n_ranks > MOST_ALL_PAIRS_RANKS;
    uint64_t least = gyre_max_u64(facts->min_channels, is_gpu_tcp ? of_tcp : 1);
    while (is_large &&
           gyre_tuner_all_bytes(facts, search->coll, search->n_bytes) / least > MOST_CHANNEL_BYTES)
        least *= 2;
    const uint64_t rounded = gyre_round_up(least, unit);
    return (uint32_t)gyre_min_u64(is_large && rounded <= most_channels ? rounded : least,
                                  most_channels);
}

/* The bytes of the largest tile that fits all slots of a call. */
static uint32_t largest_tile(const struct search *search, const struct gyre_algorithm *algorithm,
                             enum gyre_proto proto, enum gyre_proto net_proto)
{
    return gyre_min_u32(
        gyre_tuner_payload_bytes(search->facts, algorithm, search->coll, proto, false) / 16 * 16,
        gyre_tuner_net_payload_bytes(search->facts, net_proto));
}

/* The time that a number of channels must stay below to take the place of the best choice. Over
 * verbs each channel sends messages of its own, and predictions do not count what a message costs a
 * NIC. So there twice as many channels must save 1/16 of the time. Between two GPUs and a stand-in
 * NIC, which takes 8 us for each message, an all-gather of 256 KiB takes 336 us in 16 channels. An
 * all-to-all, which moves as much, takes 85 in 2 channels, for which 5 % more are predicted (2
 * H100, 2026-11). Nothing else was measured, so the rule is for two GPUs. */
static double time_to_beat(const struct gyre_tuner_facts *facts, const struct gyre_choice *best,
                           double best_ns, uint32_t n_channels)
{
    const bool is_gpu_pair =
        facts->device_kind == GYRE_DEVICE_CUDA && facts->n_ranks == 2 && facts->n_hosts == 2;
    double wanted_ns = best_ns;
    for (uint32_t n = best->n_channels; is_gpu_pair && !facts->is_tcp && n < n_channels; n *= 2)
        wanted_ns -= best_ns / 16;
    return wanted_ns;
}

/* Try the tiles of a number of channels. */
static gyre_status search_channels(const struct search *search, struct gyre_simulator *simulator,
                                   struct gyre_choice choice, struct gyre_choice *best,
                                   double *best_ns)
{
    const double wanted_ns = isfinite(*best_ns)
                                 ? time_to_beat(search->facts, best, *best_ns, choice.n_channels)
                                 : *best_ns;
    struct gyre_choice found = *best;
    double found_ns = wanted_ns;
    if (wanted_ns <= 0)
        return GYRE_SUCCESS;
    GYRE_TRY(search_tiles(search, simulator, choice, &found, &found_ns));
    if (found_ns < wanted_ns) {
        *best = found;
        *best_ns = found_ns;
    }
    return GYRE_SUCCESS;
}

/* Try channels and tiles of one algorithm and its protocols, beginning with few channels. */
static gyre_status search_protos(struct search *search, struct gyre_simulator *simulator,
                                 const struct gyre_algorithm *algorithm, enum gyre_proto proto,
                                 enum gyre_proto net_proto)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const uint32_t most_channels = (uint32_t)gyre_min_u64(
        facts->max_channels,
        gyre_tuner_fifos(facts, algorithm, search->coll).n_fifos / gyre_simulator_lanes(simulator));
    const uint32_t least_channels =
        least_channels_of(search, gyre_simulator_channel_unit(simulator), most_channels);
    struct gyre_choice choice = {.algorithm = algorithm,
                                 .proto = proto,
                                 .net_proto = net_proto,
                                 .n_channels = least_channels,
                                 .path = GYRE_PATH_STAGED};
    struct gyre_choice best = choice;
    double best_ns = INFINITY;
    choice.tile_bytes =
        gyre_tuner_tile_in_time(facts, largest_tile(search, algorithm, proto, net_proto),
                                (uint32_t)least_tile_of(simulator));
    for (; choice.n_channels <= most_channels; choice.n_channels *= 2)
        GYRE_TRY(search_channels(search, simulator, choice, &best, &best_ns));
    GYRE_TRY(refine_tile(search, simulator, &best, &best_ns));
    const double weighed_ns = best_ns * weight_of(search, algorithm);
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

/* Is a prediction of the protocol needed? It is if there is no other one to compare it with. */
static bool is_worth_trying(const struct search *search, const struct gyre_filter *filter,
                            enum gyre_proto proto)
{
    const bool is_mixed = search->facts->is_proxied && proto != GYRE_PROTO_SIMPLE;
    const bool has_simple = (filter->protos[search->coll] >> GYRE_PROTO_SIMPLE & 1U) != 0;
    return !is_mixed || !has_simple ||
           gyre_tuner_all_bytes(search->facts, search->coll, search->n_bytes) <= MOST_MIXED_BYTES;
}

/* As is_worth_trying(), for links that a proxy serves. Lines are used there only if the filter
 * excludes SIMPLE: on the host device they are not faster (docs/lab_notes.md), and on GPUs
 * nothing was measured. */
static bool is_net_worth_trying(const struct search *search, const struct gyre_filter *filter,
                                enum gyre_proto proto)
{
    const uint32_t allowed = filter->net_protos[search->coll];
    if (!search->facts->is_proxied || (allowed >> GYRE_PROTO_SIMPLE & 1U) != 0)
        return proto == GYRE_PROTO_SIMPLE;
    return (allowed >> proto & 1U) != 0 &&
           gyre_tuner_net_proto_obstacle(search->facts, proto) == NULL;
}

/* Try a protocol of links without a proxy with every protocol of the others. */
static gyre_status search_net_protos(struct search *search, const struct gyre_filter *filter,
                                     struct gyre_simulator *simulator,
                                     const struct gyre_algorithm *algorithm, enum gyre_proto proto)
{
    for (int i = 0; i < GYRE_N_PROTOS; i++) {
        const enum gyre_proto net_proto = (enum gyre_proto)i;
        if (is_net_worth_trying(search, filter, net_proto) &&
            gyre_tuner_go_together(search->facts, proto, net_proto) &&
            gyre_simulator_least_tile_bytes(simulator) <=
                largest_tile(search, algorithm, proto, net_proto))
            GYRE_TRY(search_protos(search, simulator, algorithm, proto, net_proto));
    }
    return GYRE_SUCCESS;
}

static bool has_many_ranks(const struct gyre_tuner_facts *facts)
{
    return facts->n_hosts > 1 && facts->n_ranks > MOST_ALL_PAIRS_RANKS;
}

/* Would it take too long to simulate the algorithm, compared with what it can gain? */
static gyre_status is_too_long(const struct search *search, const struct gyre_simulator *simulator,
                               const struct gyre_algorithm *algorithm, bool *is_too_long_out)
{
    const struct gyre_simulation one_tile = {.cost = search->facts->cost,
                                             .n_channels = 1,
                                             .tile_bytes =
                                                 gyre_simulator_least_tile_bytes(simulator),
                                             .depth = search->facts->spec.depth,
                                             .n_bytes = 1};
    uint64_t n_steps = 0;
    *is_too_long_out = false;
    if (algorithm->is_two_level || !has_many_ranks(search->facts) || !isfinite(search->weighed_ns))
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_simulator_steps(simulator, &one_tile, &n_steps));
    *is_too_long_out = n_steps > MOST_FLAT_STEPS;
    return GYRE_SUCCESS;
}

static gyre_status search_algorithm(struct search *search, const struct gyre_filter *filter,
                                    enum gyre_collective coll,
                                    const struct gyre_algorithm *algorithm)
{
    const struct gyre_tuner_facts *facts = search->facts;
    struct gyre_simulator *simulator;
    bool too_long;
    GYRE_TRY(open_simulator(facts, algorithm, coll, &simulator));
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
    close_simulator(facts, simulator);
    return status;
}

/* Does the call go by `direct` without a prediction? Two ranks on two hosts send as many bytes by
 * `direct` as by any other algorithm, and in one hop. It has one worker, and its slots are long.
 * An all-reduce of 16 MiB takes 2347 us, by two_level_tree in 8 or 32 channels 4153 or 4502 (2
 * H100, TCP on loopback, 2026-11). One of 64 KiB by two_level_log, whose slots of 4 KiB make 16
 * messages of it, took 362 us over a stand-in NIC, where an all-to-all of as many bytes took 45. */
static bool prefers_direct(const struct gyre_tuner_facts *facts, const struct gyre_filter *filter,
                           enum gyre_collective coll)
{
    return facts->device_kind == GYRE_DEVICE_CUDA && facts->n_ranks == 2 && facts->n_hosts == 2 &&
           (coll == GYRE_COLL_ALL_REDUCE || coll == GYRE_COLL_ALL_GATHER ||
            coll == GYRE_COLL_REDUCE_SCATTER) &&
           gyre_filter_allows(filter, coll, &gyre_algorithm_direct);
}

static bool is_worth_simulating(const struct search *search, const struct gyre_filter *filter,
                                const struct gyre_algorithm *algorithm)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const enum gyre_collective coll = search->coll;
    const bool is_forced = filter->is_forced[coll];
    if (!gyre_algorithm_suits(algorithm, coll, is_forced ? UINT32_MAX : facts->n_hosts) ||
        gyre_tuner_algorithm_obstacle(facts, algorithm, coll) != NULL ||
        (is_hopeless(facts, algorithm, coll) && !is_forced))
        return false;
    return algorithm == &gyre_algorithm_direct || !prefers_direct(facts, filter, coll);
}

/* Try the two-level algorithms, or the others; with few ranks, all at once. */
static gyre_status search_level(struct search *search, const struct gyre_filter *filter,
                                bool is_two_level)
{
    const bool has_two_passes = has_many_ranks(search->facts);
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
    struct search search = {
        .facts = facts, .coll = coll, .n_bytes = n_bytes, .weighed_ns = INFINITY};
    /* Simulations end as soon as they take longer than the best one so far. So with many ranks
     * two-level algorithms come first, which are simulated faster. */
    if (has_many_ranks(facts))
        GYRE_TRY(search_level(&search, filter, true));
    GYRE_TRY(search_level(&search, filter, false));
    *choice_out = search.choice;
    return GYRE_SUCCESS;
}
