/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator against closed forms. Machines here are mostly one latency and one rate, so that
 * the time of a schedule can be written down.
 */
#include "algorithms/simulate/simulate.h"
#include "tests/support/check.h"
#include "tests/support/shapes.h"

#include <locale.h>
#include <math.h>

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b) + 1e-9;
}

#define HOP_NS       1000.0
#define BYTES_PER_NS 8.0

/* Hops and the outgoing side of each rank, and nothing else. */
static struct gyre_cost plain_cost(double hop_ns, double bytes_per_ns)
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

/* A simulation's input. Zeros stand for one channel, depth 8, and the whole chunk in one tile. */
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

static struct gyre_prediction ask(const struct gyre_cost *cost, const struct question *question)
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

static double time_of(const struct gyre_cost *cost, const struct question *question)
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

/* ---- closed forms ------------------------------------------------------------------------- */

static void a_ring_takes_2n_minus_2_hops_and_moves_2n_minus_2_nths(void)
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    for (unsigned n = 2; n <= 33; n++) {
        const struct question question = {
            .algorithm = &gyre_algorithm_ring, .n_ranks = n, .n_bytes = 4096 * n};
        CHECK_TIME(&cost, &question,
                   2.0 * (n - 1) * (HOP_NS + (double)question.n_bytes / n / BYTES_PER_NS));
    }
}

/* One worker walks the ring for each tile; the tiles follow each other. */
static void the_tiles_of_a_ring_add_up(void)
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    const struct question question = {
        .algorithm = &gyre_algorithm_ring, .n_ranks = 4, .n_bytes = 4 * 96000, .tile_bytes = 16000};
    CHECK_TIME(&cost, &question, 6 * 6 * (HOP_NS + 16000 / BYTES_PER_NS));
}

/* What an observer is told about a ring of four ranks. */
struct told {
    const struct question *question;
    unsigned n_steps;
    unsigned n_wrong;
};

/* Step s of tile t starts after 6 t + s hops, and its slot arrives one hop later. */
static void check_step(void *observer, const struct gyre_simulated_step *step)
{
    struct told *told = observer;
    const double hop_ns = HOP_NS + told->question->tile_bytes / BYTES_PER_NS;
    const double start_ns = (6.0 * (double)step->tile + step->step) * hop_ns;
    const bool is_last = step->step == 6;
    told->n_steps++;
    told->n_wrong += step->rank > 3 || step->worker != 0 || step->variant != 0 ||
                     !is_near(step->start_ns, start_ns) || step->end_ns < step->start_ns ||
                     step->n_sends != (is_last ? 0 : 1) ||
                     (!is_last && !is_near(step->arrived_ns[0], start_ns + hop_ns));
}

static void an_observer_is_told_when_each_step_runs(void)
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    const struct gyre_shape shape = {.n_ranks = 4};
    const struct gyre_machine machine = {0};
    const struct question question = {.tile_bytes = 16000};
    struct told told = {.question = &question};
    const struct gyre_simulation simulation = {.cost = &cost,
                                               .n_channels = 1,
                                               .tile_bytes = 16000,
                                               .depth = 8,
                                               .n_bytes = 4 * 48000,
                                               .all_tiles = true,
                                               .observe = check_step,
                                               .observer = &told};
    struct gyre_prediction prediction;
    struct gyre_simulator *simulator = NULL;
    uint64_t n_steps = 0;
    CHECK_OK(gyre_simulator_open(&gyre_algorithm_ring, &shape, &machine, true, &simulator));
    if (simulator == NULL)
        return;
    CHECK_OK(gyre_simulator_steps(simulator, &simulation, &n_steps));
    CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
    CHECK(told.n_wrong == 0);
    CHECK(told.n_steps == 4 * 7 * 3 && n_steps == 4 * 7 * 3); /* ranks, steps, tiles */
    gyre_simulator_close(simulator);
}

static void all_gather_and_reduce_scatter_are_half_a_ring(void)
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_GATHER, GYRE_COLL_REDUCE_SCATTER};
    for (int i = 0; i < 2; i++)
        for (unsigned n = 2; n <= 9; n++) {
            const struct question question = {
                .algorithm = &gyre_algorithm_ring, .coll = colls[i], .n_ranks = n, .n_bytes = 4096};
            CHECK_TIME(&cost, &question, (n - 1) * (HOP_NS + 4096 / BYTES_PER_NS));
        }
}

