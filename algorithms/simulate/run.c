/* SPDX-License-Identifier: Apache-2.0
 *
 * In an event a worker checks whether it can go on: its step's slots have arrived, its sends have
 * credit and it is free.
 */
#include "algorithms/simulate/run.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A heap. If a worker is to check earlier, its old event stays until it comes first, and is dropped
 * then. */

/* Four children halve the depth, and are adjacent in memory. */
#define N_CHILDREN 4

static bool is_before(struct gyre_sim_event a, struct gyre_sim_event b)
{
    return a.at_ns < b.at_ns || (a.at_ns <= b.at_ns && a.worker < b.worker);
}

static void rise(struct gyre_sim_event *queue, uint32_t i, struct gyre_sim_event event)
{
    for (; i > 0 && is_before(event, queue[(i - 1) / N_CHILDREN]); i = (i - 1) / N_CHILDREN)
        queue[i] = queue[(i - 1) / N_CHILDREN];
    queue[i] = event;
}

static bool is_valid(const struct gyre_sim_state *state, struct gyre_sim_event event)
{
    return event.at_ns <= state->workers[event.worker].check_ns &&
           event.at_ns >= state->workers[event.worker].check_ns;
}

/* Drop invalid events, and all but one of a worker's simultaneous ones. A worker whose event stays
 * has no check time meanwhile. */
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

/* Unless the worker will check earlier. */
static void check_at(struct gyre_sim_state *state, uint32_t worker, double at_ns)
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
        check_at(state, worker, gyre_sim_later(at_ns, own->free_ns));
}

static void drop_first(struct gyre_sim_state *state)
{
    struct gyre_sim_event *queue = state->queue;
    const struct gyre_sim_event last = queue[--state->n_queued];
    uint32_t i = 0;
    for (;;) {
        uint32_t first = N_CHILDREN * i + 1;
        const uint32_t end = gyre_min_u32(first + N_CHILDREN, state->n_queued);
        for (uint32_t child = first + 1; child < end; child++)
            if (is_before(queue[child], queue[first]))
                first = child;
        if (first >= state->n_queued || !is_before(queue[first], last))
            break;
        queue[i] = queue[first];
        i = first;
    }
    queue[i] = last;
}

/* Slots of a FIFO follow each other, as on a queue pair. */
static void start_flow(struct gyre_sim_state *state, uint32_t index, double now_ns)
{
    const struct gyre_sim_fifo_state *fifo = gyre_sim_fifo_at(state, index);
    const struct gyre_sim_parcel *parcel =
        &state->parcels[(size_t)index * state->simulation->depth + fifo->fly_at];
    const uint32_t variant = state->network->workers[fifo->ends.sender].variant;
    gyre_flows_start(state->flows, index, gyre_sim_later(now_ns, parcel->full_ns),
                     parcel->wire_bytes, gyre_sim_channels_of(state, variant));
}

void gyre_sim_post_parcel(struct gyre_sim_state *state, uint32_t index, uint32_t send,
                          double full_ns, double wire_bytes)
{
    struct gyre_sim_fifo_state *fifo = gyre_sim_fifo_at(state, index);
    const uint32_t variant = state->network->workers[fifo->ends.sender].variant;
    const double messages_ns =
        state->simulation->cost->nic_message_ns * gyre_sim_channels_of(state, variant);
    state->parcels[(size_t)index * state->simulation->depth + fifo->post_at] =
        (struct gyre_sim_parcel){full_ns + messages_ns, wire_bytes, state->n_steps, send};
    fifo->at_ns[fifo->post_at] = INFINITY;
    fifo->post_at = gyre_sim_next_slot(state, fifo->post_at);
    fifo->n_filled++;
    if (fifo->n_flying++ == 0)
        start_flow(state, index, full_ns);
}

