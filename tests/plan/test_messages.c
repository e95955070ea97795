/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/algorithm.h"
#include "core/foundation/base/util.h"
#include "core/engine/plan/plan_cache.h"
#include "tests/support/check.h"

enum { P2P, SHM, IB, SOCKET }; /* as in gyre_transports */

enum { MAX_RANKS = 12 };

/* A communicator of GPUs, without memory or connections. */
struct ranks {
    uint16_t n_ranks;
    struct gyre_grouping grouping;
    struct gyre_rank members[MAX_RANKS];
    struct gyre_links links[MAX_RANKS];
    uint8_t transport_of[MAX_RANKS][MAX_RANKS];
    uint8_t is_far[MAX_RANKS][MAX_RANKS];
    struct gyre_plan_cache *caches[MAX_RANKS];
};

/* @sizes: ranks of each host; 0 ends the list. */
static void open_ranks(struct ranks *ranks, const int *sizes)
{
    memset(ranks, 0, sizeof(*ranks));
    for (; sizes[ranks->grouping.n_hosts] > 0; ranks->grouping.n_hosts++)
        for (int i = 0; i < sizes[ranks->grouping.n_hosts]; i++)
            ranks->grouping.host_of[ranks->n_ranks++] = ranks->grouping.n_hosts;
    const uint32_t n_hosts = ranks->grouping.n_hosts;
    const bool is_alone = n_hosts == ranks->n_ranks;
    struct gyre_peer_counts peers;
    struct gyre_tuner_facts facts = {.device_kind = GYRE_DEVICE_CUDA,
                                     .n_ranks = ranks->n_ranks,
                                     .n_hosts = n_hosts,
                                     .is_proxied = n_hosts > 1,
                                     .is_direct_inside = n_hosts > 1 && !is_alone,
                                     .is_ll128_safe = n_hosts == 1 || !is_alone,
                                     .min_channels = 1,
                                     .least_sms = 132,
                                     .grouping = &ranks->grouping};
    CHECK_OK(gyre_near_peers_count(&ranks->grouping, ranks->n_ranks, &peers));
    facts.spec =
        n_hosts == 1
            ? gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, ranks->n_ranks, false, 0, UINT32_MAX)
            : gyre_tuner_fifo_spec_across(GYRE_DEVICE_CUDA, &peers, false, true, 0, UINT32_MAX);
    facts.max_channels = facts.spec.n_fifos;
    for (int rank = 0; rank < ranks->n_ranks; rank++) {
        struct gyre_links *links = &ranks->links[rank];
        struct gyre_plan_cache *cache = calloc(1, sizeof(*cache));
        for (int peer = 0; peer < ranks->n_ranks; peer++)
            ranks->transport_of[rank][peer] =
                ranks->grouping.host_of[peer] == ranks->grouping.host_of[rank] ? P2P : IB;
        ranks->members[rank].rank = rank;
        ranks->members[rank].n_ranks = ranks->n_ranks;
        links->transport_of = ranks->transport_of[rank];
        links->is_far = ranks->is_far[rank];
        if (ranks->grouping.n_hosts > 1)
            CHECK_OK(gyre_near_peers_find(&ranks->grouping, ranks->n_ranks, rank, links->is_far));
        cache->self = &ranks->members[rank];
        cache->links = links;
        cache->facts = facts;
        uint32_t n = 0;
        for (int r = 0; r < ranks->n_ranks; r++)
            n += ranks->grouping.host_of[r] == ranks->grouping.host_of[rank];
        cache->n_ranks_inside = n;
        CHECK_OK(gyre_filter_parse("", "", "", &cache->filter));
        ranks->caches[rank] = cache;
    }
}

static struct gyre_call call_of(int peer, bool is_send, uint64_t count)
{
    return (struct gyre_call){.coll = GYRE_COLL_SEND_RECV,
                              .send = is_send ? (void *)0x1000 : NULL,
                              .recv = is_send ? NULL : (void *)0x2000,
                              .count = count,
                              .dtype = GYRE_INT8,
                              .op = GYRE_SUM,
                              .root = peer,
                              .is_send = is_send};
}

