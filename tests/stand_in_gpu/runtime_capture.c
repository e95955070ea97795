/* SPDX-License-Identifier: Apache-2.0
 *
 * A captured graph does not change, so its executable form shares it. Each launch makes a task of
 * every node, between a first and a last task. A capture begins on one stream. Others take part
 * once they wait for an event that was recorded in it. All add nodes to one graph.
 */
#include "tests/stand_in_gpu/runtime.h"

#include <stdlib.h>
#include <string.h>

struct CUgraphExec_st {
    cudaGraph_t graph;
    struct stand_in_task *last; /* of the latest launch */
};

static void release_graph(cudaGraph_t graph)
{
    if (--graph->n_users > 0)
        return;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        stand_in_op_free(&graph->nodes[i]->op);
        free(graph->nodes[i]->edges);
        free(graph->nodes[i]);
    }
    free(graph->nodes);
    free(graph);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (graph == NULL)
        return stand_in_result(cudaErrorInvalidValue);
    stand_in_enter();
    release_graph(graph);
    return stand_in_leave(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec_out, cudaGraph_t graph,
                                 unsigned long long flags)
{
    if (graph == NULL)
        return stand_in_result(cudaErrorInvalidValue);
    if (flags != 0)
        return stand_in_result(cudaErrorNotSupported);
    cudaGraphExec_t exec = stand_in_realloc(NULL, sizeof(*exec));
    stand_in_enter();
    *exec = (struct CUgraphExec_st){.graph = graph};
    graph->n_users++;
    *exec_out = exec;
    return stand_in_leave(cudaSuccess);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec_out, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return cudaGraphInstantiate(exec_out, graph, flags);
}

/* Launches go on: their tasks need nothing of it. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    if (exec == NULL)
        return stand_in_result(cudaErrorInvalidValue);
    stand_in_enter();
    stand_in_task_set(&exec->last, NULL);
    release_graph(exec->graph);
    free(exec);
    return stand_in_leave(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t handle)
{
    stand_in_enter();
    const bool is_known = exec != NULL && stand_in_stream_find(handle) != NULL;
    return stand_in_leave(is_known ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    stand_in_enter();
    struct CUstream_st *stream = stand_in_stream_find(handle);
    if (exec == NULL || stream == NULL)
        return stand_in_leave(cudaErrorInvalidResourceHandle);
    if (stream->capture != NULL)
        return stand_in_leave(cudaErrorNotSupported); /* a graph within a graph */
    /* Each node stands behind those that it depends on. */
    const struct stand_in_op nothing = {.kind = STAND_IN_NOTHING, .gpu = stream->gpu};
    struct stand_in_task *first = stand_in_task_new(&nothing, stream->number);
    struct stand_in_task *last = stand_in_task_new(&nothing, stream->number);
    const struct CUgraph_st *graph = exec->graph;
    stand_in_stream_append(stream, first);
    stand_in_task_follow(first, exec->last);
    for (size_t i = 0; i < graph->n_nodes; i++) {
        cudaGraphNode_t node = graph->nodes[i];
        node->task = stand_in_task_new(&node->op, stream->number);
        for (size_t k = 0; k < node->n_edges; k++)
            stand_in_task_follow(node->task, node->edges[k].from->task);
        if (node->n_edges == 0)
            stand_in_task_follow(node->task, first);
        if (!node->is_followed)
            stand_in_task_follow(last, node->task);
    }
    stand_in_stream_append(stream, last);
    stand_in_task_set(&exec->last, last);
    for (size_t i = 0; i < graph->n_nodes; i++)
        stand_in_task_start(graph->nodes[i]->task);
    stand_in_task_start(last);
    stand_in_task_start(first);
    return stand_in_leave(cudaSuccess);
}

static cudaGraphEdgeData edge_data(const struct stand_in_edge *edge)
{
    cudaGraphEdgeData data = {0};
    if (edge->overlaps) {
        data.type = cudaGraphDependencyTypeProgrammatic;
        data.from_port = cudaGraphKernelNodePortProgrammatic;
    }
    return data;
}

/* @n: becomes how many there are, or were stored. */
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from_out, cudaGraphNode_t *to_out,
                              cudaGraphEdgeData *data_out, size_t *n)
{
    const bool is_count = from_out == NULL || to_out == NULL;
    size_t n_edges = 0;
    for (size_t i = 0; i < graph->n_nodes; i++)
        for (size_t k = 0; k < graph->nodes[i]->n_edges; k++) {
            const struct stand_in_edge *edge = &graph->nodes[i]->edges[k];
            if (is_count || n_edges < *n) {
                if (!is_count) {
                    from_out[n_edges] = edge->from;
                    to_out[n_edges] = graph->nodes[i];
                    if (data_out != NULL)
                        data_out[n_edges] = edge_data(edge);
                }
                n_edges++;
            }
        }
    *n = n_edges;
    return cudaSuccess;
}

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
        release_graph(capture->graph);
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