/* The first tile passes all links. The other tiles follow it over the last link. */
static void a_chain_is_a_pipeline(void)
{
    const struct gyre_cost cost = plain_cost(100, BYTES_PER_NS);
    for (unsigned n = 2; n <= 17; n += 3)
        for (unsigned n_tiles = 1; n_tiles <= 64; n_tiles *= 4) {
            const struct question question = {.algorithm = &gyre_algorithm_ring,
                                              .coll = GYRE_COLL_BROADCAST,
                                              .n_ranks = n,
                                              .n_bytes = 8000 * n_tiles,
                                              .tile_bytes = 8000,
                                              .all_tiles = true};
            CHECK_TIME(&cost, &question,
                       (n - 1) * 100 + (n - 1 + n_tiles - 1) * 8000 / BYTES_PER_NS);
        }
}

/* With d slots, slot k + d leaves when the credit of slot k is back. */
static void few_slots_on_a_long_link_cost_a_round_trip(void)
{
    struct gyre_cost cost = plain_cost(10000, BYTES_PER_NS);
    cost.credit_ns[GYRE_LINK_HOST] = 7000;
    const double send_ns = 8000 / BYTES_PER_NS;
    for (uint32_t depth = 1; depth <= 4; depth++) {
        const uint32_t n_tiles = 6 * depth;
        const struct question question = {.algorithm = &gyre_algorithm_ring,
                                          .coll = GYRE_COLL_BROADCAST,
                                          .n_ranks = 2,
                                          .n_bytes = 8000 * n_tiles,
                                          .tile_bytes = 8000,
                                          .depth = depth,
                                          .all_tiles = true};
        const double round_ns = send_ns + 10000 + 7000;
        CHECK_TIME(&cost, &question, 5 * round_ns + depth * send_ns + 10000);
    }
}

static void a_tree_is_as_deep_as_the_logarithm(void)
{
    const struct gyre_cost cost = plain_cost(HOP_NS, 0);
    unsigned height = 1;
    for (unsigned n = 2; n <= GYRE_MAX_RANKS; n *= 2, height++) {
        struct question question = {
            .algorithm = &gyre_algorithm_tree, .n_ranks = n, .n_bytes = 1024};
        CHECK_TIME(&cost, &question, 2 * height * HOP_NS);
        if (n < 4)
            continue;
        question.n_ranks = n - 1; /* full: one level less */
        CHECK_TIME(&cost, &question, 2 * (height - 1) * HOP_NS);
    }
}

static void one_shot_is_one_hop_and_n_minus_1_vectors(void)
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    for (unsigned n = 2; n <= 40; n++) {
        const struct question question = {
            .algorithm = &gyre_algorithm_direct, .n_ranks = n, .n_bytes = 4096};
        CHECK_TIME(&cost, &question, HOP_NS + (n - 1) * 4096 / BYTES_PER_NS);
    }
}

static void two_shot_is_two_hops_and_2n_minus_2_nths(void)
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    for (unsigned n = 2; n <= 9; n++) {
        const struct question question = {
            .algorithm = &gyre_algorithm_twoshot, .n_ranks = n, .n_bytes = 4096 * n};
        CHECK_TIME(&cost, &question, 2 * (HOP_NS + (n - 1) * 4096 / BYTES_PER_NS));
    }
}

/* A step of k chunks moves k tiles: in all, the bytes of the formula, in log2(n) hops. */
static void log_steps_are_few_hops_and_few_bytes(void)
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    for (unsigned log2_n = 1; log2_n <= 6; log2_n++) {
        const unsigned n = 1U << log2_n;
        const uint64_t block_bytes = 64 * 1024;
        const double hops_ns = log2_n * HOP_NS, all_ns = (double)(n * block_bytes) / BYTES_PER_NS;
        const double part = (double)(n - 1) / n;
        for (int folds = 0; folds < 2; folds++) {
            struct question question = {.n_ranks = n, .all_ranks = folds == 0};
            question.coll = GYRE_COLL_ALL_REDUCE;
            question.n_bytes = n * block_bytes;
            question.algorithm = &gyre_algorithm_doubling;
            CHECK_TIME(&cost, &question, hops_ns + log2_n * all_ns);
            question.algorithm = &gyre_algorithm_halving;
            CHECK_TIME(&cost, &question, 2 * (hops_ns + part * all_ns));
            question.algorithm = &gyre_algorithm_pat;
            CHECK_TIME(&cost, &question, 2 * (hops_ns + part * all_ns));
            question.n_bytes = block_bytes;
            question.coll = GYRE_COLL_REDUCE_SCATTER;
            CHECK_TIME(&cost, &question, hops_ns + part * all_ns);
            question.coll = GYRE_COLL_ALL_GATHER;
            CHECK_TIME(&cost, &question, hops_ns + part * all_ns);
            question.algorithm = &gyre_algorithm_bruck;
            CHECK_TIME(&cost, &question, hops_ns + part * all_ns);
            question.coll = GYRE_COLL_ALL_TO_ALL;
            CHECK_TIME(&cost, &question, log2_n * (HOP_NS + all_ns / 2));
            /* A worker begins a tile when it has ended the one before: hops add up. */
            question.tile_bytes = n / 2 * (uint32_t)block_bytes / 4;
            CHECK_TIME(&cost, &question, log2_n * (4 * HOP_NS + all_ns / 2));
            question.coll = GYRE_COLL_ALL_GATHER;
            CHECK_TIME(&cost, &question, 4 * hops_ns + part * all_ns);
        }
    }
}

