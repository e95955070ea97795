/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses algorithm and protocols by prediction: of those that are allowed and worth a simulation
 * it takes the fastest. Pure, as tuner.c.
 */
#include "core/plan/tuner/tuner_search.h"

#include <math.h>

/* On several hosts a line protocol inside the hosts is tried for calls of up to so many bytes. It
 * saves latency, and larger calls depend on rates, where SIMPLE is at least as good. Predictions
 * for many ranks take long, so none is made without need. */
#define MOST_MIXED_BYTES ((uint64_t)(4 << 20))

/* With many ranks a flat algorithm is not tried if a tile of it has more steps than this and a
 * two-level algorithm can run the call. If hosts differ in size no host stands for others, and to
 * simulate the rings of 127 ranks on 16 hosts took 20 seconds, and all others 1.4. */
#define MOST_FLAT_STEPS 100000

/* Is the algorithm certain to be slow, so that it need not be simulated? If many ranks on several
 * hosts all send to each other, the call takes the longest and so does its simulation. An
 * all-to-all consists of such messages, so no algorithm for it can be compared with `direct` there,
 * and `direct` is taken. */
static bool is_hopeless(const struct gyre_tuner_facts *facts,
                        const struct gyre_algorithm *algorithm, enum gyre_collective coll)
{
    const bool is_all_pairs = algorithm->is_one_shot || coll == GYRE_COLL_ALL_TO_ALL ||
                              (algorithm->cuts_vector >> coll & 1U) != 0;
    return is_all_pairs && facts->n_hosts > 1 && facts->n_ranks > GYRE_SEARCH_MOST_ALL_PAIRS;
}

/* Is a prediction of the protocol needed? It is if there is no other one to compare it with. */
static bool is_worth_trying(const struct gyre_search *search, const struct gyre_filter *filter,
                            enum gyre_proto proto)
{
    const bool is_mixed = search->facts->is_proxied && proto != GYRE_PROTO_SIMPLE;
    const bool has_simple = (filter->protos[search->coll] >> GYRE_PROTO_SIMPLE & 1U) != 0;
    return !is_mixed || !has_simple ||
           gyre_tuner_all_bytes(search->facts, search->coll, search->n_bytes) <= MOST_MIXED_BYTES;
}

/* Lines over TCP are tried on GPUs for calls of up to so many bytes; fewer where data go one way.
 * Larger calls depend on rates, and a proxy handles each word of a line. By lines and by SIMPLE, in
 * us: all-gather of 1 KiB 19.3 and 23.7, of 4 KiB 24.6 and 27.9, of 16 KiB 33.3 and 26.5; broadcast
 * of 1 KiB 8.3 and 10.8, of 2 KiB 12.0 and 10.8, of 16 KiB 18.2 and 12.7 (2 H100, 2026-11). */
#define MOST_TCP_LINES_BYTES   ((uint64_t)(4 << 10))
#define MOST_TCP_ONE_WAY_BYTES ((uint64_t)(1 << 10))
/* Likewise over RDMA between two GPUs, but bytes that a rank sends. Over a stand-in NIC, by lines
 * and by SIMPLE, in us: all-gather of 1 KiB 18.6 and 28.0, of 16 KiB 24.9 and 30.1; all-reduce of 1
 * KiB 20.7 and 30.5, of 16 KiB 38.1 and 29.5; gather of 1 KiB 9.5 and 10.4, of 16 KiB 15.7
 * and 10.4; broadcast of 16 KiB 35.7 and 10.5 (2 H100, 2026-11). With more GPUs nothing was
 * measured. */
#define MOST_RDMA_LINES_BYTES   ((uint64_t)(8 << 10))
#define MOST_RDMA_ONE_WAY_BYTES ((uint64_t)(1 << 10))

/* Is the call small enough for GPUs to try lines between hosts? */
static bool is_small_for_lines(const struct gyre_search *search)
{
    const struct gyre_tuner_facts *facts = search->facts;
    const bool is_one_way = gyre_collectives[search->coll].has_root;
    if (!facts->is_tcp)
        return facts->n_ranks == 2 &&
               search->n_bytes <= (is_one_way ? MOST_RDMA_ONE_WAY_BYTES : MOST_RDMA_LINES_BYTES);
    return gyre_tuner_all_bytes(facts, search->coll, search->n_bytes) <=
           (is_one_way ? MOST_TCP_ONE_WAY_BYTES : MOST_TCP_LINES_BYTES);
}

/* As is_worth_trying(), for links that a proxy serves. If the filter allows SIMPLE, lines are tried
 * only on GPUs. On the host device they are not faster (docs/lab_notes.md). */
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
           (facts->device_kind == GYRE_DEVICE_CUDA && is_small_for_lines(search));
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

static bool has_many_ranks(const struct gyre_tuner_facts *facts)
{
    return facts->n_hosts > 1 && facts->n_ranks > GYRE_SEARCH_MOST_ALL_PAIRS;
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
    uint64_t n_steps = 0;
    *is_too_long_out = false;
    if (algorithm->is_two_level || !has_many_ranks(search->facts) || !isfinite(search->weighed_ns))
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_simulator_steps(simulator, &one_tile, &n_steps));
    *is_too_long_out = n_steps > MOST_FLAT_STEPS;
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

static bool is_worth_simulating(const struct gyre_search *search, const struct gyre_filter *filter,
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
static gyre_status search_level(struct gyre_search *search, const struct gyre_filter *filter,
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
    struct gyre_search search = {
        .facts = facts, .coll = coll, .n_bytes = n_bytes, .weighed_ns = INFINITY};
    /* Simulations end as soon as they take longer than the best one so far. So with many ranks
     * two-level algorithms come first, which are simulated faster. */
    if (has_many_ranks(facts))
        GYRE_TRY(search_level(&search, filter, true));
    GYRE_TRY(search_level(&search, filter, false));
    *choice_out = search.choice;
    return GYRE_SUCCESS;
}
