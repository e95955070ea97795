/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "core/engine/plan/plan.h"
#include "tests/support/check.h"
#include "tests/support/shapes.h"
#include "transport/proxy.h"
#include "transport/slab.h"

static const int some_ranks[] = {2, 3, 4, 5, 8, 16, 33, 64, 128};

TEST_CASE("connection memory stays within the budget")
{
    for (int kind = 0; kind < 2; kind++)
        for (int proxied = 0; proxied < 2; proxied++)
            for (size_t i = 0; i < GYRE_ARRAY_LENGTH(some_ranks); i++) {
                const uint32_t n_peers = (uint32_t)some_ranks[i] - 1;
                const uint32_t max_channels = i % 2 == 0 ? UINT32_MAX : 1 + (uint32_t)i * 4;
                const struct gyre_fifo_spec spec =
                    gyre_tuner_fifo_spec(kind == 0 ? GYRE_DEVICE_HOST : GYRE_DEVICE_CUDA,
                                         n_peers + 1, proxied != 0, 0, max_channels);
                struct gyre_slab_layout layout;
                CHECK_OK(gyre_slab_layout_make(&spec, n_peers, n_peers / 2, &layout));
                const uint64_t n_bytes = layout.n_bytes * (proxied != 0 ? 2 : 1);
                const uint64_t budget_bytes =
                    kind == 0      ? GYRE_FIFO_BUDGET_BYTES
                    : proxied == 1 ? GYRE_FIFO_BUDGET_ACROSS_BYTES
                    : n_peers == 1
                        ? GYRE_FIFO_BUDGET_BYTES
                        : 2 * GYRE_FIFO_BUDGET_BYTES; /* half for pairs beside the ring's */
                CHECK_MSG(n_bytes <= budget_bytes + budget_bytes / 64,
                          "%d ranks: %" PRIu64 " bytes, slots of %u and %u", some_ranks[i], n_bytes,
                          spec.slot_bytes[GYRE_PROTO_SIMPLE], spec.ring_slot_bytes);
                CHECK(spec.n_fifos >= 2 && spec.depth >= 2);
            }
    for (uint32_t n = 6; n <= 600; n += 54) /* on GPUs, 256 for all peers, 2 to 64 for each */
        CHECK(gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, n, false, 0, UINT32_MAX).n_fifos ==
              gyre_clamp_u32(256 / (n - 1), 2, 64));
}

TEST_CASE("rings on GPUs have large slots")
{
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(some_ranks); i++) {
        const uint32_t n_ranks = (uint32_t)some_ranks[i];
        const struct gyre_fifo_spec spec =
            gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, n_ranks, false, 0, UINT32_MAX);
        const uint32_t ring_bytes =
            spec.ring_slot_bytes > 0 ? spec.ring_slot_bytes : spec.slot_bytes[GYRE_PROTO_SIMPLE];
        CHECK_MSG(ring_bytes == 131072, "%u ranks: slots of %u bytes", n_ranks, ring_bytes);
    }
    const struct gyre_fifo_spec few = gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, 2, false, 0, 16);
    CHECK_MSG(few.n_fifos == 32 && few.slot_bytes[GYRE_PROTO_SIMPLE] == 384 * 1024,
              "%u FIFOs of %u bytes a slot", few.n_fifos, few.slot_bytes[GYRE_PROTO_SIMPLE]);
    const struct gyre_fifo_spec eight = gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, 8, false, 0, 8);
    CHECK_MSG(
        eight.ring_slot_bytes == 256 * 1024 && eight.slot_bytes[GYRE_PROTO_SIMPLE] == 128 * 1024,
        "slots of %u and %u bytes", eight.ring_slot_bytes, eight.slot_bytes[GYRE_PROTO_SIMPLE]);
    const struct gyre_fifo_spec set =
        gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, 4, false, 1 << 20, UINT32_MAX);
    CHECK(set.slot_bytes[GYRE_PROTO_SIMPLE] == (1 << 20) / set.depth && set.ring_slot_bytes == 0);
}

