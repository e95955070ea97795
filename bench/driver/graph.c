/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/driver/graph.h"

#include "core/foundation/base/status.h"

#ifdef GYRE_WITH_CUDA

#include "core/foundation/device/cuda_error.h"

#include <stdlib.h>

struct bench_graph {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
};

gyre_status bench_graph_begin(gyre_stream stream)
{
    /* other rank threads may allocate meanwhile */
    GYRE_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    return GYRE_SUCCESS;
}

gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out)
{
    cudaGraph_t captured = NULL;
    GYRE_CUDA_TRY(cudaStreamEndCapture(stream, &captured));
    gyre_status status = GYRE_SUCCESS;
    struct bench_graph *graph = calloc(1, sizeof(*graph));
    if (graph == NULL) {
        (void)cudaGraphDestroy(captured);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a graph");
    }
    graph->graph = captured;
    GYRE_CUDA_TRY_GOTO(status, cudaGraphInstantiateWithFlags(&graph->executable, captured, 0),
                       close_graph);
    *graph_out = graph;
    return GYRE_SUCCESS;
close_graph:
    bench_graph_close(graph);
    return status;
}

gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream)
{
    GYRE_CUDA_TRY(cudaGraphLaunch(graph->executable, stream));
    return GYRE_SUCCESS;
}

void bench_graph_close(struct bench_graph *graph)
{
    if (graph == NULL)
        return;
    if (graph->executable != NULL)
        (void)cudaGraphExecDestroy(graph->executable);
    (void)cudaGraphDestroy(graph->graph);
    free(graph);
}

#else

gyre_status bench_graph_begin(gyre_stream stream)
{
    (void)stream;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "-G: this bench was built without CUDA");
}

gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out)
{
    (void)graph_out;
    return bench_graph_begin(stream);
}

gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream)
{
    (void)graph;
    return bench_graph_begin(stream);
}

void bench_graph_close(struct bench_graph *graph)
{
    (void)graph;
}

#endif
