/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator's queue of events: a heap, the earliest event first. A worker has one event at
 * most.
 */
#include "algorithms/simulate/state.h"
#include "core/base/util.h"

/* Of a place in the queue. With four, the queue is half as deep as with two, and the children lie
 * side by side in memory. */
#define N_CHILDREN 4

static bool is_before(struct gyre_sim_event a, struct gyre_sim_event b)
{
    return a.at_ns < b.at_ns || (a.at_ns <= b.at_ns && a.worker < b.worker);
}

static void put(struct gyre_sim_state *state, uint32_t place, struct gyre_sim_event event)
{
    state->queue[place] = event;
    state->workers[event.worker].place = place;
}

void gyre_sim_check_at(struct gyre_sim_state *state, uint32_t worker, double at_ns)
{
    struct gyre_sim_worker_state *own = &state->workers[worker];
    const struct gyre_sim_event event = {at_ns, worker};
    struct gyre_sim_event *queue = state->queue;
    if (own->place == GYRE_SIM_NOT_QUEUED)
        own->place = state->n_queued++;
    else if (queue[own->place].at_ns <= at_ns)
        return;
    uint32_t i = own->place;
    for (; i > 0 && is_before(event, queue[(i - 1) / N_CHILDREN]); i = (i - 1) / N_CHILDREN)
        put(state, i, queue[(i - 1) / N_CHILDREN]);
    put(state, i, event);
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
    uint32_t first = N_CHILDREN * i + 1;
    if (first >= state->n_queued)
        return state->n_queued;
    const uint32_t end = gyre_min_u32(first + N_CHILDREN, state->n_queued);
    for (uint32_t child = first + 1; child < end; child++)
        if (is_before(state->queue[child], state->queue[first]))
            first = child;
    return first;
}

struct gyre_sim_event gyre_sim_take_next(struct gyre_sim_state *state)
{
    const struct gyre_sim_event first = state->queue[0];
    const struct gyre_sim_event last = state->queue[--state->n_queued];
    uint32_t i = 0;
    for (;;) {
        const uint32_t child = first_child(state, i);
        if (child == state->n_queued || !is_before(state->queue[child], last))
            break;
        put(state, i, state->queue[child]);
        i = child;
    }
    put(state, i, last);
    state->workers[first.worker].place = GYRE_SIM_NOT_QUEUED;
    return first;
}