static void end_flow(void *context, uint32_t index, double now_ns)
{
    struct gyre_sim_state *state = context;
    const struct gyre_cost *cost = state->simulation->cost;
    struct gyre_sim_fifo_state *fifo = gyre_sim_fifo_at(state, index);
    const struct gyre_sim_parcel *parcel =
        &state->parcels[(size_t)index * state->simulation->depth + fifo->fly_at];
    const double seen_ns = now_ns + state->network->routes[index].latency_ns +
                           gyre_sim_sight_ns(cost, state->simulation->net_proto, GYRE_LINK_NETWORK,
                                             parcel->wire_bytes);
    if (state->simulation->arrive != NULL)
        state->simulation->arrive(state->simulation->observer, parcel->step, parcel->send, seen_ns);
    fifo->at_ns[fifo->fly_at] = seen_ns;
    fifo->fly_at = gyre_sim_next_slot(state, fifo->fly_at);
    gyre_sim_wake(state, fifo->ends.receiver, index, seen_ns);
    if (--fifo->n_flying > 0)
        start_flow(state, index, now_ns);
}

/* INFINITY = not known yet. @missing_out: a FIFO for which the step then waits. */
static double ready_ns(const struct gyre_sim_state *state, const struct gyre_sim_step *step,
                       uint32_t *missing_out)
{
    double ready = 0;
    for (unsigned i = 0; i < step->n_recvs + (unsigned)step->n_sends; i++) {
        const uint32_t index = state->network->fifo_of[step->first_fifo + i];
        const struct gyre_sim_fifo_state *fifo = gyre_sim_fifo_at(state, index);
        const bool is_recv = i < step->n_recvs;
        const bool is_ready =
            is_recv ? fifo->n_filled > 0 : fifo->n_filled < state->simulation->depth;
        const double at =
            is_ready ? fifo->at_ns[is_recv ? fifo->consume_at : fifo->post_at] : INFINITY;
        if (at > DBL_MAX) {
            *missing_out = index;
            return INFINITY;
        }
        ready = gyre_sim_later(ready, at);
    }
    return ready;
}

/* @at_ns_out: INFINITY = not known yet. @missing_out: where the group's last step waits, else
 * GYRE_SIM_NO_FIFO. */
static unsigned find_first(const struct gyre_sim_state *state,
                           const struct gyre_sim_worker_state *worker,
                           const struct gyre_sim_step *group, double *at_ns_out,
                           uint32_t *missing_out)
{
    unsigned first = 0, n_left = 0;
    *at_ns_out = INFINITY;
    *missing_out = GYRE_SIM_NO_FIFO;
    for (unsigned i = 0; i < group->n_ahead + 1U; i++) {
        if ((worker->done_mask >> i & 1U) != 0)
            continue;
        n_left++;
        const double at_ns =
            gyre_sim_later(ready_ns(state, &group[i], missing_out), worker->free_ns);
        if (at_ns < *at_ns_out) {
            *at_ns_out = at_ns;
            first = i;
        }
    }
    if (n_left > 1)
        *missing_out = GYRE_SIM_NO_FIFO;
    return first;
}

static void look(struct gyre_sim_state *state, uint32_t index, double now_ns)
{
    const struct gyre_sim_worker *program = &state->network->workers[index];
    struct gyre_sim_worker_state *worker = &state->workers[index];
    if (worker->tile == state->n_tiles)
        return;
    const struct gyre_sim_step *group = &state->network->steps[program->first_step + worker->step];
    double first_ns;
    const unsigned first = find_first(state, worker, group, &first_ns, &worker->waits_for);
    if (first_ns > now_ns) {
        if (first_ns < INFINITY)
            check_at(state, index, first_ns);
        return;
    }
    gyre_sim_execute(state, index, &group[first], now_ns);
    worker->done_mask |= 1U << first;
    if (worker->done_mask == (1U << (group->n_ahead + 1U)) - 1) {
        worker->done_mask = 0;
        worker->step += group->n_ahead + 1U;
        if (worker->step == program->n_steps) {
            worker->step = 0;
            worker->tile++;
        }
    }
    if (worker->tile < state->n_tiles)
        check_at(state, index, worker->free_ns);
}

