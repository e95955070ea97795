/* SPDX-License-Identifier: Apache-2.0
 *
 * A captured graph does not change, so its executable form shares it. Each launch makes a task of
 * every node, between a first and a last task.
 */
#include "tests/stand_in_gpu/runtime.h"

#include <stdlib.h>

struct CUgraphExec_st {
    cudaGraph_t graph;
    struct stand_in_task *last; /* of the latest launch */
};

void stand_in_graph_release(cudaGraph_t graph)
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
    stand_in_graph_release(graph);
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
    stand_in_graph_release(exec->graph);
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
