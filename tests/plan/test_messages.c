/* SPDX-License-Identifier: Apache-2.0
 *
 * How sends and receives are carried out: protocol, channels and messages over RDMA.
 */
#include "core/foundation/base/util.h"
#include "core/engine/links/fifo_spec.h"
#include "core/engine/plan/tuner/tuner.h"
#include "tests/support/check.h"

/* Two GPUs of one host, each with so many multiprocessors. */
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

static struct gyre_choice choose(const struct gyre_tuner_facts *communicator, uint64_t n_bytes)
{
    const struct gyre_tuner_pair pair = {.n_ranks_inside = 2,
                                         .is_near = communicator->is_near,
                                         .is_proxied = communicator->is_proxied};
    const struct gyre_tuner_facts facts = gyre_tuner_facts_of_pair(communicator, &pair);
    struct gyre_filter any;
    struct gyre_choice choice = {.algorithm = NULL};
    CHECK_OK(gyre_filter_parse("", "", "", &any));
    CHECK_OK(gyre_tuner_choose(&facts, &any, GYRE_COLL_SEND_RECV, n_bytes, &choice));
    return choice;
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

/* With half as many channels, 4 MiB are faster by SIMPLE. */
TEST_CASE("long messages go by lines where there are channels for them")
{
    const struct gyre_tuner_facts many = two_gpus(132), few = two_gpus(114);
    CHECK(choose(&many, 2 << 20).proto == GYRE_PROTO_LL128);
    CHECK(choose(&few, 2 << 20).proto == GYRE_PROTO_LL128);
    CHECK(choose(&many, 4 << 20).proto == GYRE_PROTO_LL128);
    CHECK(choose(&many, 4 << 20).n_channels == 64);
    CHECK(choose(&few, 4 << 20).proto == GYRE_PROTO_SIMPLE);
    CHECK(choose(&many, 8 << 20).proto == GYRE_PROTO_LL128);
    CHECK(choose(&few, 8 << 20).proto == GYRE_PROTO_SIMPLE);
    CHECK(choose(&many, 16 << 20).proto == GYRE_PROTO_SIMPLE);
}

TEST_CASE("messages over RDMA are long")
{
    struct gyre_tuner_facts facts = two_gpus(132);
    facts.n_hosts = 2;
    facts.is_proxied = true;
    facts.is_near = facts.is_ll128_safe = false;
    CHECK(choose(&facts, 1 << 10).n_channels == 1);
    CHECK(choose(&facts, 128 << 10).n_channels == 2);
    CHECK(choose(&facts, 256 << 10).n_channels == 4);
    CHECK(choose(&facts, 1 << 20).n_channels == 4);
    CHECK(choose(&facts, 4 << 20).n_channels == 16);
    facts.is_tcp = true;
    CHECK(choose(&facts, 1 << 20).n_channels == 16);
}