static void close_state(struct gyre_sim_state *state)
{
    free(state->workers);
    free(state->fifos);
    free(state->ports);
    free(state->queue);
    free(state->parcels);
    gyre_flows_close(state->flows);
}

static gyre_status open_state(struct gyre_sim_state *state)
{
    const struct gyre_sim_network *network = state->network;
    const size_t depth = state->simulation->depth;
    const size_t n_parcels = network->fabric == NULL ? 0 : network->n_fifos * depth;
    struct gyre_sim_ports *first = &state->first;
    first->egress = first->cores + network->n_kept;
    first->ingress = first->egress + network->n_kept * GYRE_N_LINKS;
    first->host_cores = first->ingress + network->n_kept * GYRE_N_LINKS;
    first->nic_out = first->host_cores + network->n_hosts;
    first->nic_in = first->nic_out + network->n_hosts * network->n_nics;
    first->n = first->nic_in + network->n_hosts * network->n_nics;
    state->fifo_bytes =
        gyre_round_up(offsetof(struct gyre_sim_fifo_state, at_ns) + depth * sizeof(double),
                      GYRE_CACHE_LINE_BYTES);
    state->workers = calloc(network->n_workers + 1, sizeof(*state->workers));
    state->fifos = aligned_alloc(GYRE_CACHE_LINE_BYTES, (network->n_fifos + 1) * state->fifo_bytes);
    state->ports = calloc(state->first.n, sizeof(*state->ports));
    state->n_most_queued = 2 * network->n_workers + 1;
    state->queue = calloc(state->n_most_queued, sizeof(*state->queue));
    state->parcels = calloc(n_parcels + 1, sizeof(*state->parcels));
    gyre_status status = GYRE_SUCCESS;
    if (state->workers == NULL || state->fifos == NULL || state->ports == NULL ||
        state->queue == NULL || state->parcels == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %u FIFOs to simulate",
                           network->n_fifos);
    if (status == GYRE_SUCCESS && network->fabric != NULL)
        status = gyre_flows_open(network->fabric->bytes_per_ns, network->fabric->n_links,
                                 network->routes, network->n_fifos, &state->flows);
    if (status != GYRE_SUCCESS) {
        close_state(state);
        return status;
    }
    memset(state->fifos, 0, network->n_fifos * state->fifo_bytes);
    for (uint32_t i = 0; i < network->n_fifos; i++)
        gyre_sim_fifo_at(state, i)->ends = network->fifos[i];
    for (uint32_t i = 0; i < network->n_workers; i++) {
        state->workers[i].check_ns = INFINITY;
        state->workers[i].waits_for = GYRE_SIM_NO_FIFO;
    }
    return GYRE_SUCCESS;
}

static void find_busiest(const struct gyre_sim_state *state, struct gyre_prediction *prediction)
{
    const struct gyre_sim_ports *first = &state->first;
    double most_ns = 0;
    prediction->bottleneck = GYRE_RESOURCE_LATENCY;
    for (uint32_t i = 0; i < first->n; i++) {
        if (state->ports[i].busy_ns <= most_ns)
            continue;
        most_ns = state->ports[i].busy_ns;
        prediction->bottleneck = i >= first->nic_in       ? GYRE_RESOURCE_NIC_IN
                                 : i >= first->nic_out    ? GYRE_RESOURCE_NIC_OUT
                                 : i >= first->host_cores ? GYRE_RESOURCE_HOST_CORES
                                 : i >= first->ingress    ? GYRE_RESOURCE_INGRESS
                                 : i >= first->egress     ? GYRE_RESOURCE_EGRESS
                                                          : GYRE_RESOURCE_CORES;
    }
    for (uint32_t i = 0; i < state->network->n_workers; i++) {
        if (state->workers[i].busy_ns <= most_ns)
            continue;
        most_ns = state->workers[i].busy_ns;
        prediction->bottleneck = GYRE_RESOURCE_WORKER;
    }
    for (uint32_t i = 0; state->flows != NULL && i < state->network->fabric->n_links; i++) {
        if (gyre_flows_busy_ns(state->flows, i) <= most_ns)
            continue;
        most_ns = gyre_flows_busy_ns(state->flows, i);
        prediction->bottleneck = GYRE_RESOURCE_FABRIC;
        prediction->fabric_link = i;
    }
    prediction->busy_share = state->end_ns > 0 ? fmin(most_ns / state->end_ns, 1) : 0;
    if (prediction->busy_share < 0.5)
        prediction->bottleneck = GYRE_RESOURCE_LATENCY;
}

