/* SPDX-License-Identifier: Apache-2.0
 *
 * A capture begins on one stream. Others take part once they wait for an event that was recorded in
 * it. All add nodes to one graph.
 */
#include "tests/stand_in_gpu/runtime.h"

#include <stdlib.h>
#include <string.h>

static struct stand_in_capture *captures;
static unsigned long long n_captures;
static _Thread_local enum cudaStreamCaptureMode own_mode = cudaStreamCaptureModeGlobal;

static bool has_node(const struct stand_in_nodes *nodes, cudaGraphNode_t node)
{
    for (size_t i = 0; i < nodes->n; i++)
        if (nodes->nodes[i] == node)
            return true;
    return false;
}

void stand_in_nodes_add(struct stand_in_nodes *nodes, const struct stand_in_nodes *more)
{
    nodes->nodes = stand_in_realloc(nodes->nodes, (nodes->n + more->n) * sizeof(cudaGraphNode_t));
    for (size_t i = 0; i < more->n; i++)
        if (!has_node(nodes, more->nodes[i]))
            nodes->nodes[nodes->n++] = more->nodes[i];
}

void stand_in_nodes_clear(struct stand_in_nodes *nodes)
{
    free(nodes->nodes);
    *nodes = (struct stand_in_nodes){0};
}

static bool forbids(const struct stand_in_capture *capture)
{
    if (capture->mode == cudaStreamCaptureModeRelaxed || own_mode == cudaStreamCaptureModeRelaxed)
        return false;
    if (pthread_equal(capture->thread, pthread_self()))
        return true;
    return capture->mode == cudaStreamCaptureModeGlobal && own_mode == cudaStreamCaptureModeGlobal;
}

cudaError_t stand_in_capture_check(void)
{
    cudaError_t error = cudaSuccess;
    for (struct stand_in_capture *capture = captures; capture != NULL; capture = capture->next)
        if (forbids(capture)) {
            capture->is_invalid = true;
            error = cudaErrorStreamCaptureUnsupported;
        }
    return error;
}

