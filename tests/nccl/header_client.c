/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of two threads that uses what its nccl.h declares. tests/nccl/clients.py compiles it
 * against gyre's header and those of NCCL's releases; it runs on gyre's libnccl.so.2, on the host
 * device.
 */
#include <nccl.h>
#ifdef CLIENT_OF_GYRE
#include "core/nccl/nccl_later.h"
#define HEADER_VERSION 23203
#else
#define HEADER_VERSION NCCL_VERSION_CODE
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* What cudaStreamSynchronize is on GPUs. */
int gyre_stream_synchronize(void *stream, int kind);

static ncclUniqueId id, growth_id;

static void must(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "not true: %s: %s\n", what, ncclGetLastError(NULL));
    exit(1);
}

#define MUST(condition) must(condition, #condition)
#define OK(call)        must((call) == ncclSuccess, #call)

static void synchronize(void)
{
    MUST(gyre_stream_synchronize(NULL, 1) == 0);
}

static void check_collectives(ncclComm_t comm, int rank, int n_ranks)
{
    float in[2], out[4];
    in[0] = (float)(rank + 1);
    in[1] = 2;
    OK(ncclAllReduce(in, out, 2, ncclFloat, ncclSum, comm, NULL));
    synchronize();
    MUST(out[0] == (float)(n_ranks * (n_ranks + 1) / 2) && out[1] == (float)(2 * n_ranks));
#if HEADER_VERSION >= 23100
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    config.algSelection = "ring";
    OK(ncclAllReduceConfig(in, out, 2, ncclFloat, ncclMax, comm, NULL, &config));
    synchronize();
    MUST(out[0] == (float)n_ranks && out[1] == 2);
#endif
}

#if HEADER_VERSION >= 22900
static void *join_growth(void *argument)
{
    ncclComm_t grown = NULL;
    OK(ncclCommGrow(NULL, 3, &growth_id, 2, &grown, argument));
    check_collectives(grown, 2, 3);
    OK(ncclCommDestroy(grown));
    return NULL;
}

#endif

static void *run(void *argument)
{
    const int rank = (int)(intptr_t)argument;
    ncclComm_t comm = NULL, half = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state = ncclInternalError;
    config.maxCTAs = 2;
    config.commName = "client";
    OK(ncclCommInitRankConfig(&comm, 2, id, rank, &config));
    check_collectives(comm, rank, 2);
    OK(ncclCommSplit(comm, rank, 0, &half, NULL));
    check_collectives(half, 0, 1);
    OK(ncclCommDestroy(half));
#if HEADER_VERSION >= 22900
    {
        ncclComm_t grown = NULL;
        ncclWindow_t window = NULL;
        int *memory = NULL;
        void *found = NULL;
        int value = 40 + rank;
        uint64_t n_bytes = 1;
        pthread_t newcomer;
        OK(ncclMemAlloc((void **)&memory, 4096));
        OK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
        OK(ncclWinGetUserPtr(comm, window, &found));
        MUST(found == (void *)memory);
        ncclWaitSignalDesc_t wait = {1, 1 - rank, 0, 0};
        OK(ncclPutSignal(&value, 1, ncclInt, 1 - rank, window, 8, 0, 0, 0, comm, NULL));
        OK(ncclWaitSignal(1, &wait, comm, NULL));
        synchronize();
        MUST(memory[2] == 41 - rank);
        OK(ncclCommMemStats(comm, ncclStatGpuMemTotal, &n_bytes));
        OK(ncclCommWindowDeregister(comm, window));
        OK(ncclMemFree(memory));
        if (rank == 0) {
            OK(ncclCommGetUniqueId(comm, &growth_id));
            pthread_create(&newcomer, NULL, join_growth, &config);
        }
        OK(ncclCommGrow(comm, 3, rank == 0 ? &growth_id : NULL, -1, &grown, &config));
        check_collectives(grown, rank, 3);
        OK(ncclCommDestroy(grown));
        if (rank == 0)
            pthread_join(newcomer, NULL);
    }
#endif
    OK(ncclCommGetAsyncError(comm, &state));
    MUST(state == ncclSuccess);
    OK(ncclCommFinalize(comm));
    OK(ncclCommDestroy(comm));
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    int version = 0;
    OK(ncclGetVersion(&version));
    OK(ncclGetUniqueId(&id));
    for (int rank = 0; rank < 2; rank++)
        pthread_create(&threads[rank], NULL, run, (void *)(intptr_t)rank);
    for (int rank = 0; rank < 2; rank++)
        pthread_join(threads[rank], NULL);
#if HEADER_VERSION >= 23000
    ncclParamHandle_t handle = NULL;
    const char *text = NULL;
    OK(ncclParamBind(&handle, "NCCL_DEBUG"));
    OK(ncclParamGetStr(handle, &text));
#endif
#if HEADER_VERSION >= 23200
    const ncclEncryptionConfig_t plain = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
    OK(ncclSetEncryption(&plain));
#endif
    printf("header %d, library %d\n", HEADER_VERSION, version);
    return 0;
}
