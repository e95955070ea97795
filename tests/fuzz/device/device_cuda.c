/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/device/device.h"

#include "tests/support/gpus.h"

#include <cuda_runtime_api.h>

#define TRY(expression)                          \
    do {                                         \
        const cudaError_t error_ = (expression); \
        if (error_ != cudaSuccess)               \
            return cudaGetErrorString(error_);   \
    } while (0)

static const char *use(int ordinal)
{
    TRY(cudaSetDevice(ordinal));
    return NULL;
}

static const char *write_device(void *to, const void *host, size_t n_bytes, gyre_stream stream)
{
    TRY(cudaMemcpyAsync(to, host, n_bytes, cudaMemcpyHostToDevice, (cudaStream_t)stream));
    TRY(cudaStreamSynchronize((cudaStream_t)stream));
    return NULL;
}

static const char *read_device(void *host, const void *from, size_t n_bytes, gyre_stream stream)
{
    TRY(cudaMemcpyAsync(host, from, n_bytes, cudaMemcpyDeviceToHost, (cudaStream_t)stream));
    TRY(cudaStreamSynchronize((cudaStream_t)stream));
    return NULL;
}

static const char *follow(gyre_stream later, gyre_stream earlier)
{
    cudaEvent_t event;
    TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    TRY(cudaEventRecord(event, (cudaStream_t)earlier));
    TRY(cudaStreamWaitEvent((cudaStream_t)later, event, 0));
    TRY(cudaEventDestroy(event));
    return NULL;
}

static const char *capture(gyre_stream *streams, int n_streams)
{
    TRY(cudaStreamBeginCapture((cudaStream_t)streams[0], cudaStreamCaptureModeThreadLocal));
    for (int i = 1; i < n_streams; i++) {
        const char *failure = follow(streams[i], streams[0]);
        if (failure != NULL)
            return failure;
    }
    return NULL;
}

static const char *end_capture(gyre_stream *streams, int n_streams, void **graph_out)
{
    cudaGraph_t captured;
    cudaGraphExec_t graph;
    for (int i = 1; i < n_streams; i++) {
        const char *failure = follow(streams[0], streams[i]);
        if (failure != NULL)
            return failure;
    }
    TRY(cudaStreamEndCapture((cudaStream_t)streams[0], &captured));
    TRY(cudaGraphInstantiate(&graph, captured, 0));
    TRY(cudaGraphDestroy(captured));
    *graph_out = graph;
    return NULL;
}

static const char *launch(void *graph, gyre_stream stream)
{
    TRY(cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream));
    return NULL;
}

static const char *destroy_graph(void *graph)
{
    TRY(cudaGraphExecDestroy((cudaGraphExec_t)graph));
    return NULL;
}

const struct fuzz_device fuzz_device_cuda = {
    .name = "cuda",
    .kind = GYRE_DEVICE_CUDA,
    .has_graphs = true,
    .count = test_n_gpus,
    .use = use,
    .write = write_device,
    .read = read_device,
    .capture = capture,
    .end_capture = end_capture,
    .launch = launch,
    .destroy_graph = destroy_graph,
};