static void launch(struct gyre_sim_state *state)
{
    const struct gyre_cost *cost = state->simulation->cost;
    const struct gyre_sim_network *network = state->network;
    for (uint32_t i = 0; i < network->n_workers; i++) {
        const struct gyre_sim_worker *worker = &network->workers[i];
        if (gyre_sim_channels_of(state, worker->variant) == 0) {
            state->workers[i].tile = state->n_tiles;
            continue;
        }
        uint32_t n_of_rank = 0;
        for (uint32_t variant = 0; variant < network->n_variants; variant++)
            n_of_rank += gyre_sim_channels_of(state, variant) *
                         network->n_workers_of[variant * network->n_kept + worker->rank];
        const double start_ns = cost->launch_ns + cost->worker_launch_ns * n_of_rank;
        state->end_ns = gyre_sim_later(state->end_ns, start_ns);
        check_at(state, i, start_ns);
    }
}

/* Simultaneous events are in the order of workers, so that all runs are equal. False = it would end
 * after limit_ns. */
static bool run_events(struct gyre_sim_state *state)
{
    const double limit_ns = state->simulation->limit_ns;
    for (;;) {
        while (state->n_queued > 0 && !is_valid(state, state->queue[0]))
            drop_first(state);
        const double now_ns = state->n_queued > 0 ? state->queue[0].at_ns : INFINITY;
        if (state->flows != NULL && gyre_flows_next_ns(state->flows) <= fmin(now_ns, DBL_MAX)) {
            gyre_flows_advance(state->flows, end_flow, state);
            continue;
        }
        if (now_ns > DBL_MAX)
            return true;
        const uint32_t worker = state->queue[0].worker;
        drop_first(state);
        state->workers[worker].check_ns = INFINITY;
        if (limit_ns > 0 && now_ns > limit_ns && state->workers[worker].tile < state->n_tiles)
            return false;
        look(state, worker, now_ns);
    }
}

static gyre_status check_end(const struct gyre_sim_state *state)
{
    for (uint32_t i = 0; i < state->network->n_workers; i++)
        if (state->workers[i].tile < state->n_tiles)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "deadlock with FIFOs of %u slots: rank %u waits in tile %llu",
                             state->simulation->depth, state->network->workers[i].rank,
                             (unsigned long long)state->workers[i].tile);
    return GYRE_SUCCESS;
}

gyre_status gyre_sim_run(const struct gyre_sim_call *call, uint64_t n_tiles, double *done_ns,
                         struct gyre_prediction *prediction)
{
    struct gyre_sim_state state = {.call = call,
                                   .network = call->network,
                                   .simulation = call->simulation,
                                   .n_tiles = n_tiles,
                                   .done_ns = done_ns};
    GYRE_TRY(open_state(&state));
    launch(&state);
    gyre_status status = GYRE_SUCCESS;
    if (run_events(&state)) {
        status = check_end(&state);
        find_busiest(&state, prediction);
        prediction->time_ns = state.end_ns;
    } else {
        prediction->time_ns = INFINITY;
    }
    prediction->n_steps += state.n_steps;
    close_state(&state);
    return status;
}
