/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices over TCP, and choices of GPUs of one host without P2P. The limits are those of the
 * measurements that the tuner cites. No GPU is needed.
 */
#include "core/engine/links/fifo_spec.h"
#include "core/engine/plan/tuner/tuner.h"
#include "tests/support/check.h"
#include "tests/support/shapes.h"

#define KIB ((uint64_t)1024)
#define MIB ((uint64_t)1024 * 1024)

static struct gyre_grouping two_hosts = {.n_hosts = 2, .host_of = {0, 1}};

/* Two GPUs, each in a host of its own. */
static struct gyre_tuner_facts facts_of_tcp(void)
{
    struct gyre_tuner_facts facts = {.device_kind = GYRE_DEVICE_CUDA,
                                     .n_ranks = 2,
                                     .n_hosts = 2,
                                     .is_proxied = true,
                                     .is_tcp = true,
                                     .min_channels = 1,
                                     .grouping = &two_hosts,
                                     .cost = &gyre_cost_h200};
    struct gyre_peer_counts peers;
    CHECK_OK(gyre_near_peers_count(&two_hosts, 2, &peers));
    facts.spec = gyre_tuner_fifo_spec_across(GYRE_DEVICE_CUDA, &peers, true, false, 0, UINT32_MAX);
    facts.max_channels = facts.spec.n_fifos;
    return facts;
}

/* The same, but by RDMA. */
static struct gyre_tuner_facts facts_of_rdma(void)
{
    struct gyre_tuner_facts facts = facts_of_tcp();
    struct gyre_peer_counts peers;
    CHECK_OK(gyre_near_peers_count(&two_hosts, 2, &peers));
    facts.is_tcp = false;
    facts.spec = gyre_tuner_fifo_spec_across(GYRE_DEVICE_CUDA, &peers, true, true, 0, UINT32_MAX);
    facts.max_channels = facts.spec.n_fifos;
    return facts;
}

/* Two GPUs of one host without P2P. */
static struct gyre_tuner_facts facts_of_shm(void)
{
    struct gyre_tuner_facts facts = {.device_kind = GYRE_DEVICE_CUDA,
                                     .n_ranks = 2,
                                     .n_hosts = 1,
                                     .in_host_memory = true,
                                     .has_lamport = true,
                                     .is_unscaled = true,
                                     .min_channels = 1};
    facts.spec = gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, 2, false, 0, UINT32_MAX);
    facts.max_channels = facts.spec.n_fifos;
    return facts;
}

static struct gyre_choice choose(const struct gyre_tuner_facts *facts, enum gyre_collective coll,
                                 uint64_t n_bytes)
{
    struct gyre_choice choice = {0};
    struct gyre_filter filter;
    CHECK_OK(gyre_filter_parse("", "", "", &filter));
    CHECK_OK(gyre_tuner_choose(facts, &filter, coll, n_bytes, &choice));
    return choice;
}

/* At 100 Gbit/s. */
TEST_CASE("large calls of GPUs over RDMA have long messages")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE,     GYRE_COLL_ALL_GATHER,
                                                 GYRE_COLL_REDUCE_SCATTER, GYRE_COLL_BROADCAST,
                                                 GYRE_COLL_REDUCE,         GYRE_COLL_ALL_TO_ALL};
    struct gyre_tuner_facts facts = facts_of_rdma();
    struct gyre_cost cost = gyre_cost_h200;
    cost.nic_bytes_per_ns = 12.5;
    facts.cost = &cost;
    for (size_t c = 0; c < sizeof(colls) / sizeof(colls[0]); c++)
        for (uint64_t n_bytes = 1024 * KIB; n_bytes <= 65536 * KIB; n_bytes *= 4) {
            const struct gyre_choice choice = choose(&facts, colls[c], n_bytes);
            CHECK_MSG(choice.n_channels <= 8 && choice.tile_bytes >= 96 * KIB,
                      "%s of %llu KiB: %u channels, tiles of %u bytes",
                      gyre_collectives[colls[c]].name, (unsigned long long)(n_bytes / KIB),
                      choice.n_channels, choice.tile_bytes);
        }
}

