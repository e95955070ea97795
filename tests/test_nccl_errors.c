/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL's interface says of failures and wrong arguments, on the host device.
 */
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
    ncclResult_t result = ncclSuccess;
    while (result == ncclSuccess)
        CHECK(ncclCommGetAsyncError(comm, &result) == ncclSuccess);
    CHECK(result == ncclRemoteError);
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

static const struct test_case cases[] = {
    {"the cause of an asynchronous failure is the last error",
     the_cause_of_an_asynchronous_failure_is_the_last_error},
};

TEST_MAIN(cases)