/* The longest range has to fit a slot, with 16 bytes of each chunk. */
static void a_slot_that_is_too_small_for_a_range_is_refused(void)
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_GATHER, .n_ranks = 16};
    const struct gyre_machine machine = {0};
    struct gyre_simulation simulation = {
        .cost = &cost, .n_channels = 1, .tile_bytes = 127, .depth = 1, .n_bytes = 1000};
    struct gyre_prediction prediction;
    struct gyre_simulator *simulator = NULL;
    CHECK_OK(gyre_simulator_open(&gyre_algorithm_bruck, &shape, &machine, false, &simulator));
    if (simulator == NULL)
        return;
    CHECK(gyre_simulator_least_tile_bytes(simulator) == 8 * 16);
    CHECK_FAILS(gyre_simulator_run(simulator, &simulation, &prediction),
                GYRE_ERROR_INVALID_ARGUMENT, "slots of 127 bytes are too small, 128");
    simulation.tile_bytes = 128;
    CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
    gyre_simulator_close(simulator);
}

static void a_step_costs_itself_its_copies_and_its_sends(void)
{
    struct gyre_cost cost = plain_cost(HOP_NS, 0);
    cost.launch_ns = 4000;
    cost.worker_launch_ns = 1000;
    cost.step_ns[GYRE_PROTO_SIMPLE] = 300;
    cost.worker_copy_bytes_per_ns = 4;
    cost.worker_send_bytes_per_ns[GYRE_LINK_HOST] = 2;
    const struct question question = {.algorithm = &gyre_algorithm_sendrecv,
                                      .coll = GYRE_COLL_SEND_RECV,
                                      .n_ranks = 2,
                                      .n_bytes = 4096};
    /* The sender reads and sends, the receiver reads the slot and writes OUT. */
    const double sender_ns = 300 + 4096 / 4.0 + 4096 / 2.0;
    const double receiver_ns = 300 + 2 * 4096 / 4.0;
    CHECK_TIME(&cost, &question, 5000 + sender_ns + HOP_NS + receiver_ns);
}

/* Placed data are not copied out of slots. Data that are passed on have to be read. */
static void placed_slots_are_not_copied(void)
{
    struct gyre_cost cost = plain_cost(HOP_NS, 0);
    cost.worker_copy_bytes_per_ns = 4;
    for (unsigned n = 2; n <= 5; n++) {
        struct question question = {.algorithm = &gyre_algorithm_ring,
                                    .coll = GYRE_COLL_ALL_GATHER,
                                    .n_ranks = n,
                                    .n_bytes = 4096};
        CHECK_TIME(&cost, &question, (n - 1) * HOP_NS + n * 2 * 4096 / 4.0);
        question.is_placed = true;
        CHECK_TIME(&cost, &question, (n - 1) * HOP_NS + (2 + (n - 2)) * 4096 / 4.0);
    }
}

static void a_rank_on_its_own_copies(void)
{
    struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    cost.worker_copy_bytes_per_ns = 4;
    const struct question question = {
        .algorithm = &gyre_algorithm_ring, .n_ranks = 1, .n_bytes = 4096};
    CHECK_TIME(&cost, &question, 2 * 4096 / 4.0);
}

/* ---- shared links ----------------------------------------------------------------------- */

static struct gyre_grouping even_hosts(unsigned n_hosts, unsigned n_of_host)
{
    struct gyre_grouping grouping = {.n_hosts = (uint16_t)n_hosts};
    for (unsigned rank = 0; rank < n_hosts * n_of_host; rank++)
        grouping.host_of[rank] = (uint16_t)(rank / n_of_host);
    return grouping;
}

