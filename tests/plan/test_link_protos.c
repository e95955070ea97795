/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/links/links.h"
#include "core/engine/plan/plan.h"
#include "core/engine/plan/tuner/tuner.h"
#include "core/foundation/base/util.h"
#include "kernels/cuda/host/lower.h"
#include "tests/support/check.h"

#include <math.h>

#define BIT(id) (1U << GYRE_PROTO_##id)

TEST_CASE("a list of protocols has a part for each kind of link")
{
    const uint32_t all = BIT(SIMPLE) | BIT(LL) | BIT(LL128) | BIT(LAMPORT);
    const struct {
        const char *text;
        uint32_t inside;
        uint32_t between;
    } rows[] = {
        {"", all, all},
        {"ll/simple", BIT(LL), BIT(SIMPLE)},
        {"ll,lamport/simple,ll", BIT(LL) | BIT(LAMPORT), BIT(SIMPLE) | BIT(LL)},
        {"/simple", all, BIT(SIMPLE)},
        {"ll128/", BIT(LL128), all},
        {"^ll,ll128/^simple", BIT(SIMPLE), all & ~BIT(SIMPLE)},
        {"ll", BIT(LL), BIT(SIMPLE) | BIT(LL)},
        {"simple", BIT(SIMPLE), BIT(SIMPLE)},
        {"all_reduce:ll/simple;broadcast:ll128", BIT(LL), BIT(SIMPLE)},
    };
    struct gyre_filter filter;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(rows); i++) {
        CHECK_OK(gyre_filter_parse("", rows[i].text, "", &filter));
        CHECK_MSG((filter.protos[GYRE_COLL_ALL_REDUCE] & all) == rows[i].inside &&
                      (filter.net_protos[GYRE_COLL_ALL_REDUCE] & all) == rows[i].between,
                  "\"%s\": %x, %x", rows[i].text, filter.protos[GYRE_COLL_ALL_REDUCE],
                  filter.net_protos[GYRE_COLL_ALL_REDUCE]);
    }
    CHECK((filter.protos[GYRE_COLL_BROADCAST] & all) == BIT(LL128) &&
          (filter.net_protos[GYRE_COLL_BROADCAST] & all) == (BIT(LL128) | BIT(SIMPLE)));
    CHECK((filter.protos[GYRE_COLL_REDUCE] & filter.net_protos[GYRE_COLL_REDUCE] & all) == all);
    CHECK_BAD_ARGUMENT(gyre_filter_parse("", "ll/fast", "", &filter), "\"fast\" is none of");
    CHECK_BAD_ARGUMENT(gyre_filter_parse("ring/tree", "", "", &filter), "\"ring/tree\" is none of");
}

static struct gyre_grouping hosts_of_4; /* of 2 hosts of 4 ranks */

static struct gyre_tuner_facts facts_across(void)
{
    struct gyre_tuner_facts facts = {.device_kind = GYRE_DEVICE_CUDA,
                                     .n_ranks = 8,
                                     .n_hosts = 2,
                                     .is_proxied = true,
                                     .is_direct_inside = true,
                                     .is_ll128_safe = true,
                                     .has_lamport = true,
                                     .is_unscaled = true,
                                     .min_channels = 1,
                                     .grouping = &hosts_of_4,
                                     .cost = &gyre_cost_h200};
    struct gyre_peer_counts peers;
    hosts_of_4.n_hosts = 2;
    for (int rank = 0; rank < 8; rank++)
        hosts_of_4.host_of[rank] = (uint16_t)(rank / 4);
    CHECK_OK(gyre_near_peers_count(&hosts_of_4, 8, &peers));
    facts.spec = gyre_tuner_fifo_spec_across(GYRE_DEVICE_CUDA, &peers, false, true, 0, UINT32_MAX);
    facts.max_channels = facts.spec.n_fifos;
    return facts;
}