static void check_message(struct ranks *ranks, int from, int to, uint64_t count)
{
    const struct gyre_call send = call_of(to, true, count), recv = call_of(from, false, count);
    struct gyre_choice sends, receives;
    CHECK_OK(gyre_plan_choice(ranks->caches[from], &send, &sends));
    CHECK_OK(gyre_plan_choice(ranks->caches[to], &recv, &receives));
    CHECK_MSG(sends.proto == receives.proto && sends.net_proto == receives.net_proto &&
                  sends.n_channels == receives.n_channels &&
                  sends.tile_bytes == receives.tile_bytes,
              "rank %d to rank %d, %llu bytes: %s x%u of %u, %s x%u of %u", from, to,
              (unsigned long long)count, gyre_proto_names[sends.proto], sends.n_channels,
              sends.tile_bytes, gyre_proto_names[receives.proto], receives.n_channels,
              receives.tile_bytes);
}

TEST_CASE("both ends of a message choose the same")
{
    static const int hosts[][8] = {{2}, {3}, {8}, {1, 1}, {2, 2}, {1, 2, 4}, {3, 1, 1, 1}, {4, 4}};
    for (size_t h = 0; h < GYRE_ARRAY_LENGTH(hosts); h++) {
        struct ranks ranks;
        open_ranks(&ranks, hosts[h]);
        for (int from = 0; from < ranks.n_ranks; from++)
            for (int to = 0; to < ranks.n_ranks; to++)
                for (uint64_t count = 1; from != to && count < 1 << 25; count = count * 5 + 3)
                    check_message(&ranks, from, to, count);
        for (int rank = 0; rank < ranks.n_ranks; rank++)
            free(ranks.caches[rank]);
    }
}

static struct gyre_tuner_facts two_gpus(uint32_t n_sms)
{
    return (struct gyre_tuner_facts){
        .device_kind = GYRE_DEVICE_CUDA,
        .n_ranks = 2,
        .n_hosts = 1,
        .is_ll128_safe = true,
        .is_near = true,
        .min_channels = 1,
        .max_channels = 64,
        .least_sms = n_sms,
        .spec = gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, 2, false, 0, 64),
    };
}

TEST_CASE("the blocks of a group fit a GPU")
{
    struct gyre_tuner_facts facts = two_gpus(132);
    CHECK(gyre_tuner_pair_channels(&facts, GYRE_PROTO_LL128) == 64);
    CHECK(gyre_tuner_pair_channels(&facts, GYRE_PROTO_LL) == 32);
    /* A copy to the own rank runs beside them. */
    CHECK(gyre_tuner_pair_channels(&facts, GYRE_PROTO_SIMPLE) == 32);
    facts.least_sms = 127;
    CHECK(gyre_tuner_pair_channels(&facts, GYRE_PROTO_LL128) == 32);
    facts = two_gpus(132);
    facts.in_host_memory = true;
    CHECK(gyre_tuner_pair_channels(&facts, GYRE_PROTO_LL128) == 32);
    static const uint32_t sms[] = {16, 66, 108, 114, 132, 148};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(sms); i++)
        for (uint32_t n_ranks = 3; n_ranks <= 200; n_ranks++) {
            facts = two_gpus(sms[i]);
            facts.n_ranks = n_ranks;
            const uint32_t channels = gyre_tuner_pair_channels(&facts, GYRE_PROTO_LL128);
            const uint32_t n_blocks = channels * (2 * n_ranks - 1); /* with all, and a copy */
            CHECK_MSG(channels == 1 || (channels * n_ranks <= 64 && n_blocks <= sms[i]),
                      "%u ranks on %u multiprocessors: %u channels", n_ranks, sms[i], channels);
        }
    facts.device_kind = GYRE_DEVICE_HOST;
    CHECK(gyre_tuner_pair_channels(&facts, GYRE_PROTO_SIMPLE) == UINT32_MAX);
}