static void the_ranks_of_a_host_share_its_nic(void)
{
    struct gyre_cost cost = plain_cost(HOP_NS, 0);
    cost.nic_bytes_per_ns = BYTES_PER_NS;
    cost.nic_message_ns = 250;
    for (unsigned n_of_host = 1; n_of_host <= 5; n_of_host++) {
        struct gyre_grouping grouping = even_hosts(2, n_of_host);
        grouping.n_nics = 1;
        const struct question question = {.algorithm = &gyre_algorithm_direct,
                                          .n_ranks = 2 * n_of_host,
                                          .n_bytes = 65536,
                                          .grouping = &grouping};
        /* Each rank's vector goes to each rank of the other host. */
        CHECK_TIME(&cost, &question, HOP_NS + n_of_host * n_of_host * (250 + 65536 / BYTES_PER_NS));
    }
}

/* Sockets between the ranks of one host, say. */
static void one_host_can_be_all_network(void)
{
    struct gyre_cost cost = plain_cost(HOP_NS, 0);
    cost.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_NETWORK] = 3 * HOP_NS;
    cost.nic_bytes_per_ns = BYTES_PER_NS;
    for (unsigned n = 2; n <= 6; n++) {
        const struct question question = {.algorithm = &gyre_algorithm_ring,
                                          .n_ranks = n,
                                          .n_bytes = 4096 * n,
                                          .is_all_network = true};
        CHECK_TIME(&cost, &question, 2.0 * (n - 1) * (3 * HOP_NS + n * 4096 / BYTES_PER_NS));
    }
}

static void more_ranks_than_cores_take_turns(void)
{
    struct gyre_cost cost = plain_cost(0, 0);
    cost.step_ns[GYRE_PROTO_SIMPLE] = 1000;
    const struct question question = {
        .algorithm = &gyre_algorithm_direct, .n_ranks = 4, .n_bytes = 64};
    /* A rank sends in one step and sums in one. */
    CHECK_TIME(&cost, &question, 2000);
    cost.cores_per_host = 2;
    CHECK_TIME(&cost, &question, 2 * 2000);
    cost.cores_per_host = 16;
    CHECK_TIME(&cost, &question, 2000);
}

static void channels_share_what_a_rank_has_once(void)
{
    struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    struct question question = {
        .algorithm = &gyre_algorithm_ring, .n_ranks = 4, .n_bytes = 1 << 20, .n_channels = 4};
    CHECK_TIME(&cost, &question, 6 * (HOP_NS + (1 << 18) / BYTES_PER_NS)); /* one egress */
    cost.egress_bytes_per_ns[GYRE_LINK_HOST] = 0;
    cost.worker_send_bytes_per_ns[GYRE_LINK_HOST] = BYTES_PER_NS;
    CHECK_TIME(&cost, &question, 6 * (HOP_NS + (1 << 16) / BYTES_PER_NS)); /* four workers */
    cost.parallel_workers = 1;
    CHECK_TIME(&cost, &question, 6 * (HOP_NS + (1 << 18) / BYTES_PER_NS));
}

static void the_bottleneck_is_named(void)
{
    struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    struct question question = {
        .algorithm = &gyre_algorithm_direct, .n_ranks = 4, .n_bytes = 1 << 20};
    struct gyre_prediction prediction = ask(&cost, &question);
    CHECK(prediction.bottleneck == GYRE_RESOURCE_EGRESS && prediction.busy_share > 0.99);
    question.n_bytes = 64;
    prediction = ask(&cost, &question);
    CHECK(prediction.bottleneck == GYRE_RESOURCE_LATENCY);
}

/* ---- order and agreement ------------------------------------------------------------------ */

/* All algorithms of all collectives; send_recv has two ranks. */
static void for_all_programs(void (*check)(const struct gyre_cost *cost, struct question question))
{
    struct gyre_cost cost = gyre_cost_host;
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (unsigned n = 2; n <= 9; n++)
                if (gyre_algorithm_suits(gyre_algorithms[a], (enum gyre_collective)coll, 1) &&
                    (coll != GYRE_COLL_SEND_RECV || n == 2)) {
                    struct question question = {.algorithm = gyre_algorithms[a],
                                                .coll = (enum gyre_collective)coll,
                                                .n_ranks = n,
                                                .tile_bytes = 32768,
                                                .depth = 4};
                    check(&cost, question);
                    check(&gyre_cost_h200, question);
                }
}

static void check_more_bytes(const struct gyre_cost *cost, struct question question)
{
    double before_ns = 0;
    for (question.n_bytes = 16; question.n_bytes <= 8 << 20; question.n_bytes *= 4) {
        const double now_ns = time_of(cost, &question);
        CHECK_MSG(now_ns >= before_ns * (1 - 1e-9),
                  "%s %s, %u ranks: %llu bytes take %g ns after %g", question.algorithm->name,
                  gyre_collectives[question.coll].name, question.n_ranks,
                  (unsigned long long)question.n_bytes, now_ns, before_ns);
        before_ns = now_ns;
    }
}