static gyre_status choose_among(const struct gyre_tuner_facts *facts, const char *algos,
                                const char *protos, uint64_t n_bytes,
                                struct gyre_choice *choice_out)
{
    struct gyre_filter filter;
    GYRE_TRY(gyre_filter_parse(algos, protos, "", &filter));
    return gyre_tuner_choose(facts, &filter, GYRE_COLL_ALL_REDUCE, n_bytes, choice_out);
}

static gyre_status choose(const struct gyre_tuner_facts *facts, const char *protos,
                          uint64_t n_bytes, struct gyre_choice *choice_out)
{
    return choose_among(facts, "", protos, n_bytes, choice_out);
}

TEST_CASE("each kind of link can be forced")
{
    static const struct {
        const char *text;
        enum gyre_proto proto;
    } rows[] = {{"ll/simple", GYRE_PROTO_LL},
                {"ll128/simple", GYRE_PROTO_LL128},
                {"lamport/simple", GYRE_PROTO_LAMPORT},
                {"simple/simple", GYRE_PROTO_SIMPLE},
                {"ll", GYRE_PROTO_LL},
                {"lamport", GYRE_PROTO_LAMPORT}};
    for (int by_table = 0; by_table < 2; by_table++)
        for (size_t i = 0; i < GYRE_ARRAY_LENGTH(rows); i++)
            for (uint64_t n_bytes = 64; n_bytes <= 64 << 20; n_bytes *= 32) {
                struct gyre_tuner_facts facts = facts_across();
                struct gyre_choice choice;
                facts.cost = by_table ? NULL : facts.cost;
                CHECK_OK(choose(&facts, rows[i].text, n_bytes, &choice));
                CHECK_MSG(choice.proto == rows[i].proto && choice.net_proto == GYRE_PROTO_SIMPLE,
                          "%s: %s/%s", rows[i].text, gyre_proto_names[choice.proto],
                          gyre_proto_names[choice.net_proto]);
                CHECK(
                    choice.tile_bytes <=
                        gyre_slot_payload_bytes(
                            choice.proto, facts.spec.slot_bytes[gyre_proto_slots(choice.proto)]) &&
                    choice.tile_bytes <=
                        gyre_tuner_fifos(&facts, choice.algorithm, GYRE_COLL_ALL_REDUCE)
                            .slot_bytes);
            }
}

TEST_CASE("tiles fit the slots between hosts")
{
    struct gyre_tuner_facts facts = facts_across();
    struct gyre_choice choice;
    facts.spec.far.slot_bytes = 1024;
    for (int by_table = 0; by_table < 2; by_table++) {
        facts.cost = by_table ? NULL : &gyre_cost_h200;
        CHECK_OK(choose_among(&facts, "direct", "ll128/simple", 1 << 20, &choice));
        CHECK_MSG(choice.proto == GYRE_PROTO_LL128 && choice.tile_bytes <= 1024,
                  "%s, tiles of %u bytes", gyre_proto_names[choice.proto], choice.tile_bytes);
    }
}

TEST_CASE("impossible protocols are refused for each kind of link")
{
    struct gyre_tuner_facts facts = facts_across();
    struct gyre_choice choice;
    CHECK_BAD_USAGE(choose(&facts, "/ll", 4096, &choice), "behind its slash");
    facts.has_lamport = false;
    CHECK_BAD_USAGE(choose(&facts, "lamport/simple", 4096, &choice), "sums of floating point");
    facts.is_ll128_safe = false;
    CHECK_BAD_USAGE(choose(&facts, "ll128/simple", 4096, &choice), "between all ranks of a host");
    facts.is_direct_inside = false; /* a proxy is also inside a host */
    CHECK_BAD_USAGE(choose(&facts, "ll/simple", 4096, &choice), "a proxy serves");
    CHECK_OK(choose(&facts, "", 4096, &choice));
    CHECK(choice.proto == GYRE_PROTO_SIMPLE);
}

