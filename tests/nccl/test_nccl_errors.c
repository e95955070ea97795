/* SPDX-License-Identifier: Apache-2.0 */
#include "core/nccl/nccl_device.h"
#include "tests/nccl/clients.h"

#include <limits.h>
#include <stdint.h>

/* A thread that only polls, as torch's watchdog; also of a handle that is gone. */
TEST_ON_CLIENTS("the cause of an asynchronous failure is the last error", 2)
{
    client->has_ended = true;
    if (client->rank == 1) {
        NCCL_OK(ncclCommAbort(comm));
        return;
    }
    CHECK(wait_for_failure(comm) == ncclRemoteError);
    CHECK_HAS(ncclGetLastError(NULL), "aborted communicator");
    NCCL_OK(ncclCommDestroy(comm));
    CHECK_HAS(ncclGetLastError(comm), "aborted communicator");
}

static void check_config(const ncclConfig_t *asked, ncclResult_t expected, const char *words)
{
    ncclConfig_t config = *asked;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    NCCL_OK(ncclGetUniqueId(&id));
    const ncclResult_t result = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
    CHECK_MSG(result == expected, "%s: %d: %s", words, (int)result, ncclGetLastError(NULL));
    if (expected != ncclSuccess)
        CHECK_HAS(ncclGetLastError(NULL), words);
    NCCL_OK(ncclCommDestroy(comm));
}

TEST_CASE("a config is checked as NCCL does")
{
    const struct {
        size_t offset;
        int value;
        ncclResult_t expected;
        const char *words;
    } rows[] = {
        {offsetof(ncclConfig_t, maxCTAs), 128, ncclSuccess, "taken for 64"},
        {offsetof(ncclConfig_t, minCTAs), 65, ncclSuccess, "taken for 64"},
        {offsetof(ncclConfig_t, maxCTAs), 0, ncclInvalidArgument, "config.maxCTAs is 0"},
        {offsetof(ncclConfig_t, minCTAs), -1, ncclInvalidArgument, "config.minCTAs is -1"},
        {offsetof(ncclConfig_t, cgaClusterSize), -5, ncclInvalidArgument, "cgaClusterSize is -5"},
        {offsetof(ncclConfig_t, splitShare), 7, ncclInvalidArgument, "splitShare is 7"},
        {offsetof(ncclConfig_t, shrinkShare), 2, ncclInvalidArgument, "shrinkShare is 2"},
        {offsetof(ncclConfig_t, blocking), 2, ncclInvalidArgument, "blocking is 2"},
    };
    const ncclConfig_t blank = NCCL_CONFIG_INITIALIZER;
    ncclConfig_t config;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        config = blank;
        memcpy((char *)&config + rows[i].offset, &rows[i].value, sizeof(int));
        check_config(&config, rows[i].expected, rows[i].words);
    }
    config = blank;
    config.minCTAs = 100;
    config.maxCTAs = 80;
    check_config(&config, ncclInvalidArgument, "is above config.maxCTAs");
    config = blank;
    config.netName = "NoSuchPlugin";
    check_config(&config, ncclInvalidUsage, "those are IB and Socket");
}

TEST_CASE("a config that was not initialised is refused")
{
    const ncclConfig_t blank = NCCL_CONFIG_INITIALIZER;
    const struct {
        size_t size;
        unsigned magic, version;
        ncclResult_t expected;
    } rows[] = {
        {80, NCCL_CONFIG_MAGIC, 22809, ncclSuccess},
        {24, NCCL_CONFIG_MAGIC, 21400, ncclSuccess},
        {96, NCCL_CONFIG_MAGIC, 23203, ncclSuccess},
        {80, NCCL_CONFIG_MAGIC, 29999, ncclSuccess},
        {80, NCCL_CONFIG_MAGIC, 0, ncclInvalidArgument},
        {80, NCCL_CONFIG_MAGIC, 21399, ncclInvalidArgument},
        {80, NCCL_CONFIG_MAGIC, 30000, ncclInvalidArgument},
        {80, NCCL_CONFIG_MAGIC, 99999999, ncclInvalidArgument},
        {80, NCCL_CONFIG_MAGIC, UINT_MAX, ncclInvalidArgument},
        {80, 0, 22809, ncclInvalidArgument},
        {80, ~NCCL_CONFIG_MAGIC, 22809, ncclInvalidArgument},
        {0, NCCL_CONFIG_MAGIC, 22809, ncclInvalidArgument},
        {16, NCCL_CONFIG_MAGIC, 22809, ncclInvalidArgument},
        {1 << 20, NCCL_CONFIG_MAGIC, 22809, ncclInvalidArgument},
        {SIZE_MAX, NCCL_CONFIG_MAGIC, 22809, ncclInvalidArgument},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ncclConfig_t configs[2] = {blank, blank};
        configs[0].size = rows[i].size;
        configs[0].magic = rows[i].magic;
        configs[0].version = rows[i].version;
        check_config(&configs[0], rows[i].expected, "NCCL_CONFIG_INITIALIZER");
    }
    /* The caller's version did not have the field. */
    ncclConfig_t old = blank;
    old.minCTAs = -1;
    old.version = NCCL_VERSION(2, 14, 3);
    check_config(&old, ncclSuccess, "minCTAs came with 2.17");
    old.version = NCCL_VERSION(2, 17, 1);
    check_config(&old, ncclInvalidArgument, "minCTAs is -1");
}

static const char *net_name;