TEST_CASE("calls of GPUs over TCP have a channel for 128 KiB")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_ALL_GATHER,
                                                 GYRE_COLL_REDUCE_SCATTER, GYRE_COLL_BROADCAST};
    const struct gyre_tuner_facts facts = facts_of_tcp();
    for (int i = 0; i < 4; i++)
        for (uint64_t n_bytes = MIB; n_bytes <= 64 * MIB; n_bytes *= 4) {
            const struct gyre_choice choice = choose(&facts, colls[i], n_bytes);
            CHECK_MSG(choice.n_channels >= (n_bytes == MIB ? 8 : 16), "%s of %llu MiB: %u channels",
                      gyre_collectives[colls[i]].name, (unsigned long long)(n_bytes / MIB),
                      choice.n_channels);
        }
}

TEST_CASE("two ranks on two hosts talk directly")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_ALL_GATHER,
                                                 GYRE_COLL_REDUCE_SCATTER};
    struct gyre_tuner_facts facts = facts_of_tcp();
    struct gyre_choice choice;
    struct gyre_filter filter;
    for (int i = 0; i < 6; i++) {
        facts.is_tcp = i < 3;
        for (uint64_t n_bytes = KIB; n_bytes <= 512 * MIB; n_bytes *= 8)
            CHECK(choose(&facts, colls[i % 3], n_bytes).algorithm == &gyre_algorithm_direct);
    }
    CHECK_OK(gyre_filter_parse("^direct", "", "", &filter));
    CHECK_OK(gyre_tuner_choose(&facts, &filter, GYRE_COLL_ALL_REDUCE, 16 * MIB, &choice));
    CHECK(choice.algorithm != &gyre_algorithm_direct);
}

TEST_CASE("only TCP needs them")
{
    struct gyre_tuner_facts facts = facts_of_tcp();
    facts.is_tcp = false;
    CHECK(choose(&facts, GYRE_COLL_BROADCAST, 16 * MIB).n_channels < 16);
    facts.is_tcp = true;
    CHECK(choose(&facts, GYRE_COLL_BROADCAST, KIB).n_channels < 16);
}

/* A gain of a few percent is not worth many messages. */
TEST_CASE("calls of GPUs over verbs have few channels")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_GATHER, GYRE_COLL_REDUCE_SCATTER};
    struct gyre_tuner_facts facts = facts_of_rdma();
    struct gyre_cost cost = gyre_cost_h200;
    cost.nic_bytes_per_ns = 12.5;
    facts.cost = &cost;
    for (int i = 0; i < 2; i++)
        for (uint64_t n_bytes = 32 * KIB; n_bytes <= 128 * KIB; n_bytes *= 2)
            CHECK_MSG(choose(&facts, colls[i], n_bytes).n_channels <= n_bytes / (32 * KIB),
                      "%s, %llu KiB: %u channels", gyre_collectives[colls[i]].name,
                      (unsigned long long)(n_bytes / KIB),
                      choose(&facts, colls[i], n_bytes).n_channels);
}

/* Four ranks on two hosts, in host memory, over TCP of a rate. */
static struct gyre_choice choose_of_four(enum gyre_collective coll, double nic_bytes_per_ns,
                                         bool is_tcp)
{
    static const struct gyre_grouping grouping = {
        .n_hosts = 2, .n_nics = 2, .host_of = {0, 0, 1, 1}};
    struct gyre_cost cost = gyre_cost_host;
    struct gyre_peer_counts peers;
    CHECK_OK(gyre_near_peers_count(&grouping, 4, &peers));
    cost.nic_bytes_per_ns = nic_bytes_per_ns;
    const struct gyre_fifo_spec spec =
        gyre_tuner_fifo_spec_across(GYRE_DEVICE_HOST, &peers, false, true, 0, UINT32_MAX);
    const struct gyre_tuner_facts facts = {.device_kind = GYRE_DEVICE_HOST,
                                           .n_ranks = 4,
                                           .n_hosts = 2,
                                           .is_proxied = true,
                                           .is_tcp = is_tcp,
                                           .is_direct_inside = true,
                                           .min_channels = 1,
                                           .max_channels = spec.n_fifos,
                                           .spec = spec,
                                           .grouping = &grouping,
                                           .cost = &cost};
    return choose(&facts, coll, MIB);
}