static struct gyre_choice choose_message(struct gyre_tuner_facts facts, uint64_t n_bytes)
{
    struct gyre_filter filter;
    struct gyre_choice choice = {.algorithm = NULL};
    CHECK_OK(gyre_filter_parse("", "", "", &filter));
    CHECK_OK(gyre_tuner_choose(&facts, &filter, GYRE_COLL_SEND_RECV, n_bytes, &choice));
    return choice;
}

TEST_CASE("a message inside a host goes as in a communicator of one host")
{
    const struct gyre_tuner_facts across = facts_across();
    const struct gyre_tuner_pair inside = {.n_ranks_inside = 4, .is_near = true};
    const struct gyre_tuner_pair between = {.n_ranks_inside = 4, .is_proxied = true};
    for (uint64_t n_bytes = 8; n_bytes <= 256 << 20; n_bytes *= 3) {
        struct gyre_tuner_facts facts = facts_across();
        facts.n_ranks = 4;
        facts.n_hosts = 1;
        facts.is_proxied = facts.is_direct_inside = false;
        facts.is_near = true;
        facts.cost = NULL;
        const struct gyre_choice expected = choose_message(facts, n_bytes);
        const struct gyre_choice found =
            choose_message(gyre_tuner_facts_of_pair(&across, &inside), n_bytes);
        const struct gyre_choice far =
            choose_message(gyre_tuner_facts_of_pair(&across, &between), n_bytes);
        CHECK_MSG(found.proto == expected.proto && found.n_channels == expected.n_channels &&
                      found.tile_bytes == expected.tile_bytes,
                  "%llu bytes: %s x %u, %u B; expected %s x %u, %u B", (unsigned long long)n_bytes,
                  gyre_proto_names[found.proto], found.n_channels, found.tile_bytes,
                  gyre_proto_names[expected.proto], expected.n_channels, expected.tile_bytes);
        CHECK(n_bytes > 65536 || found.proto != GYRE_PROTO_SIMPLE);
        CHECK(far.proto == GYRE_PROTO_SIMPLE);
    }
}

TEST_CASE("predictions know the protocol of each link")
{
    static struct gyre_grouping grouping = {.n_hosts = 2, .host_of = {0, 0, 1, 1}};
    const struct gyre_shape shape = {
        .coll = GYRE_COLL_BROADCAST, .n_ranks = 4, .grouping = &grouping};
    const struct gyre_machine machine = {.grouping = &grouping};
    struct gyre_cost cost = {
        .hop_ns = {[GYRE_PROTO_SIMPLE] = {10, 1000}, [GYRE_PROTO_LL] = {1, 100}},
        .step_ns = {[GYRE_PROTO_SIMPLE] = 0.25, [GYRE_PROTO_LL] = 0.0625}};
    struct gyre_simulation simulation = {
        .cost = &cost, .n_channels = 1, .tile_bytes = 4096, .depth = 4, .n_bytes = 64};
    struct gyre_simulator *simulator;
    struct gyre_prediction prediction;
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++)
        cost.wire_efficiency[proto] = 1;
    CHECK_OK(gyre_simulator_open(&gyre_algorithm_ring, &shape, &machine, true, &simulator));
    for (int inside = GYRE_PROTO_SIMPLE; inside <= GYRE_PROTO_LL; inside++)
        for (int between = GYRE_PROTO_SIMPLE; between <= GYRE_PROTO_LL; between++) {
            simulation.proto = (enum gyre_proto)inside;
            simulation.net_proto = (enum gyre_proto)between;
            CHECK_OK(gyre_simulator_run(simulator, &simulation, &prediction));
            /* The first and the last rank have only links between hosts. */
            const double expected =
                2 * cost.hop_ns[between][GYRE_LINK_NETWORK] + cost.hop_ns[inside][GYRE_LINK_HOST] +
                2 * cost.step_ns[between] + 2 * fmax(cost.step_ns[inside], cost.step_ns[between]);
            CHECK_MSG(fabs(prediction.time_ns - expected) < 1e-9, "%s/%s: %g, expected %g",
                      gyre_proto_names[inside], gyre_proto_names[between], prediction.time_ns,
                      expected);
        }
    gyre_simulator_close(simulator);
}

