/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of one thread, and the windows that they ask for.
 */
#include "core/nccl/nccl_shim.h"

static _Thread_local int group_depth;

/* Windows that the open group asks for. */
static _Thread_local struct nccl_window_wish wishes[64];
static _Thread_local size_t n_wishes;

int nccl_group_is_open(void)
{
    return group_depth > 0;
}

void nccl_group_forget(const gyre_comm *comm)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < n_wishes; i++)
        if (wishes[i].comm != comm)
            wishes[n_kept++] = wishes[i];
    n_wishes = n_kept;
}

/* Makes windows now; of several communicators side by side. */
static ncclResult_t make_windows(const struct nccl_window_wish *asked, size_t n_asked)
{
    char cause[NCCL_CAUSE_MAX_BYTES] = "";
    const gyre_status status = nccl_windows_make(asked, n_asked, cause, sizeof(cause));
    return status == GYRE_SUCCESS ? ncclSuccess : nccl_refuse(nccl_translate(status), cause);
}

ncclResult_t nccl_group_want_window(const struct nccl_window_wish *wish)
{
    if (group_depth == 0)
        return make_windows(wish, 1);
    if (n_wishes == sizeof(wishes) / sizeof(wishes[0]))
        return nccl_refuse(ncclInvalidUsage, "ncclCommWindowRegister: too many windows in a group");
    wishes[n_wishes++] = *wish;
    return ncclSuccess;
}

NCCL_EXPORT ncclResult_t pncclGroupStart(void)
{
    const gyre_status status = gyre_group_start();
    group_depth += status == GYRE_SUCCESS;
    return nccl_result_of(status);
}

NCCL_EXPORT ncclResult_t pncclGroupEnd(void)
{
    group_depth -= group_depth > 0;
    const ncclResult_t result = nccl_result_of(gyre_group_end());
    if (group_depth > 0 || n_wishes == 0)
        return result;
    const size_t n = n_wishes;
    n_wishes = 0;
    const ncclResult_t made = make_windows(wishes, n);
    return result == ncclSuccess ? made : result;
}

NCCL_EXPORT ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    double time_us;
    if (simInfo == NULL || simInfo->magic != NCCL_SIM_INFO_MAGIC ||
        simInfo->size < sizeof(*simInfo))
        return nccl_refuse(
            ncclInvalidArgument,
            "ncclGroupSimulateEnd: initialise simInfo with NCCL_SIM_INFO_INITIALIZER");
    const gyre_status status = gyre_group_simulate_end(&time_us);
    group_depth -= group_depth == 1;
    n_wishes = 0; /* nothing of the group is carried out */
    if (status == GYRE_SUCCESS)
        simInfo->estimatedTime = (float)time_us;
    return nccl_result_of(status);
}

NCCL_GROUP_FUNCTIONS(NCCL_ALIAS)