static void *join_with_net(void *argument)
{
    const struct client *client = argument;
    ncclComm_t comm = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    float one = 1.0F;
    config.netName = net_name;
    NCCL_OK(ncclCommInitRankConfig(&comm, 2, client->id, client->rank, &config));
    NCCL_OK(ncclAllReduce(&one, &one, 1, ncclFloat, ncclSum, comm, NULL));
    wait_for_stream();
    CHECK(one == 2.0F);
    NCCL_OK(ncclCommDestroy(comm));
    return NULL;
}

TEST_CASE("a network leaves ranks of one host alone")
{
    setenv("GYRE_IB_DISABLE", "1", 1);
    const char *const names[] = {"IB", "ib"};
    for (int i = 0; i < 2; i++) {
        net_name = names[i];
        start_clients(join_with_net, 2, 1);
    }
}

TEST_ON_CLIENTS("wrong arguments are refused and write nothing", 1)
{
    ncclComm_t none = comm;
    ncclRedOp_t op = ncclMaxRedOp;
    float one = 1.0F;
    ncclConfig_t bad = NCCL_CONFIG_INITIALIZER;
    bad.minCTAs = 0;
    CHECK(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, comm) ==
          ncclInvalidArgument);
    CHECK(op == ncclMaxRedOp);
    CHECK(ncclAllReduce(&one, &one, 1, ncclFloat, ncclMaxRedOp, comm, NULL) == ncclInvalidArgument);
    CHECK(ncclRedOpDestroy(ncclMaxRedOp, comm) == ncclInvalidArgument);
    CHECK(ncclCommSplit(NULL, 0, 0, &none, NULL) == ncclInvalidArgument && none == NULL);
    none = comm;
    CHECK(ncclCommSplit(comm, 0, 0, &none, &bad) == ncclInvalidArgument && none == NULL);
    none = comm;
    CHECK(ncclCommShrink(NULL, NULL, 0, &none, NULL, 0) == ncclInvalidArgument && none == NULL);
    none = comm;
    CHECK(ncclCommShrink(comm, NULL, 0, &none, &bad, 0) == ncclInvalidArgument && none == NULL);
}

TEST_CLIENT(refuse_for_all)
{
    ncclConfig_t bad = NCCL_CONFIG_INITIALIZER;
    bad.minCTAs = 0;
    for (int refuser = 0; refuser < client->n_ranks; refuser++) {
        ncclConfig_t *config = client->rank == refuser ? &bad : NULL;
        ncclComm_t none = comm;
        CHECK(ncclCommSplit(comm, 0, 0, &none, config) == ncclInvalidArgument && none == NULL);
        CHECK_HAS(ncclGetLastError(NULL), "minCTAs is 0");
        none = comm;
        CHECK(ncclCommShrink(comm, NULL, 0, &none, config, NCCL_SHRINK_DEFAULT) ==
                  ncclInvalidArgument &&
              none == NULL);
        CHECK_HAS(ncclGetLastError(NULL), "minCTAs is 0");
    }
}

TEST_CASE("a config that one rank gives wrong fails on all")
{
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "3600", 1); /* above this test's own limit */
    start_clients(refuse_for_all, 3, 1);
}

/* As torch does with a failed communicator. */
TEST_ON_CLIENTS("what a failed communicator has can be given back", 2)
{
    ncclWindow_t window = NULL;
    void *memory = NULL;
    NCCL_OK(ncclMemAlloc(&memory, 4096));
    NCCL_OK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK(window != NULL);
    NCCL_OK(ncclCommDeregister(comm, NULL));
    if (client->rank == 1) {
        NCCL_OK(ncclCommAbort(comm));
    } else {
        NCCL_OK(ncclCommWindowDeregister(comm, window)); /* ended by the abort */
        CHECK(wait_for_failure(comm) == ncclRemoteError);
        NCCL_OK(ncclCommWindowDeregister(comm, window));
        NCCL_OK(ncclCommDeregister(comm, NULL));
        NCCL_OK(ncclCommAbort(comm));
    }
    NCCL_OK(ncclMemFree(memory));
    client->has_ended = true;
}

/* The answer of a call that is refused, and its name in the last error. */
#define REFUSED(name, arguments, member, answer)   \
    do {                                           \
        CHECK((name arguments)member == (answer)); \
        CHECK_HAS(ncclGetLastError(NULL), #name);  \
    } while (0)

TEST_CASE("the device API is refused by name")
{
    const ncclTeam_t team = {2, 1, 1};
    REFUSED(ncclTeamWorld, (NULL), .nRanks, 0);
    REFUSED(ncclTeamLsa, (NULL), .nRanks, 0);
    REFUSED(ncclTeamRail, (NULL), .nRanks, 0);
    REFUSED(ncclTeamRankToWorld, (NULL, team, 0), , -1);
    REFUSED(ncclTeamRankToLsa, (NULL, team, 0), , -1);
    REFUSED(ncclLsaBarrierCreateRequirement, (team, 1, NULL, NULL), , ncclInvalidUsage);
    REFUSED(ncclGinBarrierCreateRequirement, (NULL, team, 1, NULL, NULL), , ncclInvalidUsage);
    REFUSED(ncclLLA2ACalcSlots, (8, 8), , -1);
    REFUSED(ncclLLA2ACreateRequirement, (1, 1, NULL, NULL), , ncclInvalidUsage);
    ncclResetDebugInit();
}

TEST_CASE("what follows a config's size is not read")
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    config.nvlsCTAs = -5;
    NCCL_OK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
    config.size = offsetof(ncclConfig_t, nvlsCTAs);
    NCCL_OK(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
    NCCL_OK(ncclCommDestroy(comm));
}