#define N_RANKS 4

static void fill_ends(const struct gyre_fifo_spec *spec, struct gyre_connector *ends)
{
    for (uint32_t i = 0; i < N_RANKS * spec->n_fifos * 2; i++) {
        struct gyre_connector *end = &ends[i];
        const bool is_proxied = i / (spec->n_fifos * 2) >= 2;
        memset(end, 0, sizeof(*end));
        for (uint32_t proto = 0; proto < (is_proxied ? 1U : GYRE_N_SLOT_PROTOS); proto++)
            end->slots[proto] = (unsigned char *)(uintptr_t)(0x100000 * (proto + 1));
        end->inbox = (struct gyre_inbox *)(uintptr_t)0x1000;
        end->credit = (struct gyre_credit *)(uintptr_t)0x2000;
        end->slot_bytes = is_proxied ? 1024 : spec->slot_bytes[GYRE_PROTO_SIMPLE];
        end->depth = (uint16_t)spec->depth;
        end->is_proxied = is_proxied;
    }
}

TEST_CASE("a program for lines keeps proxied connections in simple")
{
    const struct gyre_fifo_spec spec = {.n_fifos = 2, .depth = 4, .slot_bytes = {4096, 4096, 8192}};
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = N_RANKS};
    struct gyre_connector ends[N_RANKS * 4];
    struct gyre_program *program;
    fill_ends(&spec, ends);
    CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_ring, &shape, 1, &program));
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++) {
        const struct gyre_load_config config = {
            .program = program, .n_channels = 2, .proto = (enum gyre_proto)proto};
        struct gyre_cuda_program *blob;
        struct gyre_cuda_shape size;
        uint32_t n_found = 0;
        CHECK_OK(gyre_cuda_lower(&spec, ends, N_RANKS, &config, &blob, &size));
        const struct gyre_cuda_connection *connections =
            (const void *)((const unsigned char *)blob + blob->connections_offset);
        for (uint32_t i = 0; i < size.max_connections; i++) {
            const bool is_proxied = ends[connections[i].index].is_proxied != 0;
            CHECK(connections[i].is_simple == (is_proxied && proto != GYRE_PROTO_SIMPLE));
            n_found += is_proxied;
        }
        CHECK(n_found == 1 && size.max_connections == 2);
        CHECK(proto == GYRE_PROTO_SIMPLE
                  ? size.slot_bytes == 1024 && size.proxied_bytes == UINT32_MAX
                  : size.slot_bytes == spec.slot_bytes[gyre_proto_slots((enum gyre_proto)proto)] &&
                        size.proxied_bytes == 1024);
        free(blob);
    }
    gyre_program_free(program);
}

