/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL's interface says of failures and wrong arguments, on the host device.
 */
#include "core/nccl/nccl_device.h"
#include "tests/nccl/clients.h"

/* ---- the last error ----------------------------------------------------------------------- */

/* A thread that only polls, as torch's watchdog, learns the cause; also of a handle that is gone.
 */
static void *poll_for_a_cause(void *argument)
{
    const struct client *client = argument;
    ncclComm_t comm = join(client);
    if (client->rank == 1) {
        CHECK(ncclCommAbort(comm) == ncclSuccess);
        return NULL;
    }
    CHECK(wait_for_failure(comm) == ncclRemoteError);
    CHECK_MSG(strstr(ncclGetLastError(NULL), "aborted communicator") != NULL, "\"%s\"",
              ncclGetLastError(NULL));
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    CHECK(strstr(ncclGetLastError(comm), "aborted communicator") != NULL);
    return NULL;
}

static void the_cause_of_an_asynchronous_failure_is_the_last_error(void)
{
    start_clients(poll_for_a_cause, 2, 1);
}

/* ---- giving back -------------------------------------------------------------------------- */

/* As torch does before it destroys a communicator that failed. */
static void *give_back(void *argument)
{
    const struct client *client = argument;
    ncclComm_t comm = join(client);
    ncclWindow_t window = NULL;
    void *memory = NULL;
    CHECK(ncclMemAlloc(&memory, 4096) == ncclSuccess);
    CHECK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC) ==
          ncclSuccess);
    CHECK(window != NULL);
    CHECK(ncclCommDeregister(comm, NULL) == ncclSuccess);
    if (client->rank == 1) {
        CHECK(ncclCommAbort(comm) == ncclSuccess);
    } else {
        CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess); /* ended by the abort */
        CHECK(wait_for_failure(comm) == ncclRemoteError);
        CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess);
        CHECK(ncclCommDeregister(comm, NULL) == ncclSuccess);
        CHECK(ncclCommAbort(comm) == ncclSuccess);
    }
    CHECK(ncclMemFree(memory) == ncclSuccess);
    return NULL;
}

static void what_a_failed_communicator_has_can_be_given_back(void)
{
    start_clients(give_back, 2, 1);
}

/* ---- what gyre does not have -------------------------------------------------------------- */

static void check_refused(const char *name)
{
    CHECK_MSG(strstr(ncclGetLastError(NULL), name) != NULL, "%s: \"%s\"", name,
              ncclGetLastError(NULL));
}

static void the_device_api_and_revoking_are_refused_by_name(void)
{
    const ncclTeam_t team = {2, 1, 1};
    CHECK(ncclCommRevoke(NULL, NCCL_REVOKE_DEFAULT) == ncclInvalidUsage);
    check_refused("ncclCommRevoke");
    CHECK(ncclTeamWorld(NULL).nRanks == 0);
    check_refused("ncclTeamWorld");
    CHECK(ncclTeamLsa(NULL).nRanks == 0);
    check_refused("ncclTeamLsa");
    CHECK(ncclTeamRail(NULL).nRanks == 0);
    check_refused("ncclTeamRail");
    CHECK(ncclTeamRankToWorld(NULL, team, 0) == -1);
    check_refused("ncclTeamRankToWorld");
    CHECK(ncclTeamRankToLsa(NULL, team, 0) == -1);
    check_refused("ncclTeamRankToLsa");
    CHECK(ncclLsaBarrierCreateRequirement(team, 1, NULL, NULL) == ncclInvalidUsage);
    check_refused("ncclLsaBarrierCreateRequirement");
    CHECK(ncclGinBarrierCreateRequirement(NULL, team, 1, NULL, NULL) == ncclInvalidUsage);
    check_refused("ncclGinBarrierCreateRequirement");
    CHECK(ncclLLA2ACalcSlots(8, 8) == 0);
    check_refused("ncclLLA2ACalcSlots");
    CHECK(ncclLLA2ACreateRequirement(1, 1, NULL, NULL) == ncclInvalidUsage);
    check_refused("ncclLLA2ACreateRequirement");
    ncclResetDebugInit();
}

static const struct test_case cases[] = {
    {"the cause of an asynchronous failure is the last error",
     the_cause_of_an_asynchronous_failure_is_the_last_error},
    {"what a failed communicator has can be given back",
     what_a_failed_communicator_has_can_be_given_back},
    {"the device API and revoking are refused by name",
     the_device_api_and_revoking_are_refused_by_name},
};

TEST_MAIN(cases)