static void more_bytes_never_take_less(void)
{
    for_all_programs(check_more_bytes);
}

/* Each constant by itself, made worse by half. */
static void check_worse_machine(const struct gyre_cost *cost, struct question question)
{
    question.n_bytes = 300000;
    const double before_ns = time_of(cost, &question);
    for (size_t i = 0; i < sizeof(*cost) / sizeof(double); i++) {
        struct gyre_cost worse = *cost;
        double *constant = (double *)&worse + i;
        const double *efficiency = worse.wire_efficiency;
        const bool is_time =
            constant < efficiency ||
            /* launch, step, hop */ constant == &worse.nic_message_ns ||
            (constant >= worse.credit_ns && constant < worse.credit_ns + GYRE_N_LINKS);
        *constant = is_time ? *constant * 1.5 : *constant / 1.5;
        const double now_ns = time_of(&worse, &question);
        CHECK_MSG(now_ns >= before_ns * (1 - 1e-9),
                  "%s %s, %u ranks: constant %zu made worse gives %g ns after %g",
                  question.algorithm->name, gyre_collectives[question.coll].name, question.n_ranks,
                  i, now_ns, before_ns);
    }
}

static void a_worse_machine_is_never_faster(void)
{
    for_all_programs(check_worse_machine);
}

static void more_ranks_never_take_less(void)
{
    static const struct gyre_algorithm *const algorithms[] = {
        &gyre_algorithm_ring, &gyre_algorithm_direct, &gyre_algorithm_twoshot};
    for (int a = 0; a < 3; a++) {
        double before_ns = 0;
        for (unsigned n = 1; n <= 64; n *= 2) {
            const struct question question = {
                .algorithm = algorithms[a], .n_ranks = n, .n_bytes = 1 << 20, .tile_bytes = 65536};
            const double now_ns = time_of(&gyre_cost_h200, &question);
            CHECK_MSG(now_ns >= before_ns, "%s, %u ranks: %g ns after %g", algorithms[a]->name, n,
                      now_ns, before_ns);
            before_ns = now_ns;
        }
    }
}

static void check_folding(const struct gyre_cost *cost, struct question question)
{
    question.n_bytes = 96 * 1024 * question.n_ranks; /* all chunks alike */
    const double folded_ns = time_of(cost, &question);
    question.all_ranks = true;
    const double all_ns = time_of(cost, &question);
    /* Spread's ranks of a host finish their sums one after another, and where several hosts send to
     * a NIC at the same moment the lower number is first, which turning the hosts changes. In
     * reduce-scatter two workers of each rank of a host send at the same moments. */
    const bool has_ties =
        question.grouping != NULL &&
        (question.algorithm == &gyre_algorithm_spread ||
         (question.algorithm->is_two_level && question.coll == GYRE_COLL_REDUCE_SCATTER));
    CHECK_MSG(has_ties ? fabs(folded_ns / all_ns - 1) < 0.025 : is_near(folded_ns, all_ns),
              "%s %s, %u ranks: %.17g ns folded, %.17g not", question.algorithm->name,
              gyre_collectives[question.coll].name, question.n_ranks, folded_ns, all_ns);
}

static void one_rank_may_stand_for_all(void)
{
    for_all_programs(check_folding);
    const struct gyre_grouping grouping = even_hosts(4, 3);
    for (int a = 0; gyre_algorithms[a] != NULL; a++) {
        struct question question = {
            .algorithm = gyre_algorithms[a], .n_ranks = 12, .grouping = &grouping};
        if (gyre_algorithm_suits(question.algorithm, GYRE_COLL_ALL_REDUCE, 4))
            check_folding(&gyre_cost_h200, question);
    }
}

/* Where every variant has as many channels, one rail stands for all: also on hosts that are all
 * different, with NICs of their own and with shared ones. */
static void one_rail_may_stand_for_all(void)
{
    static const unsigned shapes[][3] = {{4, 3, 0}, {4, 4, 2}, {5, 4, 2}, {7, 2, 0}, {6, 4, 1}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct gyre_grouping grouping = even_hosts(shapes[i][0], shapes[i][1]);
        grouping.n_nics = (uint16_t)shapes[i][2];
        for (int a = 0; gyre_algorithms[a] != NULL; a++)
            for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
                struct question question = {.algorithm = gyre_algorithms[a],
                                            .coll = (enum gyre_collective)coll,
                                            .n_ranks = shapes[i][0] * shapes[i][1],
                                            .n_channels = 12,
                                            .grouping = &grouping};
                if ((gyre_algorithms[a]->keeps_near >> coll & 1U) != 0)
                    check_folding(&gyre_cost_h200, question);
            }
    }
}

