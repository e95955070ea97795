/* SPDX-License-Identifier: Apache-2.0
 *
 * The waits-for graph of a call that makes no progress. Its nodes are the workers of all ranks, and
 * an edge leads from a worker that waits to the worker of another rank that holds the other end of
 * the connection. A worker waits for one thing at a time, so at most one edge leaves a node, and a
 * walk along the edges finds the cause: a cycle, or the place where the edges end. Pure.
 */
#ifndef GYRE_HEALTH_WAIT_GRAPH_H
#define GYRE_HEALTH_WAIT_GRAPH_H

#include <stdint.h>

/* A worker waits for one slot: for its arrival, or for its credit. The rank at the other end of the
 * connection (the peer) is asked about that slot. This is the peer's answer. */
enum gyre_peer_end {
    GYRE_PEER_END_UNKNOWN, /* the peer has not answered, or its executor cannot tell */
    GYRE_PEER_END_MOVED,   /* the peer has sent the slot, or consumed it */
    GYRE_PEER_END_HELD,    /* the peer has not, but one of its workers that uses the connection has
                            * not finished and may still do so */
    GYRE_PEER_END_FREE,    /* the peer has not, and none of its unfinished workers uses the
                            * connection */
    GYRE_N_PEER_ENDS
};

/* A worker within its rank. Also exchanged between ranks: fixed layout. */
struct gyre_wait_worker {
    uint16_t work; /* of the launch */
    uint16_t channel;
    uint16_t worker;
    uint16_t pad;
};

/* A worker that has not finished. */
struct gyre_wait_edge {
    int rank;
    int peer; /* rank that it waits for; -1 = none, its step can run */
    struct gyre_wait_worker worker;
    struct gyre_wait_worker peer_worker; /* HELD: the worker of `peer` that uses the connection */
    enum gyre_peer_end answer;
};

struct gyre_wait_graph {
    int n_ranks;
    const struct gyre_wait_edge *edges; /* ranks in ascending order */
    const uint32_t
        *first; /* n_ranks + 1 entries: rank r's edges are first[r] to first[r + 1] - 1 */
};

/* Why a walk ended. */
enum gyre_wait_end {
    GYRE_WAIT_ENDS_IN_CYCLE,    /* the last edge leads to edges[cycle_start] of the path */
    GYRE_WAIT_ENDS_RUNNABLE,    /* the last edge's worker waits for nothing */
    GYRE_WAIT_ENDS_MOVED,       /* the awaited rank has moved the slot; it has not arrived */
    GYRE_WAIT_ENDS_FREE,        /* no worker of the awaited rank will move the slot as it stands */
    GYRE_WAIT_ENDS_UNEXPLAINED, /* nothing is known of the worker that is waited for */
};

struct gyre_wait_path {
    uint32_t n_edges; /* at least 1 */
    uint32_t cycle_start;
    int end_rank; /* the rank that the last edge waits for, or whose worker can run */
    enum gyre_wait_end end;
};

/** gyre_wait_graph_walk - follow the waits from one edge.
 * @start: index of an edge.
 * @edges_out: as many entries as the graph has edges; receives the path's edges, in order.
 * @places: as many entries; scratch. */
struct gyre_wait_path gyre_wait_graph_walk(const struct gyre_wait_graph *graph, uint32_t start,
                                           uint32_t *edges_out, uint32_t *places);

#endif
