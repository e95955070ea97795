/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/health/watch.h"
#include "tests/support/check.h"

enum { MAX_EDGES = 4096, MAX_RANKS = 2048 };

#define UNKNOWN GYRE_PEER_END_UNKNOWN
#define MOVED   GYRE_PEER_END_MOVED
#define HELD    GYRE_PEER_END_HELD

/* One worker a rank by default. Edges are added by ascending rank. */
struct graph {
    struct gyre_wait_graph graph;
    struct gyre_wait_edge edges[MAX_EDGES];
    uint32_t first[MAX_RANKS + 1];
    uint32_t n_edges;
    uint32_t path[MAX_EDGES];
    uint32_t places[MAX_EDGES];
};

static struct graph drawn; /* too large for a stack */

static void begin(int n_ranks)
{
    memset(&drawn, 0, sizeof(drawn));
    drawn.graph = (struct gyre_wait_graph){n_ranks, drawn.edges, drawn.first};
}

static void edge(int rank, int peer, enum gyre_peer_end answer)
{
    const struct gyre_wait_worker only = {0, 0, 0, 0};
    drawn.edges[drawn.n_edges++] = (struct gyre_wait_edge){rank, peer, only, only, answer};
    for (int r = rank + 1; r <= drawn.graph.n_ranks; r++)
        drawn.first[r] = drawn.n_edges;
}

static struct gyre_wait_path walk(uint32_t start)
{
    return gyre_wait_graph_walk(&drawn.graph, start, drawn.path, drawn.places);
}

TEST_CASE("a worker that waits for its own rank is a cycle of one")
{
    begin(1);
    edge(0, 0, HELD);
    const struct gyre_wait_path path = walk(0);
    CHECK(path.end == GYRE_WAIT_ENDS_IN_CYCLE && path.n_edges == 1 && path.cycle_start == 0);
}

TEST_CASE("a missing answer ends the chain without a guess")
{
    begin(3);
    edge(0, 1, UNKNOWN);
    edge(1, 2, HELD);
    edge(2, 1, HELD);
    const struct gyre_wait_path path = walk(0);
    CHECK(path.end == GYRE_WAIT_ENDS_UNEXPLAINED);
    CHECK(path.end_rank == 1 && path.n_edges == 1);
}

TEST_CASE("a rank that has told nothing ends the chain")
{
    begin(3);
    edge(0, 1, HELD); /* it answered, but not where its workers are */
    edge(2, 0, HELD);
    const struct gyre_wait_path path = walk(0);
    CHECK(path.end == GYRE_WAIT_ENDS_UNEXPLAINED);
    CHECK(path.end_rank == 1 && path.n_edges == 1);
}

TEST_CASE("a slot that was sent ends the chain, also where its sender waits")
{
    begin(3);
    edge(0, 1, HELD);
    edge(1, 2, MOVED);
    edge(2, 0, HELD);
    const struct gyre_wait_path path = walk(0);
    CHECK(path.end == GYRE_WAIT_ENDS_MOVED);
    CHECK(path.end_rank == 2 && path.n_edges == 2);
}

TEST_CASE("a worker whose step can run ends the chain")
{
    begin(2);
    edge(0, 1, HELD);
    edge(1, -1, UNKNOWN);
    const struct gyre_wait_path path = walk(0);
    CHECK(path.end == GYRE_WAIT_ENDS_RUNNABLE);
    CHECK(path.end_rank == 1 && path.n_edges == 2);
}

TEST_CASE("a ring of 2048 ranks is one cycle")
{
    begin(MAX_RANKS);
    for (int rank = 0; rank < MAX_RANKS; rank++)
        edge(rank, (rank + 1) % MAX_RANKS, HELD);
    const struct gyre_wait_path path = walk(5);
    CHECK(path.end == GYRE_WAIT_ENDS_IN_CYCLE);
    CHECK(path.n_edges == MAX_RANKS && path.cycle_start == 0 && path.end_rank == 5);
}