TEST_CASE("a tile takes at most a millisecond over slow TCP")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_REDUCE_SCATTER,
                                                 GYRE_COLL_ALL_GATHER, GYRE_COLL_BROADCAST};
    for (int i = 0; i < 4; i++) {
        CHECK(choose_of_four(colls[i], 0.025, true).tile_bytes <= 25000);
        /* No tile is shorter than the shortest one that is tried. */
        CHECK(choose_of_four(colls[i], 0.0001, true).tile_bytes >= 4096);
        /* A slot of 128 KiB takes less than a millisecond at 10 Gbit/s. */
        CHECK(choose_of_four(colls[i], 1.15, true).tile_bytes ==
              choose_of_four(colls[i], 1.15, false).tile_bytes);
    }
    CHECK(choose_of_four(GYRE_COLL_ALL_REDUCE, 0.025, false).tile_bytes > 25000);
}

/* A channel has at most as many lines of 8 bytes of data as one warp reads: 256 bytes. */
TEST_CASE("a warp reads all lines of a channel in host memory")
{
    static const struct {
        enum gyre_collective coll;
        uint64_t n_bytes;
        const struct gyre_algorithm *algorithm;
        enum gyre_proto proto;
        uint32_t n_channels;
    } rows[] = {{GYRE_COLL_ALL_REDUCE, KIB, &gyre_algorithm_direct, GYRE_PROTO_LL, 4},
                {GYRE_COLL_ALL_REDUCE, 4 * KIB, &gyre_algorithm_direct, GYRE_PROTO_LL, 16},
                {GYRE_COLL_ALL_REDUCE, 16 * KIB, &gyre_algorithm_direct, GYRE_PROTO_LL, 64},
                {GYRE_COLL_ALL_REDUCE, 32 * KIB, &gyre_algorithm_twoshot, GYRE_PROTO_LL, 64},
                {GYRE_COLL_ALL_REDUCE, 64 * KIB, &gyre_algorithm_direct, GYRE_PROTO_LL, 64},
                {GYRE_COLL_ALL_REDUCE, 256 * KIB, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 32},
                {GYRE_COLL_ALL_GATHER, 8 * KIB, &gyre_algorithm_direct, GYRE_PROTO_LL, 32},
                {GYRE_COLL_ALL_GATHER, 32 * KIB, &gyre_algorithm_direct, GYRE_PROTO_LL, 64},
                {GYRE_COLL_ALL_GATHER, 256 * KIB, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 32}};
    const struct gyre_tuner_facts facts = facts_of_shm();
    CHECK(facts.max_channels == 64);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gyre_choice choice = choose(&facts, rows[i].coll, rows[i].n_bytes);
        CHECK_MSG(choice.algorithm == rows[i].algorithm && choice.proto == rows[i].proto &&
                      choice.n_channels == rows[i].n_channels,
                  "%s of %llu bytes: %s, protocol %u, %u channels",
                  gyre_collectives[rows[i].coll].name, (unsigned long long)rows[i].n_bytes,
                  choice.algorithm->name, choice.proto, choice.n_channels);
    }
}

TEST_CASE("few channels go by other choices in host memory")
{
    struct gyre_tuner_facts facts = facts_of_shm();
    facts.max_channels = 32;
    CHECK(choose(&facts, GYRE_COLL_ALL_REDUCE, 16 * KIB).algorithm == &gyre_algorithm_twoshot);
    facts.max_channels = 16;
    CHECK(choose(&facts, GYRE_COLL_ALL_REDUCE, 16 * KIB).proto == GYRE_PROTO_SIMPLE);
}