cudaError_t stand_in_capture_refuse(struct CUstream_st *stream)
{
    if (stream->capture == NULL)
        return cudaSuccess;
    stream->capture->is_invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t stand_in_capture_add(struct CUstream_st *stream, const struct stand_in_op *op,
                                 bool overlaps)
{
    if (stream->capture->is_invalid)
        return cudaErrorStreamCaptureInvalidated;
    /* A launch overlaps with a kernel only. */
    const cudaGraph_t graph = stream->capture->graph;
    cudaGraphNode_t node = stand_in_realloc(NULL, sizeof(*node));
    *node = (struct CUgraphNode_st){.op = stand_in_op_copy(op), .n_edges = stream->heads.n};
    node->edges = stand_in_realloc(NULL, stream->heads.n * sizeof(*node->edges));
    for (size_t i = 0; i < stream->heads.n; i++) {
        cudaGraphNode_t from = stream->heads.nodes[i];
        from->is_followed = true;
        node->edges[i] = (struct stand_in_edge){from, overlaps && from->op.kind == STAND_IN_KERNEL};
    }
    graph->nodes = stand_in_realloc(graph->nodes, (graph->n_nodes + 1) * sizeof(cudaGraphNode_t));
    graph->nodes[graph->n_nodes++] = node;
    stand_in_nodes_clear(&stream->heads);
    stand_in_nodes_add(&stream->heads, &(struct stand_in_nodes){&node, 1});
    return cudaSuccess;
}

struct stand_in_capture *stand_in_capture_find(unsigned long long id)
{
    struct stand_in_capture *capture = captures;
    while (capture != NULL && capture->id != id)
        capture = capture->next;
    return capture;
}

cudaError_t stand_in_capture_join(struct CUstream_st *stream, struct stand_in_capture *capture,
                                  const struct stand_in_nodes *nodes)
{
    if (capture->is_invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (stream->number == 0)
        return cudaErrorStreamCaptureUnsupported;
    if (stream->capture != NULL && stream->capture != capture) {
        stream->capture->is_invalid = capture->is_invalid = true;
        return cudaErrorStreamCaptureMerge;
    }
    stream->capture = capture;
    stand_in_nodes_add(&stream->heads, nodes);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    stand_in_enter();
    struct CUstream_st *stream = stand_in_stream_find(handle);
    if (stream == NULL)
        return stand_in_leave(cudaErrorInvalidResourceHandle);
    if (stream->number == 0)
        return stand_in_leave(cudaErrorStreamCaptureUnsupported);
    if (stream->capture != NULL)
        return stand_in_leave(cudaErrorIllegalState);
    struct stand_in_capture *capture = stand_in_realloc(NULL, sizeof(*capture));
    cudaGraph_t graph = stand_in_realloc(NULL, sizeof(*graph));
    *graph = (struct CUgraph_st){.n_users = 1};
    *capture = (struct stand_in_capture){.next = captures,
                                         .id = ++n_captures,
                                         .mode = mode,
                                         .thread = pthread_self(),
                                         .origin = stream,
                                         .graph = graph};
    captures = capture;
    stream->capture = capture;
    return stand_in_leave(cudaSuccess);
}

/* The first stream would follow every node that nothing follows. */
static bool is_joined(const struct stand_in_capture *capture)
{
    const struct CUgraph_st *graph = capture->graph;
    for (size_t i = 0; i < graph->n_nodes; i++)
        if (!graph->nodes[i]->is_followed && !has_node(&capture->origin->heads, graph->nodes[i]))
            return false;
    return true;
}

static void remove_capture(struct stand_in_capture *capture)
{
    struct stand_in_capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    for (struct CUstream_st *stream = stand_in_streams; stream != NULL; stream = stream->next)
        if (stream->capture == capture) {
            stream->capture = NULL;
            stand_in_nodes_clear(&stream->heads);
        }
    free(capture);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph_out)
{
    cudaError_t error = cudaSuccess;
    stand_in_enter();
    *graph_out = NULL;
    struct CUstream_st *stream = stand_in_stream_find(handle);
    struct stand_in_capture *capture = stream != NULL ? stream->capture : NULL;
    if (capture == NULL)
        return stand_in_leave(cudaErrorIllegalState);
    if (capture->origin != stream)
        return stand_in_leave(cudaErrorStreamCaptureUnmatched);
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        !pthread_equal(capture->thread, pthread_self()))
        return stand_in_leave(cudaErrorStreamCaptureWrongThread);
    if (capture->is_invalid)
        error = cudaErrorStreamCaptureInvalidated;
    else if (!is_joined(capture))
        error = cudaErrorStreamCaptureUnjoined;
    if (error == cudaSuccess)
        *graph_out = capture->graph;
    else
        stand_in_graph_release(capture->graph);
    remove_capture(capture);
    return stand_in_leave(error);
}

static enum cudaStreamCaptureStatus status_of(const struct CUstream_st *stream)
{
    if (stream->capture == NULL)
        return cudaStreamCaptureStatusNone;
    return stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status_out)
{
    stand_in_enter();
    const struct CUstream_st *stream = stand_in_stream_find(handle);
    if (stream == NULL)
        return stand_in_leave(cudaErrorInvalidResourceHandle);
    *status_out = status_of(stream);
    return stand_in_leave(cudaSuccess);
}

/* NULL: plain edges to the next node. */
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status_out,
                                     unsigned long long *id_out, cudaGraph_t *graph_out,
                                     const cudaGraphNode_t **nodes_out,
                                     const cudaGraphEdgeData **edges_out, size_t *n_nodes_out)
{
    stand_in_enter();
    const struct CUstream_st *stream = stand_in_stream_find(handle);
    if (stream == NULL)
        return stand_in_leave(cudaErrorInvalidResourceHandle);
    *status_out = status_of(stream);
    if (*status_out != cudaStreamCaptureStatusActive)
        return stand_in_leave(cudaSuccess);
    if (id_out != NULL)
        *id_out = stream->capture->id;
    if (graph_out != NULL)
        *graph_out = stream->capture->graph;
    if (nodes_out != NULL)
        *nodes_out = stream->heads.nodes;
    if (edges_out != NULL)
        *edges_out = NULL;
    if (n_nodes_out != NULL)
        *n_nodes_out = stream->heads.n;
    return stand_in_leave(cudaSuccess);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    const enum cudaStreamCaptureMode before = own_mode;
    own_mode = *mode;
    *mode = before;
    return cudaSuccess;
}
