/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the chain of a stalled call's waits ends.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE       UINT32_MAX
#define MAX_TOLD      3 /* printed from the chain's start */
#define MAX_IN_CYCLE  12
#define MAX_CALL_TEXT 160

struct gyre_wait_path gyre_wait_graph_walk(const struct gyre_wait_graph *graph, uint32_t start,
                                           uint32_t *edges_out, uint32_t *places)
{
    struct gyre_wait_path path = {0};
    memset(places, 0xff, graph->first[graph->n_ranks] * sizeof(*places)); /* NOWHERE */
    for (uint32_t at = start;;) {
        const struct gyre_wait_edge *edge = &graph->edges[at];
        places[at] = path.n_edges;
        edges_out[path.n_edges++] = at;
        /* The next edge is that of the worker that holds the connection's other end. */
        uint32_t next = NOWHERE;
        if (edge->peer >= 0 && edge->answer == GYRE_PEER_END_HELD)
            for (uint32_t i = graph->first[edge->peer];
                 i < graph->first[edge->peer + 1] && next == NOWHERE; i++)
                if (graph->edges[i].worker.work == edge->peer_worker.work &&
                    graph->edges[i].worker.channel == edge->peer_worker.channel &&
                    graph->edges[i].worker.worker == edge->peer_worker.worker)
                    next = i;
        if (next == NOWHERE) {
            path.end = edge->peer < 0                        ? GYRE_WAIT_ENDS_RUNNABLE
                       : edge->answer == GYRE_PEER_END_MOVED ? GYRE_WAIT_ENDS_MOVED
                       : edge->answer == GYRE_PEER_END_FREE  ? GYRE_WAIT_ENDS_FREE
                                                             : GYRE_WAIT_ENDS_UNEXPLAINED;
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

/* "waits for slot 41 from rank 2". @over: " over shm" or "". */
static void append_cause(const struct gyre_position *position, const char *over, char *text,
                         size_t text_bytes)
{
    switch ((enum gyre_wait)position->waits_for) {
    case GYRE_WAIT_SLOT:
        gyre_text_append(text, text_bytes, "waits for slot %" PRIu64 " from rank %u%s",
                         position->slot, position->peer, over);
        break;
    case GYRE_WAIT_CREDIT:
        gyre_text_append(text, text_bytes,
                         "waits for credit from rank %u%s, which has to consume slot %" PRIu64,
                         position->peer, over, position->slot);
        break;
    case GYRE_WAIT_ENTRY:
        gyre_text_append(text, text_bytes, "waits until rank %u begins the call%s", position->peer,
                         over);
        break;
    case GYRE_WAIT_FIT:
        gyre_text_append(text, text_bytes, "has a slot of a different call from rank %u",
                         position->peer);
        break;
    default:
        gyre_text_append(text, text_bytes, "%s", "can go on");
        break;
    }
}

void gyre_health_wait_text(const struct gyre_health_wait *wait, char *text, size_t text_bytes)
{
    const struct gyre_position *position = &wait->position;
    char over[32];
    snprintf(over, sizeof(over), " over %s", gyre_transports[wait->transport]->name);
    gyre_text_append(text, text_bytes,
                     "channel %u, worker %u, step %u of %s %s seq %" PRIu64 ", tile %" PRIu64
                     " of %" PRIu64 " (%s) ",
                     position->channel, position->worker, position->step, position->algorithm,
                     gyre_collectives[position->coll].name, position->sequence, position->tile,
                     position->n_tiles, position->step_text);
    append_cause(position, over, text, text_bytes);
}

struct waits {
    struct gyre_wait_graph graph;
    struct gyre_wait_edge *edges;
    const struct gyre_health_wait **waits; /* by edge */
    uint32_t *first;
    uint32_t *path;
    uint32_t *places;
};

/* NULL if they are not known or out of date. */
static const struct gyre_health_waits *waits_of(const struct gyre_health *health, int rank,
                                                uint64_t now_ns)
{
    const struct gyre_health_peer *peer = &health->peers[rank];
    if (rank == health->comm->self.rank)
        return &health->waits;
    return peer->waits != NULL && !health->has_left[rank] &&
                   now_ns - peer->waits_ns < gyre_health_silence_limit_ns(health, now_ns)
               ? peer->waits
               : NULL;
}

static bool collect(const struct gyre_health *health, uint64_t now_ns, struct waits *waits)
{
    const int n_ranks = health->comm->self.n_ranks;
    const size_t most = (size_t)n_ranks * GYRE_HEALTH_MAX_WAITS;
    uint32_t n = 0;
    *waits = (struct waits){
        .edges = malloc(most * sizeof(*waits->edges)),
        .waits = malloc(most * sizeof(*waits->waits)),
        .first = malloc(((size_t)n_ranks + 1) * sizeof(*waits->first)),
        .path = malloc(most * sizeof(*waits->path)),
        .places = malloc(most * sizeof(*waits->places)),
    };
    if (waits->edges == NULL || waits->waits == NULL || waits->first == NULL ||
        waits->path == NULL || waits->places == NULL)
        return false;
    for (int rank = 0; rank < n_ranks; rank++) {
        const struct gyre_health_waits *of = waits_of(health, rank, now_ns);
        waits->first[rank] = n;
        for (uint16_t i = 0; of != NULL && i < of->n_waits; i++, n++) {
            const struct gyre_health_wait *wait = &of->waits[i];
            const struct gyre_position *position = &wait->position;
            waits->edges[n] = (struct gyre_wait_edge){
                .rank = rank,
                .peer = position->waits_for == GYRE_WAIT_NOTHING ? -1 : position->peer,
                .worker = {position->work, position->channel, position->worker, 0},
                .peer_worker = wait->peer_worker,
                .answer = (enum gyre_peer_end)wait->answer,
            };
            waits->waits[n] = wait;
        }
    }
    waits->first[n_ranks] = n;
    waits->graph = (struct gyre_wait_graph){n_ranks, waits->edges, waits->first};
    return true;
}

static void append_end_rank(const struct gyre_health *health, int rank,
                            const struct gyre_record *mine, uint64_t now_ns, char *why)
{
    const struct gyre_health_waits *of = waits_of(health, rank, now_ns);
    char name[GYRE_RANK_NAME_BYTES];
    char call[MAX_CALL_TEXT] = "the call";
    snprintf(name, sizeof(name), "rank %d", rank);
    if (health->comm->origin != NULL) /* with its rank in the parent too */
        gyre_health_rank_name(health, rank, name);
    if (mine->sequence != 0)
        gyre_record_text(mine, call, sizeof(call));
    gyre_text_append(why, GYRE_HEALTH_WHY_BYTES, "; ");
    switch (gyre_health_stands(health, rank, now_ns, mine)) {
    case GYRE_STANDS_SILENT:
        gyre_text_append(why, GYRE_HEALTH_WHY_BYTES, "%s does not answer", name);
        break;
    case GYRE_STANDS_LEFT:
        gyre_text_append(why, GYRE_HEALTH_WHY_BYTES, "%s has left", name);
        break;
    case GYRE_STANDS_BEHIND:
        gyre_text_append(why, GYRE_HEALTH_WHY_BYTES, "%s has not %s %s", name,
                         mine->coll == GYRE_COLL_SEND_RECV ? "made the call that fits" : "begun",
                         call);
        break;
    case GYRE_STANDS_DONE:
        gyre_text_append(why, GYRE_HEALTH_WHY_BYTES, "%s waits in no call", name);
        break;
    default: /* in a call, but not known to wait for a rank */
        if (of != NULL && of->n_waits > 0 && of->n_waits == of->n_all)
            gyre_text_append(why, GYRE_HEALTH_WHY_BYTES,
                             "no unfinished worker of %s uses this connection", name);
        else if (of != NULL && !of->has_begun)
            gyre_text_append(why, GYRE_HEALTH_WHY_BYTES,
                             "%s has made the call, but it has not begun: other work is ahead of "
                             "it on its stream",
                             name);
        else
            gyre_text_append(why, GYRE_HEALTH_WHY_BYTES,
                             "%s is in a call, at a position that is not known", name);
        break;
    }
}

static void append_end(const struct gyre_health *health, const struct waits *waits,
                       const struct gyre_wait_path *path, const struct gyre_record *mine,
                       uint64_t now_ns, char *why)
{
    const struct gyre_health_wait *last = waits->waits[waits->path[path->n_edges - 1]];
    switch (path->end) {
    case GYRE_WAIT_ENDS_IN_CYCLE: {
        /* "2 -> 3 -> 2" */
        const uint32_t n = path->n_edges - path->cycle_start;
        gyre_text_append(why, GYRE_HEALTH_WHY_BYTES, "; these waits form a cycle: ");
        for (uint32_t i = 0; i < n && i < MAX_IN_CYCLE; i++)
            gyre_text_append(why, GYRE_HEALTH_WHY_BYTES, "%d -> ",
                             waits->edges[waits->path[path->cycle_start + i]].rank);
        if (n > MAX_IN_CYCLE)
            gyre_text_append(why, GYRE_HEALTH_WHY_BYTES, "%u more -> ", n - MAX_IN_CYCLE);
        gyre_text_append(why, GYRE_HEALTH_WHY_BYTES, "%d",
                         waits->edges[waits->path[path->cycle_start]].rank);
    } break;
    case GYRE_WAIT_ENDS_RUNNABLE:
        gyre_text_append(why, GYRE_HEALTH_WHY_BYTES,
                         ": its step can run, but no thread runs its stream");
        break;
    case GYRE_WAIT_ENDS_MOVED:
        gyre_text_append(why, GYRE_HEALTH_WHY_BYTES,
                         "; rank %u has %s slot %" PRIu64 " (%" PRIu64 " so far) and %" PRIu64
                         " have arrived: the rest is lost or still under way over %s",
                         last->position.peer,
                         last->position.waits_for == GYRE_WAIT_SLOT ? "sent" : "consumed",
                         last->position.slot, last->n_peer_moved, last->position.n_seen,
                         gyre_transports[last->transport]->name);
        break;
    case GYRE_WAIT_ENDS_FREE:
    case GYRE_WAIT_ENDS_UNEXPLAINED:
        append_end_rank(health, path->end_rank, mine, now_ns, why);
        break;
    }
}

/* Only the first wait stands in full. */
static void append_chain(const struct waits *waits, const struct gyre_wait_path *path, char *why,
                         size_t why_bytes)
{
    for (uint32_t i = 0; i < path->n_edges; i++) {
        const uint32_t edge = waits->path[i];
        const struct gyre_position *position = &waits->waits[edge]->position;
        const int rank = waits->edges[edge].rank;
        const bool is_last = i + 1 == path->n_edges;
        if (i == MAX_TOLD && !is_last)
            gyre_text_append(why, why_bytes, "; and so on over %u more waits",
                             path->n_edges - MAX_TOLD - 1);
        if (i >= MAX_TOLD && !is_last)
            continue;
        gyre_text_append(why, why_bytes, "%srank %d", i > 0 ? "; " : "", rank);
        if (i == 0) {
            gyre_text_append(why, why_bytes, ", ");
            gyre_health_wait_text(waits->waits[edge], why, why_bytes);
            continue;
        }
        gyre_text_append(why, why_bytes, " is at step %u (%s) and ", position->step,
                         position->step_text);
        append_cause(position, "", why, why_bytes);
    }
}

bool gyre_health_explain(struct gyre_health *health, const struct gyre_record *mine,
                         uint64_t now_ns, char *why_out, size_t why_bytes)
{
    struct waits waits;
    char end[GYRE_HEALTH_WHY_BYTES] = "";
    bool is_certain = false;
    why_out[0] = '\0';
    if (collect(health, now_ns, &waits) && health->waits.n_waits > 0) {
        const int rank = health->comm->self.rank;
        uint32_t best = waits.first[rank];
        int most = -1;
        for (uint32_t i = best; i < waits.first[rank + 1]; i++) {
            /* A cycle or a lost slot causes a stall; a chain that merely ends does not. */
            const enum gyre_wait_end ends =
                gyre_wait_graph_walk(&waits.graph, i, waits.path, waits.places).end;
            const int found = ends == GYRE_WAIT_ENDS_MOVED || ends == GYRE_WAIT_ENDS_IN_CYCLE ? 2
                              : ends == GYRE_WAIT_ENDS_UNEXPLAINED                            ? 1
                                                                                              : 0;
            if (found > most) {
                most = found;
                best = i;
            }
        }
        const struct gyre_wait_path path =
            gyre_wait_graph_walk(&waits.graph, best, waits.path, waits.places);
        append_end(health, &waits, &path, mine, now_ns, end);
        /* the end names the cause, so a long text loses waits of the chain */
        append_chain(&waits, &path, why_out, why_bytes - gyre_min_u64(strlen(end), why_bytes - 1));
        gyre_text_append(why_out, why_bytes, "%s", end);
        is_certain = path.end == GYRE_WAIT_ENDS_IN_CYCLE || path.end == GYRE_WAIT_ENDS_MOVED;
    } else if (!health->waits.is_known) {
        gyre_text_append(why_out, why_bytes,
                         health->waits.has_begun
                             ? "the position in the program is not known on this device"
                             : "its kernel has not begun: other work is ahead of it on its stream");
    } else if (!health->waits.has_begun) {
        gyre_text_append(why_out, why_bytes,
                         "on this rank the call has not begun: other work is ahead of it on its "
                         "stream");
    }
    free(waits.edges);
    free(waits.waits);
    free(waits.first);
    free(waits.path);
    free(waits.places);
    return is_certain;
}