TEST_CASE("a program for hosts of one GPU goes by lines of proxies")
{
    static struct gyre_grouping grouping = {
        .n_hosts = N_RANKS, .host_of = {0, 1, 2, 3}, .n_nics = 1};
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = N_RANKS};
    struct gyre_connector ends[N_RANKS * 4];
    struct gyre_peer_counts peers;
    struct gyre_program *program;
    struct gyre_cuda_program *blob;
    struct gyre_cuda_shape size;
    struct gyre_fifo_spec spec = {.n_fifos = 2, .depth = 4, .slot_bytes = {65536}};
    CHECK_OK(gyre_near_peers_count(&grouping, N_RANKS, &peers));
    gyre_fifo_spec_add_net_lines(&spec, GYRE_DEVICE_CUDA, &peers, false);
    CHECK(spec.net_line_bytes == 16384 && spec.slot_bytes[GYRE_PROTO_LL] == 16384);
    fill_ends(&spec, ends);
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(ends); i++) {
        ends[i].is_proxied = 1;
        ends[i].slots[GYRE_PROTO_LL] = ends[i].slots[GYRE_PROTO_SIMPLE];
    }
    CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_direct, &shape, 1, &program));
    const struct gyre_load_config config = {
        .program = program, .n_channels = 2, .proto = GYRE_PROTO_LL, .net_proto = GYRE_PROTO_LL};
    CHECK_OK(gyre_cuda_lower(&spec, ends, N_RANKS, &config, &blob, &size));
    const struct gyre_cuda_connection *connections =
        (const void *)((const unsigned char *)blob + blob->connections_offset);
    for (uint32_t i = 0; i < size.max_connections; i++)
        CHECK(connections[i].is_simple == 0);
    CHECK(size.max_connections > 0 && size.slot_bytes == 16384 && size.proxied_bytes == 8192);
    free(blob);
    gyre_program_free(program);
}

TEST_CASE("lines between hosts are used where they are asked for")
{
    static const struct {
        gyre_device_kind kind;
        const char *protos;
        bool is_allowed;
        enum gyre_proto proto;
        enum gyre_proto net_proto;
    } rows[] = {
        {GYRE_DEVICE_CUDA, "ll", true, GYRE_PROTO_LL, GYRE_PROTO_SIMPLE},
        {GYRE_DEVICE_CUDA, "ll/ll", true, GYRE_PROTO_LL, GYRE_PROTO_LL},
        {GYRE_DEVICE_CUDA, "/ll", true, GYRE_PROTO_LL, GYRE_PROTO_LL},
        {GYRE_DEVICE_CUDA, "simple/ll", false, GYRE_PROTO_SIMPLE, GYRE_PROTO_SIMPLE},
        {GYRE_DEVICE_CUDA, "ll128/ll", false, GYRE_PROTO_SIMPLE, GYRE_PROTO_SIMPLE},
        {GYRE_DEVICE_HOST, "", true, GYRE_PROTO_SIMPLE, GYRE_PROTO_SIMPLE},
        {GYRE_DEVICE_HOST, "simple/ll", true, GYRE_PROTO_SIMPLE, GYRE_PROTO_LL},
        {GYRE_DEVICE_HOST, "/ll", true, GYRE_PROTO_SIMPLE, GYRE_PROTO_LL},
        {GYRE_DEVICE_HOST, "simple/ll128", false, GYRE_PROTO_SIMPLE, GYRE_PROTO_SIMPLE},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(rows); i++)
        for (uint64_t n_bytes = 8; n_bytes <= 1 << 20; n_bytes *= 32) {
            struct gyre_tuner_facts facts = facts_across();
            struct gyre_choice choice = {.algorithm = NULL};
            facts.device_kind = rows[i].kind;
            facts.spec.net_line_bytes = 1024; /* 512 bytes of data */
            const gyre_status status = choose(&facts, rows[i].protos, n_bytes, &choice);
            CHECK_MSG((status == GYRE_SUCCESS) == rows[i].is_allowed, "%s", rows[i].protos);
            if (!rows[i].is_allowed || status != GYRE_SUCCESS)
                continue;
            CHECK_MSG(choice.proto == rows[i].proto && choice.net_proto == rows[i].net_proto,
                      "%s: %s/%s", rows[i].protos, gyre_proto_names[choice.proto],
                      gyre_proto_names[choice.net_proto]);
            CHECK(choice.net_proto == GYRE_PROTO_SIMPLE || choice.tile_bytes <= 512);
        }
}