/* Ranks that exchange data with all others receive in different orders, which is ignored above 64
 * ranks. The predicted time must stay within 3 % of that of a simulation of all ranks. */
static void one_host_may_stand_for_all_pairs(void)
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_REDUCE_SCATTER};
    static const struct gyre_algorithm *const algorithms[] = {&gyre_algorithm_direct,
                                                              &gyre_algorithm_twoshot};
    const struct gyre_grouping grouping = even_hosts(12, 8);
    for (int i = 0; i < 8; i++) {
        struct question question = {.algorithm = algorithms[i % 2],
                                    .coll = colls[i / 2 % 2],
                                    .n_ranks = 96,
                                    .n_bytes = 96 * 1024,
                                    .tile_bytes = 4096,
                                    .n_channels = 2,
                                    .grouping = i < 4 ? &grouping : NULL};
        if (!gyre_algorithm_has(question.algorithm, question.coll))
            continue;
        const struct gyre_prediction few = ask(&gyre_cost_h200, &question);
        question.all_ranks = true;
        const struct gyre_prediction all = ask(&gyre_cost_h200, &question);
        CHECK(few.n_steps * (i < 4 ? 12 : 96) == all.n_steps);
        CHECK_MSG(fabs(few.time_ns / all.time_ns - 1) < 0.03, "%s %s: %g ns folded, %g not",
                  question.algorithm->name, gyre_collectives[question.coll].name, few.time_ns,
                  all.time_ns);
    }
}

/* 16,384 ranks in the memory and time of 2048. */
static void sixteen_thousand_ranks_are_few_steps(void)
{
    static struct gyre_grouping grouping;
    grouping = even_hosts(2048, 8);
    const struct question question = {.algorithm = &gyre_algorithm_two_level_tree,
                                      .coll = GYRE_COLL_ALL_REDUCE,
                                      .n_ranks = 16384,
                                      .n_bytes = 1024,
                                      .n_channels = 2,
                                      .grouping = &grouping};
    const struct gyre_prediction prediction = ask(&gyre_cost_h200, &question);
    /* a rank of the tree: 7 sends, at most 2 sums and 3 outputs, 7 receptions; of two variants */
    CHECK_MSG(prediction.n_steps <= 2ULL * 2048 * 24, "%llu steps",
              (unsigned long long)prediction.n_steps);
}

static void check_extrapolation(const struct gyre_cost *cost, struct question question)
{
    if (question.n_ranks % 3 != 0)
        return;
    question.n_bytes = 9 << 20;
    question.tile_bytes = 8192;
    const struct gyre_prediction few = ask(cost, &question);
    question.all_tiles = true;
    const struct gyre_prediction all = ask(cost, &question);
    CHECK(!few.is_extrapolated || few.n_steps < all.n_steps);
    CHECK_MSG(fabs(few.time_ns - all.time_ns) <= 0.002 * all.time_ns,
              "%s %s, %u ranks: %g ns extrapolated, %g not", question.algorithm->name,
              gyre_collectives[question.coll].name, question.n_ranks, few.time_ns, all.time_ns);
}

static void few_tiles_tell_of_many(void)
{
    for_all_programs(check_extrapolation);
}

/* Thirteen ranks send eight and four peers at a time: no small number of tiles is a period. */
static void unsteady_tiles_do_not_take_for_ever(void)
{
    const struct question question = {.algorithm = &gyre_algorithm_direct,
                                      .n_ranks = 13,
                                      .n_bytes = 1 << 30,
                                      .tile_bytes = 64,
                                      .n_channels = 21,
                                      .depth = 4};
    const struct gyre_prediction prediction = ask(&gyre_cost_h200, &question);
    CHECK_MSG(prediction.is_extrapolated && prediction.n_steps < 40000000, "%llu steps",
              (unsigned long long)prediction.n_steps);
}

static void the_same_question_has_the_same_answer(void)
{
    const struct question question = {.algorithm = &gyre_algorithm_tree,
                                      .n_ranks = 13,
                                      .n_bytes = 1234567,
                                      .tile_bytes = 4096,
                                      .depth = 3};
    const double first_ns = time_of(&gyre_cost_h200, &question);
    for (int i = 0; i < 3; i++) {
        const double again_ns = time_of(&gyre_cost_h200, &question);
        CHECK(memcmp(&first_ns, &again_ns, sizeof(first_ns)) == 0);
    }
}

/* ---- large machines ----------------------------------------------------------------------- */

