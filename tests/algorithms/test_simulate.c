/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/simulated.h"
#include "tests/support/locale.h"

TEST_CASE("a ring takes 2(n-1) hops and moves 2(n-1)/n of the bytes")
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    for (unsigned n = 2; n <= 33; n++) {
        const struct question question = {
            .algorithm = &gyre_algorithm_ring, .n_ranks = n, .n_bytes = 4096 * n};
        CHECK_TIME(&cost, &question,
                   2.0 * (n - 1) * (HOP_NS + (double)question.n_bytes / n / BYTES_PER_NS));
    }
}

TEST_CASE("bounds are the bytes that a rank or a host must send")
{
    static const struct {
        enum gyre_collective coll;
        double vectors; /* of each of 4 ranks, or 4 hosts */
    } rows[] = {{GYRE_COLL_ALL_REDUCE, 2 * 3.0 / 4},
                {GYRE_COLL_REDUCE_SCATTER, 3.0 / 4},
                {GYRE_COLL_ALL_GATHER, 3.0 / 4},
                {GYRE_COLL_BROADCAST, 1},
                {GYRE_COLL_REDUCE, 1},
                {GYRE_COLL_ALL_TO_ALL, 0}};
    struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    struct gyre_grouping hosts = even_hosts(4, 1);
    hosts.n_nics = 1;
    cost.nic_bytes_per_ns = 2; /* less than a rank's links inside its host */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gyre_shape shape = {.coll = rows[i].coll, .n_ranks = 4};
        const double inside_ns = gyre_bound_ns(&shape, &cost, 4096);
        CHECK(is_near(inside_ns, rows[i].vectors * 4096 / BYTES_PER_NS));
        shape.grouping = &hosts;
        CHECK(is_near(gyre_bound_ns(&shape, &cost, 4096), rows[i].vectors * 4096 / 2));
    }
}

/* One worker walks the ring for each tile in turn. */
TEST_CASE("the tiles of a ring add up")
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    const struct question question = {
        .algorithm = &gyre_algorithm_ring, .n_ranks = 4, .n_bytes = 4 * 96000, .tile_bytes = 16000};
    CHECK_TIME(&cost, &question, 6 * 6 * (HOP_NS + 16000 / BYTES_PER_NS));
}

struct told {
    const struct question *question;
    unsigned n_steps;
    unsigned n_wrong;
};

/* Step s of tile t starts after 6 t + s hops, and its slot takes one hop. */
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

TEST_CASE("an observer is told when each step runs")
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

TEST_CASE("all-gather and reduce-scatter are half a ring")
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

/* The first tile passes all links; the others follow it over the last one. */
TEST_CASE("a chain is a pipeline")
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
TEST_CASE("few slots on a long link cost a round trip")
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

TEST_CASE("a tree is as deep as the logarithm")
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

TEST_CASE("one-shot is one hop and n-1 vectors")
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    for (unsigned n = 2; n <= 40; n++) {
        const struct question question = {
            .algorithm = &gyre_algorithm_direct, .n_ranks = n, .n_bytes = 4096};
        CHECK_TIME(&cost, &question, HOP_NS + (n - 1) * 4096 / BYTES_PER_NS);
    }
}

TEST_CASE("two-shot is two hops and 2(n-1)/n of the bytes")
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    for (unsigned n = 2; n <= 9; n++) {
        const struct question question = {
            .algorithm = &gyre_algorithm_twoshot, .n_ranks = n, .n_bytes = 4096 * n};
        CHECK_TIME(&cost, &question, 2 * (HOP_NS + (n - 1) * 4096 / BYTES_PER_NS));
    }
}

/* A step of k chunks moves k tiles. */
TEST_CASE("log steps are few hops and few bytes")
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
            /* The slots of a range that is cut follow each other. */
            question.tile_bytes = n / 2 * (uint32_t)block_bytes / 4;
            question.depth = 4;
            if (log2_n < 3) /* a slot holds no block */
                continue;
            CHECK_TIME(&cost, &question, log2_n * (HOP_NS + all_ns / 2));
            question.coll = GYRE_COLL_ALL_GATHER;
            CHECK_TIME(&cost, &question, hops_ns + part * all_ns);
        }
    }
}

/* 16 ranks, 1000 bytes a block, 1008 with padding; the four steps of bruck move 1, 2, 4 and 8. */
TEST_CASE("a range that does not fit a slot takes several")
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_GATHER, .n_ranks = 16};
    const struct gyre_machine machine = {0};
    struct gyre_simulation simulation = {
        .cost = &cost, .n_channels = 1, .tile_bytes = 8 * 1008, .depth = 2, .n_bytes = 1000};
    struct gyre_prediction prediction;
    struct gyre_simulator *simulator = NULL;
    CHECK_OK(gyre_simulator_open(&gyre_algorithm_bruck, &shape, &machine, false, &simulator));
    if (simulator == NULL)
        return;
    CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
    CHECK(prediction.n_steps % 8 == 0); /* sends and receptions of four rounds */
    const uint64_t n_uncut = prediction.n_steps / 8;
    const double uncut_ns = prediction.time_ns;
    simulation.tile_bytes = 2 * 1008;
    CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
    CHECK(prediction.n_steps == n_uncut * 2 * (1 + 1 + 2 + 4));
    /* The slots of a round are sent in turns, so they do not wait for each other. */
    CHECK(prediction.time_ns < uncut_ns + 4 * HOP_NS);
    simulation.tile_bytes = 8 * 1008;
    CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
    CHECK(prediction.time_ns == uncut_ns);
    gyre_simulator_close(simulator);
}