static struct gyre_tuner_facts facts_of_one_gpu_a_host(void)
{
    static struct gyre_grouping pairs = {.n_hosts = 2, .host_of = {0, 1}, .n_nics = 1};
    struct gyre_tuner_facts facts = facts_across();
    facts.n_ranks = 2;
    facts.is_direct_inside = false;
    facts.grouping = &pairs;
    facts.spec.net_line_bytes = facts.spec.slot_bytes[GYRE_PROTO_LL] = 1024;
    return facts;
}

TEST_CASE("between hosts of one GPU both protocols are the same")
{
    static const struct {
        const char *protos;
        bool is_tcp;
        enum gyre_proto of_small;
    } rows[] = {
        {"", true, GYRE_PROTO_LL},           {"", false, GYRE_PROTO_LL},
        {"simple/ll", true, GYRE_PROTO_LL},  {"/ll", false, GYRE_PROTO_LL},
        {"ll/ll", true, GYRE_PROTO_LL},      {"simple/simple", true, GYRE_PROTO_SIMPLE},
        {"simple", true, GYRE_PROTO_SIMPLE}, {"ll128/simple", true, GYRE_PROTO_SIMPLE},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(rows); i++)
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
            struct gyre_tuner_facts facts = facts_of_one_gpu_a_host();
            const struct gyre_network tcp = {.latency_ns = 10000};
            const struct gyre_cost cost = gyre_network_cost(&gyre_cost_h200, &tcp);
            struct gyre_filter filter;
            struct gyre_choice choice = {.algorithm = NULL};
            facts.is_tcp = rows[i].is_tcp;
            facts.cost = &cost;
            CHECK_OK(gyre_filter_parse("", rows[i].protos, "", &filter));
            if (coll ==
                GYRE_COLL_SEND_RECV) /* no list restricts messages, and none simulates them */
                continue;
            CHECK_OK(gyre_tuner_choose(&facts, &filter, (enum gyre_collective)coll, 512, &choice));
            CHECK_MSG(choice.proto == rows[i].of_small && choice.net_proto == rows[i].of_small,
                      "%s %s: %s/%s", rows[i].protos, gyre_collectives[coll].name,
                      gyre_proto_names[choice.proto], gyre_proto_names[choice.net_proto]);
            CHECK(choice.net_proto == GYRE_PROTO_SIMPLE || choice.tile_bytes <= 512);
            CHECK_OK(
                gyre_tuner_choose(&facts, &filter, (enum gyre_collective)coll, 1 << 20, &choice));
            CHECK(choice.proto == choice.net_proto);
            CHECK(rows[i].protos[0] != '\0' || choice.net_proto == GYRE_PROTO_SIMPLE);
        }
    struct gyre_tuner_facts facts = facts_of_one_gpu_a_host();
    struct gyre_choice choice;
    facts.spec.net_line_bytes = 0; /* the memory was not set aside */
    CHECK_BAD_USAGE(choose(&facts, "/ll", 4096, &choice), "no slots for lines");
}

TEST_CASE("slots of lines between hosts fit their share of memory")
{
    static const uint32_t n_peers[] = {1, 7, 63, 511, 4095, 16383};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(n_peers); i++)
        for (int is_cuda = 0; is_cuda < 2; is_cuda++) {
            const struct gyre_fifo_spec spec = {.n_fifos = 16, .depth = 4, .far = {2, 256}};
            const uint64_t most = is_cuda ? 32 << 20 : 4 << 20;
            const uint64_t bytes = gyre_net_line_bytes(
                is_cuda ? GYRE_DEVICE_CUDA : GYRE_DEVICE_HOST, &spec, 3, n_peers[i]);
            const uint64_t n_slots = 2 * 4 * (3 * 16 + 2ULL * n_peers[i]);
            CHECK(bytes == 0 || (bytes >= 256 && bytes <= 16384 && (bytes & (bytes - 1)) == 0));
            CHECK(bytes * n_slots <= most);
            /* Twice as long does not fit. */
            CHECK(2 * (bytes > 0 ? bytes : 128) * n_slots > most || bytes == 16384);
        }
}