static void four_thousand_ranks_are_answered(void)
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    struct question question = {.algorithm = &gyre_algorithm_ring, .n_ranks = 4096};
    question.n_bytes = 4096 * 4096;
    CHECK_TIME(&cost, &question, 2.0 * 4095 * (HOP_NS + 4096 / BYTES_PER_NS));
    CHECK(ask(&cost, &question).n_steps == 2 * 4096 - 1); /* of one rank */
    const struct gyre_grouping grouping = even_hosts(512, 8);
    question.grouping = &grouping;
    CHECK_TIME(&cost, &question, 2.0 * 4095 * (HOP_NS + 4096 / BYTES_PER_NS));
    /* A gigabyte in pieces over the tree: bounded work, however many tiles. */
    question.algorithm = &gyre_algorithm_tree;
    question.n_bytes = 1 << 30;
    question.tile_bytes = 65536;
    const struct gyre_prediction prediction = ask(&gyre_cost_h200, &question);
    CHECK(prediction.is_extrapolated && prediction.n_steps < 10000000);
    /* Each NIC carries the vector out once: B / 49 GB/s of each rank is not even reached. */
    CHECK(prediction.time_ns > (1 << 30) / gyre_cost_h200.nic_bytes_per_ns);
    question.algorithm = &gyre_algorithm_direct;
    question.coll = GYRE_COLL_ALL_GATHER;
    question.n_bytes = 1024;
    question.grouping = NULL;
    CHECK_TIME(&cost, &question, HOP_NS + 4095 * 1024 / BYTES_PER_NS);
}

static void what_is_too_large_is_refused(void)
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_BROADCAST, .n_ranks = 4096};
    const struct gyre_machine machine = {.grouping = NULL};
    struct gyre_simulator *simulator = NULL;
    CHECK_FAILS(gyre_simulator_open(&gyre_algorithm_twoshot, &shape, &machine, false, &simulator),
                GYRE_ERROR_UNSUPPORTED, "too many to simulate");
}

static void a_depth_that_deadlocks_is_refused(void)
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 4};
    const struct gyre_machine machine = {.grouping = NULL};
    struct gyre_simulation simulation = {
        .cost = &gyre_cost_host, .n_channels = 1, .tile_bytes = 1024, .depth = 1, .n_bytes = 65536};
    struct gyre_simulator *simulator = NULL;
    struct gyre_prediction prediction;
    CHECK_OK(gyre_simulator_open(&gyre_algorithm_ring, &shape, &machine, false, &simulator));
    CHECK(gyre_simulator_min_depth(simulator) == 2 && gyre_simulator_lanes(simulator) == 1);
    CHECK_FAILS(gyre_simulator_run(simulator, &simulation, &prediction),
                GYRE_ERROR_INVALID_ARGUMENT, "deadlock");
    simulation.depth = 2;
    CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
    simulation.depth = 0;
    CHECK_FAILS(gyre_simulator_run(simulator, &simulation, &prediction),
                GYRE_ERROR_INVALID_ARGUMENT, "0 slots");
    gyre_simulator_close(simulator);
}

/* ---- constants as text -------------------------------------------------------------------- */

static void costs_come_back_bit_by_bit(void)
{
    struct gyre_cost cost = gyre_cost_h200, back;
    double *constants = (double *)&cost;
    for (size_t i = 0; i < sizeof(cost) / sizeof(double); i++)
        constants[i] = 1 / (3.0 + (double)i);
    char *text = NULL;
    CHECK_OK(gyre_cost_to_text(&cost, &text));
    CHECK_OK(gyre_cost_from_text(text, &gyre_cost_host, &back));
    CHECK(memcmp(&cost, &back, sizeof(cost)) == 0);
    free(text);
}

static void a_point_is_a_point_in_every_locale(void)
{
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL)
        (void)setlocale(LC_NUMERIC, "fr_FR.UTF-8"); /* without either, a plain test */
    struct gyre_cost cost = gyre_cost_host;
    CHECK_OK(gyre_cost_from_text("launch_ns = 1.5", &gyre_cost_host, &cost));
    CHECK(is_near(cost.launch_ns, 1.5));
    (void)setlocale(LC_NUMERIC, "C");
}

static void what_a_text_does_not_name_stays(void)
{
    struct gyre_cost cost;
    CHECK_OK(gyre_cost_from_text("# measured\n\n  launch_ns=7 # ns\nsimple_step_ns = 2.5e2",
                                 &gyre_cost_h200, &cost));
    CHECK(is_near(cost.launch_ns, 7) && is_near(cost.step_ns[GYRE_PROTO_SIMPLE], 250));
    CHECK(is_near(cost.nic_bytes_per_ns, gyre_cost_h200.nic_bytes_per_ns));
}