TEST_CASE("the fewest channels leave every lane a FIFO")
{
    for (uint16_t n_ranks = 2; n_ranks <= 17; n_ranks++) {
        const struct gyre_fifo_spec spec =
            gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, n_ranks, false, 0, 1);
        for (int i = 0; gyre_algorithms[i] != NULL; i++)
            for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
                const struct gyre_shape shape = {.coll = (enum gyre_collective)coll,
                                                 .n_ranks = n_ranks};
                struct gyre_program *program;
                if (!gyre_algorithm_has(gyre_algorithms[i], shape.coll) ||
                    coll == GYRE_COLL_SEND_RECV)
                    continue;
                CHECK_OK(gyre_algorithm_emit(gyre_algorithms[i], &shape, 0, &program));
                CHECK_MSG(program->n_lanes <= spec.n_fifos, "%s %s: %u lanes, %u FIFOs",
                          gyre_algorithms[i]->name, gyre_collectives[coll].name, program->n_lanes,
                          spec.n_fifos);
                gyre_program_free(program);
            }
    }
}

static bool is_staged(const struct gyre_program *program, uint32_t connection)
{
    for (uint32_t i = 0; i < program->n_steps; i++) {
        const struct gyre_step *step = &program->steps[i];
        const struct gyre_operand *operands = step->ins;
        for (unsigned k = 0; k < step->n_ins + step->n_outs; k++) {
            const struct gyre_operand operand =
                k < step->n_ins ? operands[k] : step->outs[k - step->n_ins];
            if (operand.kind == GYRE_OPERAND_CONNECTION && operand.index == connection &&
                operand.is_placed == 0)
                return true;
        }
    }
    return false;
}

/* Slots go only from the previous rank in the ring, to the next. */
static void check_edges(const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                        uint16_t n_ranks, uint16_t root, bool is_placed)
{
    const struct gyre_shape shape = {
        .coll = coll, .n_ranks = n_ranks, .root = root, .is_placed = is_placed};
    for (int rank = 0; rank < n_ranks; rank++) {
        struct gyre_program *program;
        CHECK_OK(gyre_algorithm_emit(algorithm, &shape, rank, &program));
        for (uint32_t i = 0; i < program->n_connections; i++) {
            const struct gyre_connection *connection = &program->connections[i];
            if (!is_staged(program, i))
                continue;
            const int from = connection->is_send ? rank : connection->peer;
            const int to = connection->is_send ? connection->peer : rank;
            CHECK_MSG(to == (from + 1) % n_ranks, "%s %s of %u ranks, root %u: %d sends to %d",
                      algorithm->name, gyre_collectives[coll].name, n_ranks, root, from, to);
        }
        gyre_program_free(program);
    }
}

TEST_CASE("algorithms that follow the ring do")
{
    int n_found = 0;
    for (int i = 0; gyre_algorithms[i] != NULL; i++) {
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (int is_placed = 0; is_placed < 2; is_placed++) {
                const struct gyre_shape shape = {
                    .coll = (enum gyre_collective)coll, .n_ranks = 5, .is_placed = is_placed == 1};
                if (gyre_algorithm_ability(gyre_algorithms[i], &shape).reach != GYRE_REACH_RING)
                    continue;
                n_found++;
                for (uint16_t n = 2; n <= 17; n++)
                    for (uint16_t root = 0; root < n; root++)
                        check_edges(gyre_algorithms[i], shape.coll, n, root, shape.is_placed);
            }
    }
    CHECK(n_found == 2 * 5 + 1); /* ring, and spread with placed results */
}

/* The sizes with which the speed of GPUs was measured (docs/performance.md, 2026-11). A change asks
 * for new measurements. */
