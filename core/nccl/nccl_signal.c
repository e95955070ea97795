/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's one-sided calls.
 */
#include "core/nccl/nccl_later.h"
#include "core/nccl/nccl_shim.h"

#include <stdio.h>
#include <stdlib.h>

NCCL_EXPORT ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr)
{
    ncclResult_t result;
    int rank = 0;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own == NULL)
        return result;
    if (outUserPtr == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclWinGetUserPtr: outUserPtr is NULL");
    result = nccl_result_of(gyre_comm_rank(own, &rank));
    if (result != ncclSuccess)
        return result;
    return nccl_result_of(
        gyre_window_address(own, (gyre_window)(uintptr_t)win, rank, outUserPtr, NULL));
}

/* gyre's number of a signal. A communicator has N_CONTEXTS contexts of as many signals. */
enum { N_CONTEXTS = 4, N_INDICES = GYRE_N_SIGNALS / N_CONTEXTS };

static ncclResult_t number_of(int index, int context, unsigned flags, int *signal_out)
{
    char text[160];
    if (flags != 0)
        return nccl_refuse(ncclInvalidArgument, "flags of a one-sided call must be 0");
    if (index < 0 || index >= N_INDICES || context < 0 || context >= N_CONTEXTS) {
        snprintf(text, sizeof(text), "signal %d of context %d: gyre has signals 0..%d of 0..%d",
                 index, context, N_INDICES - 1, N_CONTEXTS - 1);
        return nccl_refuse(ncclInvalidArgument, text);
    }
    *signal_out = context * N_INDICES + index;
    return ncclSuccess;
}

NCCL_EXPORT ncclResult_t pncclPutSignal(const void *localbuff, size_t count,
                                        ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                                        size_t peerWinOffset, int sigIdx, int ctx,
                                        unsigned int flags, ncclComm_t comm, cudaStream_t stream)
{
    gyre_put_target target = {peer, (gyre_window)(uintptr_t)peerWin, peerWinOffset, 0};
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own != NULL)
        result = number_of(sigIdx, ctx, flags, &target.signal);
    if (result == ncclSuccess)
        result =
            nccl_result_of(gyre_put(localbuff, count, (gyre_dtype)datatype, &target, own, stream));
    return nccl_group_note(result);
}

NCCL_EXPORT ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags,
                                     ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result;
    int signal = 0;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own != NULL)
        result = number_of(sigIdx, ctx, flags, &signal);
    if (result == ncclSuccess)
        result = nccl_result_of(gyre_signal(peer, signal, own, stream));
    return nccl_group_note(result);
}

static ncclResult_t wait_signals(int n_waits, const ncclWaitSignalDesc_t *asked, gyre_comm *own,
                                 cudaStream_t stream)
{
    if (n_waits < 0 || (n_waits > 0 && asked == NULL))
        return nccl_refuse(ncclInvalidArgument, "ncclWaitSignal: no list of descriptors");
    gyre_signal_wait *waits = calloc((size_t)n_waits + 1, sizeof(*waits));
    if (waits == NULL)
        return nccl_refuse(ncclSystemError, "out of host memory");
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < n_waits && result == ncclSuccess; i++) {
        waits[i].peer = asked[i].peer;
        waits[i].count = asked[i].opCnt;
        result = number_of(asked[i].sigIdx, asked[i].ctx, 0, &waits[i].signal);
    }
    if (result == ncclSuccess)
        result = nccl_result_of(gyre_wait_signal(waits, n_waits, own, stream));
    free(waits);
    return result;
}

NCCL_EXPORT ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs,
                                         ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own != NULL)
        result = wait_signals(nDesc, signalDescs, own, stream);
    return nccl_group_note(result);
}

NCCL_SIGNAL_FUNCTIONS(NCCL_ALIAS)