static void texts_that_are_wrong_are_refused(void)
{
    static const char *const wrong[][2] = {
        {"launch = 1", "line 1: \"launch\" is none of: launch_ns"},
        {"\nlaunch_ns 1", "line 2: \"launch_ns 1\" is not \"key = number\""},
        {"launch_ns = ", "expected a number of at least 0"},
        {"launch_ns = 1x", "\"1x\""},
        {"launch_ns = -1", "\"-1\""},
        {"launch_ns = nan", "\"nan\""},
        {"launch_ns = 1e999", "\"1e999\""},
        {"ll_wire_efficiency = 0", "above 0, at most 1"},
        {"ll_wire_efficiency = 1.1", "above 0, at most 1"},
        {"launch_ns = 1\nlaunch_ns = 1", "line 2: launch_ns is given twice"},
    };
    struct gyre_cost cost = gyre_cost_host;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_FAILS(gyre_cost_from_text(wrong[i][0], &gyre_cost_host, &cost),
                    GYRE_ERROR_INVALID_ARGUMENT, wrong[i][1]);
    char line[300];
    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    CHECK_FAILS(gyre_cost_from_text(line, &gyre_cost_host, &cost), GYRE_ERROR_INVALID_ARGUMENT,
                "longer than");
    CHECK(memcmp(&cost, &gyre_cost_host, sizeof(cost)) == 0);
}

static const struct test_case cases[] = {
    {"a ring takes 2(n-1) hops and moves 2(n-1)/n of the bytes",
     a_ring_takes_2n_minus_2_hops_and_moves_2n_minus_2_nths},
    {"the tiles of a ring add up", the_tiles_of_a_ring_add_up},
    {"an observer is told when each step runs", an_observer_is_told_when_each_step_runs},
    {"all-gather and reduce-scatter are half a ring",
     all_gather_and_reduce_scatter_are_half_a_ring},
    {"a chain is a pipeline", a_chain_is_a_pipeline},
    {"few slots on a long link cost a round trip", few_slots_on_a_long_link_cost_a_round_trip},
    {"a tree is as deep as the logarithm", a_tree_is_as_deep_as_the_logarithm},
    {"one-shot is one hop and n-1 vectors", one_shot_is_one_hop_and_n_minus_1_vectors},
    {"two-shot is two hops and 2(n-1)/n of the bytes", two_shot_is_two_hops_and_2n_minus_2_nths},
    {"log steps are few hops and few bytes", log_steps_are_few_hops_and_few_bytes},
    {"a slot that is too small for a range is refused",
     a_slot_that_is_too_small_for_a_range_is_refused},
    {"a step costs itself, its copies and its sends", a_step_costs_itself_its_copies_and_its_sends},
    {"placed slots are not copied", placed_slots_are_not_copied},
    {"a rank on its own copies", a_rank_on_its_own_copies},
    {"the ranks of a host share its NIC", the_ranks_of_a_host_share_its_nic},
    {"one host can be all network", one_host_can_be_all_network},
    {"more ranks than cores take turns", more_ranks_than_cores_take_turns},
    {"channels share what a rank has once", channels_share_what_a_rank_has_once},
    {"the bottleneck is named", the_bottleneck_is_named},
    {"more bytes never take less", more_bytes_never_take_less},
    {"a worse machine is never faster", a_worse_machine_is_never_faster},
    {"more ranks never take less", more_ranks_never_take_less},
    {"one rank may stand for all", one_rank_may_stand_for_all},
    {"one rail may stand for all", one_rail_may_stand_for_all},
    {"one host may stand for all pairs", one_host_may_stand_for_all_pairs},
    {"sixteen thousand ranks are few steps", sixteen_thousand_ranks_are_few_steps},
    {"few tiles tell of many", few_tiles_tell_of_many},
    {"unsteady tiles do not take for ever", unsteady_tiles_do_not_take_for_ever},
    {"the same question has the same answer", the_same_question_has_the_same_answer},
    {"four thousand ranks are answered", four_thousand_ranks_are_answered},
    {"what is too large is refused", what_is_too_large_is_refused},
    {"a depth that deadlocks is refused", a_depth_that_deadlocks_is_refused},
    {"costs come back bit by bit", costs_come_back_bit_by_bit},
    {"a point is a point in every locale", a_point_is_a_point_in_every_locale},
    {"what a text does not name stays", what_a_text_does_not_name_stays},
    {"texts that are wrong are refused", texts_that_are_wrong_are_refused},
};

TEST_MAIN(cases)