TEST_CASE("one host keeps the sizes that were measured")
{
    static const struct {
        gyre_device_kind kind;
        bool is_proxied;
        uint32_t n_ranks[6], max_channels, n_fifos, slot_bytes[GYRE_N_SLOT_PROTOS], ring_slot_bytes;
    } rows[] = {
        {GYRE_DEVICE_HOST, false, {1, 2, 3, 4, 8, 16}, UINT32_MAX, 4, {131072, 0, 0}, 0},
        {GYRE_DEVICE_HOST, false, {48}, UINT32_MAX, 4, {65536, 0, 0}, 0},
        {GYRE_DEVICE_HOST, false, {128}, UINT32_MAX, 4, {32768, 0, 0}, 0},
        {GYRE_DEVICE_HOST, true, {1, 2, 3, 4, 8, 16}, UINT32_MAX, 4, {131072, 0, 0}, 0},
        {GYRE_DEVICE_HOST, true, {48}, UINT32_MAX, 4, {32768, 0, 0}, 0},
        {GYRE_DEVICE_HOST, true, {128}, UINT32_MAX, 4, {16384, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, false, {1, 2}, UINT32_MAX, 64, {131072, 16384, 65536}, 0},
        {GYRE_DEVICE_CUDA, false, {3}, UINT32_MAX, 64, {131072, 5120, 26624}, 0},
        {GYRE_DEVICE_CUDA, false, {4}, UINT32_MAX, 64, {131072, 3072, 18432}, 0},
        {GYRE_DEVICE_CUDA, false, {8}, UINT32_MAX, 36, {65536, 3072, 16384}, 131072},
        {GYRE_DEVICE_CUDA, false, {16}, UINT32_MAX, 17, {65536, 4096, 21504}, 131072},
        {GYRE_DEVICE_CUDA, false, {48}, UINT32_MAX, 5, {65536, 5120, 30720}, 131072},
        {GYRE_DEVICE_CUDA, false, {128}, UINT32_MAX, 2, {65536, 5120, 26624}, 131072},
        {GYRE_DEVICE_CUDA, false, {2}, 16, 32, {393216, 16384, 65536}, 0},
        {GYRE_DEVICE_CUDA, false, {4}, 16, 32, {262144, 7168, 35840}, 0},
        {GYRE_DEVICE_CUDA, false, {8}, 16, 36, {65536, 3072, 16384}, 131072},
        {GYRE_DEVICE_CUDA, false, {2}, 8, 16, {524288, 16384, 65536}, 0},
        {GYRE_DEVICE_CUDA, false, {4}, 8, 16, {524288, 14336, 65536}, 0},
        {GYRE_DEVICE_CUDA, false, {8}, 8, 18, {131072, 6144, 32768}, 262144},
        {GYRE_DEVICE_CUDA, false, {2, 4}, 1, 2, {524288, 16384, 65536}, 0},
        {GYRE_DEVICE_CUDA, false, {8}, 1, 9, {262144, 12288, 65536}, 524288},
        {GYRE_DEVICE_CUDA, true, {1, 2}, UINT32_MAX, 64, {524288, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {3}, UINT32_MAX, 64, {262144, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {4}, UINT32_MAX, 64, {131072, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {8}, UINT32_MAX, 64, {65536, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {16}, UINT32_MAX, 64, {32768, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {48}, UINT32_MAX, 16, {32768, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {128}, UINT32_MAX, 8, {32768, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {2}, 16, 32, {524288, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {4}, 16, 32, {262144, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {8}, 16, 32, {131072, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {2, 4}, 8, 16, {524288, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {8}, 8, 16, {262144, 0, 0}, 0},
        {GYRE_DEVICE_CUDA, true, {2, 4, 8}, 1, 2, {524288, 0, 0}, 0},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(rows); i++) {
        struct gyre_fifo_spec expected = {
            .n_fifos = rows[i].n_fifos, .depth = 4, .ring_slot_bytes = rows[i].ring_slot_bytes};
        memcpy(expected.slot_bytes, rows[i].slot_bytes, sizeof(expected.slot_bytes));
        for (int k = 0; k < 6 && rows[i].n_ranks[k] > 0; k++) {
            const struct gyre_fifo_spec spec = gyre_tuner_fifo_spec(
                rows[i].kind, rows[i].n_ranks[k], rows[i].is_proxied, 0, rows[i].max_channels);
            CHECK_MSG(memcmp(&spec, &expected, sizeof(spec)) == 0,
                      "row %zu, %u ranks: %u FIFOs, slots of %u, %u, %u and %u bytes", i,
                      rows[i].n_ranks[k], spec.n_fifos, spec.slot_bytes[0], spec.slot_bytes[1],
                      spec.slot_bytes[2], spec.ring_slot_bytes);
        }
    }
}

static unsigned parse_hosts(const char *text, unsigned n_nics, struct gyre_grouping *grouping)
{
    unsigned n_hosts, n_of_host, n_ranks = 0;
    grouping->n_hosts = 0;
    grouping->n_nics = (uint16_t)n_nics;
    if (sscanf(text, "%ux%u", &n_hosts, &n_of_host) == 2) {
        for (; n_ranks < n_hosts * n_of_host; n_ranks++)
            grouping->host_of[n_ranks] = (uint16_t)(n_ranks / n_of_host);
        grouping->n_hosts = (uint16_t)n_hosts;
        return n_ranks;
    }
    for (const char *at = text; at != NULL; at = strchr(at, '+'), at += at != NULL) {
        for (n_of_host = (unsigned)atoi(at); n_of_host > 0; n_of_host--)
            grouping->host_of[n_ranks++] = grouping->n_hosts;
        grouping->n_hosts++;
    }
    return n_ranks;
}

static const char *const some_hosts[] = {
    "2x1", "3x1", "4x1",   "5x1",   "7x1",   "8x1",       "9x1",     "16x1",    "2x2",    "3x2",
    "4x2", "5x2", "8x2",   "2x3",   "3x3",   "6x3",       "2x4",     "4x4",     "5x4",    "3x8",
    "1+2", "1+3", "2+3+1", "3+5+2", "1+8+8", "2+2+3+2+1", "4+4+3+4", "3+1+3+1", "16+16+2"};

static void check_programs(const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                           const char *name, const struct gyre_grouping *grouping, unsigned n_ranks)
{
    const unsigned n_roots = gyre_collectives[coll].has_root ? n_ranks : 1;
    uint8_t is_far[64];
    for (unsigned rank = 0; rank < n_ranks; rank++) {
        CHECK_OK(gyre_near_peers_find(grouping, n_ranks, (int)rank, is_far));
        for (unsigned root = 0; root < n_roots; root++) {
            struct gyre_shape shape = {.coll = coll,
                                       .n_ranks = (uint16_t)n_ranks,
                                       .root = (uint16_t)root,
                                       .grouping = grouping};
            const int n_variants = gyre_algorithm_variants(algorithm, &shape);
            for (int v = 0; v < n_variants; v++) {
                struct gyre_program *program;
                shape.variant = (uint16_t)v;
                CHECK_OK(gyre_algorithm_emit(algorithm, &shape, (int)rank, &program));
                for (uint32_t i = 0; i < program->n_connections; i++)
                    CHECK_MSG(is_far[program->connections[i].peer] == 0,
                              "%s %s on %s with %u NICs, root %u, variant %d: ranks %u and %u",
                              algorithm->name, gyre_collectives[coll].name, name, grouping->n_nics,
                              root, v, rank, program->connections[i].peer);
                gyre_program_free(program);
            }
        }
    }
}

TEST_CASE("algorithms that keep near do")
{
    int n_found = 0;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(some_hosts); i++)
        for (unsigned n_nics = 0; n_nics < 5; n_nics++) {
            struct gyre_grouping grouping;
            const unsigned n_ranks = parse_hosts(some_hosts[i], n_nics, &grouping);
            for (int a = 0; gyre_algorithms[a] != NULL; a++)
                for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
                    if (ability_of(gyre_algorithms[a], coll, n_ranks).reach != GYRE_REACH_ALL) {
                        check_programs(gyre_algorithms[a], (enum gyre_collective)coll,
                                       some_hosts[i], &grouping, n_ranks);
                        n_found++;
                    }
        }
    CHECK(n_found > 0);
}

TEST_CASE("both ends of a pair find the same")
{
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(some_hosts); i++) {
        struct gyre_grouping grouping;
        const unsigned n = parse_hosts(some_hosts[i], (unsigned)i % 4, &grouping);
        struct gyre_peer_counts counts;
        uint8_t is_far[64 * 64];
        for (unsigned rank = 0; rank < n; rank++)
            CHECK_OK(gyre_near_peers_find(&grouping, n, (int)rank, &is_far[rank * n]));
        CHECK_OK(gyre_near_peers_count(&grouping, n, &counts));
        for (unsigned a = 0; a < n; a++) {
            uint32_t n_far = 0;
            for (unsigned b = 0; b < n; b++) {
                CHECK_MSG(is_far[a * n + b] == is_far[b * n + a], "%s: ranks %u and %u",
                          some_hosts[i], a, b);
                CHECK(grouping.host_of[a] != grouping.host_of[b] || is_far[a * n + b] == 0);
                n_far += is_far[a * n + b];
            }
            CHECK(n_far <= counts.n_far);
        }
    }
}

TEST_CASE("near peers are few")
{
    static struct gyre_grouping grouping;
    struct gyre_peer_counts counts;
    CHECK_OK(gyre_near_peers_count(&grouping, parse_hosts("512x8", 0, &grouping), &counts));
    CHECK_MSG(counts.n_inside == 7 && counts.n_near == 19 && counts.n_far == 4095 - 7 - 19,
              "%u, %u, %u", counts.n_inside, counts.n_near, counts.n_far);
    CHECK_OK(gyre_near_peers_count(NULL, 8, &counts));
    CHECK(counts.n_inside == 7 && counts.n_near == 0 && counts.n_far == 0);
}

TEST_CASE("the budget holds on any number of hosts")
{
    static const char *const hosts[] = {"2x1",   "2x8",    "3x5",    "8x8",   "16x1", "64x8", "7+8",
                                        "512x8", "1024x4", "2048x8", "96x16", "31x8", "1+8+8"};
    static struct gyre_grouping grouping;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(hosts); i++)
        for (int kind = 0; kind < 2; kind++) {
            struct gyre_peer_counts peers;
            const unsigned n_ranks = parse_hosts(hosts[i], (unsigned)i % 3, &grouping);
            if (kind == 0 && n_ranks > 4096)
                continue; /* the shortest slots need more */
            CHECK_OK(gyre_near_peers_count(&grouping, n_ranks, &peers));
            const struct gyre_fifo_spec spec =
                gyre_tuner_fifo_spec_across(kind == 0 ? GYRE_DEVICE_HOST : GYRE_DEVICE_CUDA, &peers,
                                            false, i % 3 != 0, 0, i % 2 == 0 ? UINT32_MAX : 3);
            const uint64_t budget =
                kind == 0 ? GYRE_FIFO_BUDGET_BYTES : GYRE_FIFO_BUDGET_ACROSS_BYTES;
            /* Proxied slots lie at both ends, others at the receiver. */
            const uint64_t near =
                gyre_round_up(spec.depth * spec.slot_bytes[GYRE_PROTO_SIMPLE], 4096);
            const uint64_t far = gyre_proxy_slots_bytes(spec.depth, spec.far.slot_bytes);
            uint64_t lines = 0; /* only inside a host */
            for (int proto = GYRE_PROTO_SIMPLE + 1; proto < GYRE_N_SLOT_PROTOS; proto++)
                lines += gyre_round_up(spec.depth * spec.slot_bytes[proto], 4096);
            const uint64_t n_bytes = (2ULL * peers.n_near + peers.n_inside) * spec.n_fifos * near +
                                     (uint64_t)peers.n_inside * spec.n_fifos * lines +
                                     2ULL * peers.n_far * spec.far.n_fifos * far;
            CHECK_MSG(n_bytes <= budget + budget / 64, "%s: %" PRIu64 " bytes", hosts[i], n_bytes);
            CHECK((spec.slot_bytes[GYRE_PROTO_LL] > 0) == (spec.slot_bytes[GYRE_PROTO_LL128] > 0));
            CHECK(spec.slot_bytes[GYRE_PROTO_LL] == 0 || (kind == 1 && peers.n_inside > 0));
            CHECK_MSG(kind == 0 || peers.n_inside == 0 || peers.n_inside > 8 ||
                          spec.slot_bytes[GYRE_PROTO_LL] > 0,
                      "%s: no lines inside the hosts", hosts[i]);
            CHECK(spec.n_fifos >= 2 && (peers.n_far == 0) == (spec.far.n_fifos == 0));
            CHECK(spec.far.n_fifos == 0 || (spec.far.n_fifos >= 2 && spec.far.slot_bytes >= 256));
            CHECK(spec.far.n_fifos <= spec.n_fifos &&
                  spec.far.slot_bytes <= spec.slot_bytes[GYRE_PROTO_SIMPLE]);
        }
}
