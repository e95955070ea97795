/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/shapes.h"
#include "tests/support/simulated.h"

/* send_recv has two ranks. */
static void for_all_programs(void (*check)(const struct gyre_cost *cost, struct question question))
{
    struct gyre_cost cost = gyre_cost_host;
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (unsigned n = 2; n <= 9; n++)
                if (suits_hosts(gyre_algorithms[a], coll, 1) &&
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

TEST_RUNS("more bytes never take less", for_all_programs(check_more_bytes))

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
            constant == &worse.uncached_slowdown ||
            (constant >= worse.credit_ns && constant < worse.credit_ns + GYRE_N_LINKS);
        *constant = is_time ? *constant * 1.5 : *constant / 1.5;
        const double now_ns = time_of(&worse, &question);
        CHECK_MSG(now_ns >= before_ns * (1 - 1e-9),
                  "%s %s, %u ranks: constant %zu made worse gives %g ns after %g",
                  question.algorithm->name, gyre_collectives[question.coll].name, question.n_ranks,
                  i, now_ns, before_ns);
    }
}

TEST_RUNS("a worse machine is never faster", for_all_programs(check_worse_machine))

TEST_CASE("more ranks never take less")
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
    /* Spread's ranks of a host finish their sums one after another, and at a NIC the lower of
     * several hosts is first, which turning the hosts changes. In reduce-scatter two workers of
     * each rank of a host send at the same moments. */
    const bool has_ties =
        question.grouping != NULL &&
        (question.algorithm == &gyre_algorithm_spread ||
         (ability_of(question.algorithm, (int)question.coll, question.n_ranks).two_level &&
          question.coll == GYRE_COLL_REDUCE_SCATTER));
    CHECK_MSG(has_ties ? fabs(folded_ns / all_ns - 1) < 0.025 : is_near(folded_ns, all_ns),
              "%s %s, %u ranks: %.17g ns folded, %.17g not", question.algorithm->name,
              gyre_collectives[question.coll].name, question.n_ranks, folded_ns, all_ns);
}

/* Ranks that share the cores of a host. */
static void check_turns(const struct gyre_cost *cost, struct question question)
{
    struct gyre_cost shared = *cost;
    shared.cores_per_host = 2;
    check_folding(&shared, question);
}

TEST_CASE("one rank may stand for all")
{
    for_all_programs(check_folding);
    for_all_programs(check_turns);
    const struct gyre_grouping grouping = even_hosts(4, 3);
    for (int a = 0; gyre_algorithms[a] != NULL; a++) {
        struct question question = {
            .algorithm = gyre_algorithms[a], .n_ranks = 12, .grouping = &grouping};
        if (suits_hosts(question.algorithm, GYRE_COLL_ALL_REDUCE, 4))
            check_folding(&gyre_cost_h200, question);
    }
}

/* If every variant has as many channels, also on hosts that differ, with NICs of their own and
 * shared ones. */
TEST_CASE("one rail may stand for all")
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
                if (ability_of(gyre_algorithms[a], coll, 4).reach != GYRE_REACH_ALL)
                    check_folding(&gyre_cost_h200, question);
            }
    }
}

/* Ranks that exchange with all others receive in different orders, which is ignored above 64 ranks,
 * and may cost 3 % of the time. */
TEST_CASE("one host may stand for all pairs")
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

/* In the memory and time of 2048 ranks. */
TEST_CASE("sixteen thousand ranks are few steps")
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
    /* a rank: 7 sends, at most 2 sums and 3 outputs, 7 receptions; of two variants */
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

TEST_RUNS("few tiles tell of many", for_all_programs(check_extrapolation))

/* Thirteen ranks send eight and four peers at a time, so no small number of tiles is a period. */
TEST_CASE("unsteady tiles do not take for ever")
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

TEST_CASE("the same question has the same answer")
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

TEST_CASE("four thousand ranks are answered")
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    struct question question = {.algorithm = &gyre_algorithm_ring, .n_ranks = 4096};
    question.n_bytes = 4096 * 4096;
    CHECK_TIME(&cost, &question, 2.0 * 4095 * (HOP_NS + 4096 / BYTES_PER_NS));
    CHECK(ask(&cost, &question).n_steps == 2 * 4096 - 1); /* of one rank */
    const struct gyre_grouping grouping = even_hosts(512, 8);
    question.grouping = &grouping;
    CHECK_TIME(&cost, &question, 2.0 * 4095 * (HOP_NS + 4096 / BYTES_PER_NS));
    /* Bounded work, however many tiles. */
    question.algorithm = &gyre_algorithm_tree;
    question.n_bytes = 1 << 30;
    question.tile_bytes = 65536;
    const struct gyre_prediction prediction = ask(&gyre_cost_h200, &question);
    CHECK(prediction.is_extrapolated && prediction.n_steps < 10000000);
    /* Even B / 49 GB/s of each rank is not reached. */
    CHECK(prediction.time_ns > (1 << 30) / gyre_cost_h200.nic_bytes_per_ns);
    question.algorithm = &gyre_algorithm_direct;
    question.coll = GYRE_COLL_ALL_GATHER;
    question.n_bytes = 1024;
    question.grouping = NULL;
    CHECK_TIME(&cost, &question, HOP_NS + 4095 * 1024 / BYTES_PER_NS);
}

TEST_CASE("what is too large is refused")
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_BROADCAST, .n_ranks = 4096};
    const struct gyre_machine machine = {.grouping = NULL};
    struct gyre_simulator *simulator = NULL;
    CHECK_FAILS(gyre_simulator_open(&gyre_algorithm_twoshot, &shape, &machine, false, &simulator),
                GYRE_ERROR_UNSUPPORTED, "too many to simulate");
}

TEST_CASE("a depth that deadlocks is refused")
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