TEST_CASE("large blocks go by slots in host memory")
{
    const struct gyre_tuner_facts facts = facts_of_shm();
    CHECK(choose(&facts, GYRE_COLL_ALL_TO_ALL, 128 * KIB).proto == GYRE_PROTO_LL);
    CHECK(choose(&facts, GYRE_COLL_ALL_TO_ALL, 512 * KIB).proto == GYRE_PROTO_SIMPLE);
    CHECK(choose(&facts, GYRE_COLL_SEND_RECV, 512 * KIB).proto == GYRE_PROTO_SIMPLE);
}

TEST_CASE("chains keep their lines in host memory")
{
    const struct gyre_tuner_facts facts = facts_of_shm();
    CHECK(choose(&facts, GYRE_COLL_BROADCAST, 16 * KIB).proto == GYRE_PROTO_LL);
}

static struct gyre_grouping four_hosts = {
    .n_hosts = 4, .n_nics = 2, .host_of = {0, 0, 1, 1, 2, 2, 3, 3}};

/* Four hosts of two ranks in host memory, with links of 100 Mbit/s. */
static struct gyre_tuner_facts facts_of_four_hosts(struct gyre_cost *cost)
{
    struct gyre_tuner_facts facts = {.device_kind = GYRE_DEVICE_HOST,
                                     .n_ranks = 8,
                                     .n_hosts = 4,
                                     .is_proxied = true,
                                     .is_tcp = true,
                                     .min_channels = 1,
                                     .grouping = &four_hosts,
                                     .cost = cost};
    struct gyre_peer_counts peers;
    *cost = gyre_cost_host;
    cost->nic_bytes_per_ns = 0.012;
    CHECK_OK(gyre_near_peers_count(&four_hosts, 8, &peers));
    facts.spec = gyre_tuner_fifo_spec_across(GYRE_DEVICE_HOST, &peers, true, true, 0, UINT32_MAX);
    facts.max_channels = facts.spec.n_fifos;
    return facts;
}

TEST_CASE("large blocks go by rings over TCP")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_GATHER, GYRE_COLL_REDUCE_SCATTER};
    struct gyre_cost cost;
    struct gyre_tuner_facts facts = facts_of_four_hosts(&cost);
    for (int i = 0; i < 2; i++) {
        for (uint64_t n_bytes = 128 * KIB; n_bytes <= 8 * MIB; n_bytes *= 4)
            CHECK(choose(&facts, colls[i], n_bytes).algorithm == &gyre_algorithm_two_level_ring);
        CHECK(choose(&facts, colls[i], 256).algorithm == &gyre_algorithm_two_level_tree);
    }
    facts.is_tcp = false;
    for (int i = 0; i < 2; i++)
        CHECK(choose(&facts, colls[i], 512 * KIB).algorithm == &gyre_algorithm_two_level_tree);
}

/* From how many other hosts does rank 0 receive? */
static uint32_t count_sending_hosts(const struct gyre_algorithm *algorithm,
                                    enum gyre_collective coll)
{
    const struct gyre_shape shape = {.coll = coll, .n_ranks = 8, .grouping = &four_hosts};
    struct gyre_program *program;
    uint32_t hosts = 0;
    CHECK_OK(gyre_algorithm_emit(algorithm, &shape, 0, &program));
    for (uint32_t i = 0; i < program->n_connections; i++)
        if (program->connections[i].is_send == 0)
            hosts |= 1U << four_hosts.host_of[program->connections[i].peer];
    gyre_program_free(program);
    return (uint32_t)__builtin_popcount(hosts & ~1U);
}

TEST_CASE("two-level algorithms that fan in say so")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_GATHER, GYRE_COLL_REDUCE_SCATTER};
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int i = 0; i < 2; i++) {
            const struct gyre_algorithm *algorithm = gyre_algorithms[a];
            const struct gyre_ability can = ability_of(algorithm, colls[i], 4);
            if (can.two_level)
                CHECK_MSG((count_sending_hosts(algorithm, colls[i]) > 1) == can.fans_in, "%s: %s",
                          algorithm->name, gyre_collectives[colls[i]].name);
        }
}