TEST_CASE("a step costs itself, its copies and its sends")
{
    struct gyre_cost cost = plain_cost(HOP_NS, 0);
    cost.launch_ns = 4000;
    cost.worker_launch_ns = 1000;
    cost.step_ns[GYRE_PROTO_SIMPLE] = 300;
    cost.worker_read_bytes_per_ns = 4;
    cost.worker_store_bytes_per_ns = 8;
    cost.worker_send_bytes_per_ns[GYRE_LINK_HOST] = 2;
    const struct question question = {.algorithm = &gyre_algorithm_sendrecv,
                                      .coll = GYRE_COLL_SEND_RECV,
                                      .n_ranks = 2,
                                      .n_bytes = 4096};
    /* The sender reads and sends, the receiver reads and writes. */
    const double sender_ns = 300 + 4096 / 4.0 + 4096 / 2.0;
    const double receiver_ns = 300 + 4096 / 4.0 + 4096 / 8.0;
    CHECK_TIME(&cost, &question, 5000 + sender_ns + HOP_NS + receiver_ns);
}

/* Only data that are passed on are read. */
TEST_CASE("placed slots are not copied")
{
    struct gyre_cost cost = plain_cost(HOP_NS, 0);
    cost.worker_read_bytes_per_ns = 4;
    cost.worker_store_bytes_per_ns = 4;
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

/* Whole from 16 times cached_bytes on, half at 4 times. */
TEST_CASE("what no cache holds is slower")
{
    static const struct {
        uint64_t n_bytes;
        double slower;
    } cases[] = {{1024, 1}, {4096, 1}, {8192, 1.5}, {16384, 2}, {65536, 3}, {1 << 20, 3}};
    struct gyre_cost cost = plain_cost(HOP_NS, 0);
    cost.worker_read_bytes_per_ns = 4;
    cost.worker_store_bytes_per_ns = 8;
    cost.worker_send_bytes_per_ns[GYRE_LINK_HOST] = 2;
    cost.cached_bytes = 4096;
    cost.uncached_slowdown = 3;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct question question = {.algorithm = &gyre_algorithm_sendrecv,
                                          .coll = GYRE_COLL_SEND_RECV,
                                          .n_ranks = 2,
                                          .n_bytes = cases[i].n_bytes,
                                          .tile_bytes = 1 << 20};
        const double bytes = (double)cases[i].n_bytes;
        CHECK_TIME(&cost, &question,
                   HOP_NS + cases[i].slower * (2 * bytes / 4 + bytes / 2 + bytes / 8));
    }
}

TEST_CASE("a rank on its own copies")
{
    struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    cost.worker_read_bytes_per_ns = 4;
    cost.worker_store_bytes_per_ns = 8;
    const struct question question = {
        .algorithm = &gyre_algorithm_ring, .n_ranks = 1, .n_bytes = 4096};
    CHECK_TIME(&cost, &question, 4096 / 4.0 + 4096 / 8.0);
}

TEST_CASE("the ranks of a host share its NIC")
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
        /* Each vector goes to each rank of the other host. */
        CHECK_TIME(&cost, &question, HOP_NS + n_of_host * n_of_host * (250 + 65536 / BYTES_PER_NS));
    }
}

TEST_CASE("from rendezvous_bytes on a receiver sees a slot rendezvous_ns later")
{
    struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    cost.rendezvous_bytes = 65536;
    cost.rendezvous_ns = 777;
    struct gyre_grouping grouping = even_hosts(4, 1);
    struct question question = {.algorithm = &gyre_algorithm_ring,
                                .coll = GYRE_COLL_ALL_GATHER,
                                .n_ranks = 4,
                                .n_bytes = 65536,
                                .grouping = &grouping};
    CHECK_TIME(&cost, &question, 3 * (HOP_NS + 777 + 65536 / BYTES_PER_NS));
    question.n_bytes = 65532;
    CHECK_TIME(&cost, &question, 3 * (HOP_NS + 65532 / BYTES_PER_NS));
    question.grouping = NULL;
    question.n_bytes = 65536;
    CHECK_TIME(&cost, &question, 3 * (HOP_NS + 65536 / BYTES_PER_NS));
}

/* Sockets between the ranks of one host, say. */
TEST_CASE("one host can be all network")
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

TEST_CASE("more ranks than cores take turns")
{
    struct gyre_cost cost = plain_cost(0, 0);
    cost.step_ns[GYRE_PROTO_SIMPLE] = 1000;
    const struct question question = {
        .algorithm = &gyre_algorithm_direct, .n_ranks = 4, .n_bytes = 64};
    CHECK_TIME(&cost, &question, 2000);
    cost.cores_per_host = 2;
    CHECK_TIME(&cost, &question, 2 * 2000);
    cost.cores_per_host = 16;
    CHECK_TIME(&cost, &question, 2000);
}

TEST_CASE("channels share what a rank has once")
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

TEST_CASE("the bottleneck is named")
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

TEST_CASE("costs come back bit by bit")
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

TEST_CASE("a point is a point in every locale")
{
    (void)test_enter_locale(); /* without it, a plain test */
    struct gyre_cost cost = gyre_cost_host;
    CHECK_OK(gyre_cost_from_text("launch_ns = 1.5", &gyre_cost_host, &cost));
    CHECK(cost.launch_ns == 1.5);
    (void)setlocale(LC_ALL, "C");
}

TEST_CASE("what a text does not name stays")
{
    struct gyre_cost cost;
    CHECK_OK(gyre_cost_from_text("# measured\n\n  launch_ns=7 # ns\nsimple_step_ns = 2.5e2",
                                 &gyre_cost_h200, &cost));
    CHECK(cost.launch_ns == 7 && cost.step_ns[GYRE_PROTO_SIMPLE] == 250);
    CHECK(cost.nic_bytes_per_ns == gyre_cost_h200.nic_bytes_per_ns);
}

TEST_CASE("texts that are wrong are refused")
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
