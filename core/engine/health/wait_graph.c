/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks along the waits of workers, until they form a cycle or end.
 */
#include "core/engine/health/wait_graph.h"

#include <stdbool.h>
#include <string.h>

#define NOWHERE UINT32_MAX

static bool is_same(const struct gyre_wait_worker *a, const struct gyre_wait_worker *b)
{
    return a->work == b->work && a->channel == b->channel && a->worker == b->worker;
}

/* The edge of the worker that holds the other end of the connection. */
static uint32_t find_next(const struct gyre_wait_graph *graph, const struct gyre_wait_edge *edge)
{
    if (edge->answer != GYRE_PEER_END_HELD)
        return NOWHERE;
    for (uint32_t i = graph->first[edge->peer]; i < graph->first[edge->peer + 1]; i++)
        if (is_same(&graph->edges[i].worker, &edge->peer_worker))
            return i;
    return NOWHERE;
}

static enum gyre_wait_end end_of(const struct gyre_wait_edge *edge)
{
    if (edge->peer < 0)
        return GYRE_WAIT_ENDS_RUNNABLE;
    if (edge->answer == GYRE_PEER_END_MOVED)
        return GYRE_WAIT_ENDS_MOVED;
    return edge->answer == GYRE_PEER_END_FREE ? GYRE_WAIT_ENDS_FREE : GYRE_WAIT_ENDS_UNEXPLAINED;
}

struct gyre_wait_path gyre_wait_graph_walk(const struct gyre_wait_graph *graph, uint32_t start,
                                           uint32_t *edges_out, uint32_t *places)
{
    struct gyre_wait_path path = {0};
    memset(places, 0xff, graph->first[graph->n_ranks] * sizeof(*places)); /* NOWHERE */
    for (uint32_t at = start;;) {
        const struct gyre_wait_edge *edge = &graph->edges[at];
        places[at] = path.n_edges;
        edges_out[path.n_edges++] = at;
        const uint32_t next = edge->peer < 0 ? NOWHERE : find_next(graph, edge);
        if (next == NOWHERE) {
            path.end = end_of(edge);
            path.end_rank = edge->peer < 0 ? edge->rank : edge->peer;
            return path;
        }
        if (places[next] != NOWHERE) {
            path.end = GYRE_WAIT_ENDS_IN_CYCLE;
            path.end_rank = edge->peer;
            path.cycle_start = places[next];
            return path;
        }
        at = next;
    }
}
