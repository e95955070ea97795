/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/comm/puts_rig.h"

#include <cuda_runtime_api.h>

#define GPU_OK(call)                                                        \
    do {                                                                    \
        const cudaError_t error_ = (call);                                  \
        CHECK_MSG(error_ == cudaSuccess, "%s", cudaGetErrorString(error_)); \
    } while (0)

enum { COUNT = 100000, N_REPLAYS = 3 };

/* Puts go to the right; a signal back says that they were kept. */
struct ring {
    gyre_comm *comm;
    gyre_put_target target;
    gyre_signal_wait data_came;
    gyre_signal_wait was_kept;
    int *memory; /* the window */
    int *local;
    int *kept;
    cudaStream_t stream;
};

static void put_and_keep(const struct ring *ring)
{
    const gyre_stream stream = (gyre_stream)ring->stream;
    CHECK_OK(gyre_put(ring->local, COUNT, GYRE_INT32, &ring->target, ring->comm, stream));
    CHECK_OK(gyre_wait_signal(&ring->data_came, 1, ring->comm, stream));
    GPU_OK(cudaMemcpyAsync(ring->kept, ring->memory, COUNT * sizeof(int), cudaMemcpyDeviceToDevice,
                           ring->stream));
    CHECK_OK(gyre_signal(ring->data_came.peer, 6, ring->comm, stream));
    CHECK_OK(gyre_wait_signal(&ring->was_kept, 1, ring->comm, stream));
}

static cudaGraphExec_t capture(const struct ring *ring)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    GPU_OK(cudaStreamBeginCapture(ring->stream, cudaStreamCaptureModeThreadLocal));
    put_and_keep(ring);
    GPU_OK(cudaStreamEndCapture(ring->stream, &graph));
    GPU_OK(cudaGraphInstantiate(&ready, graph, 0));
    GPU_OK(cudaGraphDestroy(graph));
    return ready;
}

/* The counters go on through calls and all kinds of replays. */
static void replay(const struct ring *ring, int rank)
{
    const int left = ring->data_came.peer;
    cudaGraphExec_t graph = capture(ring);
    for (int round = 0; round < 3 * N_REPLAYS; round++) {
        puts_fill(ring->comm, ring->local, COUNT, rank, round);
        if (round / N_REPLAYS == 1)
            GPU_OK(cudaGraphLaunch(graph, ring->stream));
        else
            put_and_keep(ring);
        GPU_OK(cudaStreamSynchronize(ring->stream));
        puts_check(ring->comm, ring->kept, COUNT, left, round);
        for (int i = 0; round == 2 * N_REPLAYS - 1 && i < N_REPLAYS; i++)
            GPU_OK(cudaGraphLaunch(graph, ring->stream));
    }
    GPU_OK(cudaGraphExecDestroy(graph));
}

void puts_in_graphs(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    const int right = (rank + 1) % n_ranks, left = (rank + n_ranks - 1) % n_ranks;
    GPU_OK(cudaSetDevice(puts_ordinal(comm)));
    struct ring ring = {.comm = comm,
                        .data_came = {left, 5, 1},
                        .was_kept = {right, 6, 1},
                        .memory = puts_buffer(comm, COUNT),
                        .local = puts_buffer(comm, COUNT),
                        .kept = puts_buffer(comm, COUNT),
                        .stream = (cudaStream_t)puts_stream(comm)};
    const gyre_window window = puts_window(comm, ring.memory, COUNT);
    ring.target = (gyre_put_target){right, window, 0, 5};
    (void)argument;
    replay(&ring, rank);
    CHECK_OK(gyre_window_deregister(comm, window));
    CHECK_OK(gyre_stream_destroy((gyre_stream)ring.stream, GYRE_DEVICE_CUDA));
    puts_free(ring.kept);
    puts_free(ring.local);
    puts_free(ring.memory);
}
