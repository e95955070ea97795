/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator's queue of events: a heap, the earliest event first. If a worker is to check
 * earlier than it was, its old event stays in the queue until it comes first, and is dropped then.
 * So the queue need not know where the event of a worker is.
 */
#include "algorithms/simulate/state.h"
#include "core/foundation/base/util.h"

#include <math.h>

/* Of a place in the queue. With four, the queue is half as deep as with two, and the children lie
 * side by side in memory. */
#define N_CHILDREN 4

static bool is_before(struct gyre_sim_event a, struct gyre_sim_event b)
{
    return a.at_ns < b.at_ns || (a.at_ns <= b.at_ns && a.worker < b.worker);
}

/* Put an event at a place or above it. */
static void rise(struct gyre_sim_event *queue, uint32_t i, struct gyre_sim_event event)
{
    for (; i > 0 && is_before(event, queue[(i - 1) / N_CHILDREN]); i = (i - 1) / N_CHILDREN)
        queue[i] = queue[(i - 1) / N_CHILDREN];
    queue[i] = event;
}

/* Will the worker check at the time of this event? */
static bool is_valid(const struct gyre_sim_state *state, struct gyre_sim_event event)
{
    return event.at_ns <= state->workers[event.worker].check_ns &&
           event.at_ns >= state->workers[event.worker].check_ns;
}

/* Drop all events that are not valid, and all but one of a worker that has several at the same
 * time. While this runs, a worker whose event stays has no time at which it will check. */
static void clean(struct gyre_sim_state *state)
{
    const uint32_t n = state->n_queued;
    state->n_queued = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct gyre_sim_event event = state->queue[i];
        if (!is_valid(state, event))
            continue;
        state->workers[event.worker].check_ns = INFINITY;
        rise(state->queue, state->n_queued++, event);
    }
    for (uint32_t i = 0; i < state->n_queued; i++)
        state->workers[state->queue[i].worker].check_ns = state->queue[i].at_ns;
}

void gyre_sim_check_at(struct gyre_sim_state *state, uint32_t worker, double at_ns)
{
    struct gyre_sim_worker_state *own = &state->workers[worker];
    if (own->check_ns <= at_ns)
        return;
    if (state->n_queued == state->n_most_queued)
        clean(state);
    own->check_ns = at_ns;
    rise(state->queue, state->n_queued++, (struct gyre_sim_event){at_ns, worker});
}

void gyre_sim_wake(struct gyre_sim_state *state, uint32_t worker, uint32_t fifo, double at_ns)
{
    const struct gyre_sim_worker_state *own = &state->workers[worker];
    if (own->waits_for == GYRE_SIM_NO_FIFO || own->waits_for == fifo)
        gyre_sim_check_at(state, worker, gyre_sim_later(at_ns, own->free_ns));
}

/* The earliest of the children of a place in the queue; n_queued = it has none. */
static uint32_t first_child(const struct gyre_sim_state *state, uint32_t i)
{
    const struct gyre_sim_event *queue = state->queue;
    uint32_t first = N_CHILDREN * i + 1;
    if (first >= state->n_queued)
        return state->n_queued;
    const uint32_t end = gyre_min_u32(first + N_CHILDREN, state->n_queued);
    for (uint32_t child = first + 1; child < end; child++)
        if (is_before(queue[child], queue[first]))
            first = child;
    return first;
}

static void drop_first(struct gyre_sim_state *state)
{
    const struct gyre_sim_event last = state->queue[--state->n_queued];
    uint32_t i = 0;
    for (uint32_t child; (child = first_child(state, i)) < state->n_queued; i = child) {
        if (!is_before(state->queue[child], last))
            break;
        state->queue[i] = state->queue[child];
    }
    state->queue[i] = last;
}

double gyre_sim_next_ns(struct gyre_sim_state *state)
{
    while (state->n_queued > 0 && !is_valid(state, state->queue[0]))
        drop_first(state);
    return state->n_queued > 0 ? state->queue[0].at_ns : INFINITY;
}

uint32_t gyre_sim_take_next(struct gyre_sim_state *state)
{
    const uint32_t worker = state->queue[0].worker;
    drop_first(state);
    state->workers[worker].check_ns = INFINITY;
    return worker;
}
