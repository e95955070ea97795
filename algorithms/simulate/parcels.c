/* SPDX-License-Identifier: Apache-2.0
 *
 * The slots of a simulation that go through a fabric (algorithms/simulate/fabric.h).
 */
#include "algorithms/simulate/state.h"

#include <math.h>

/* Let the next slot of a FIFO leave. The slots of a FIFO follow each other, as on a queue pair. */
static void start_flow(struct gyre_sim_state *state, uint32_t index, double now_ns)
{
    const struct gyre_sim_fifo_state *fifo = gyre_sim_fifo_at(state, index);
    const struct gyre_sim_parcel *parcel =
        &state->parcels[(size_t)index * state->simulation->depth + fifo->fly_at];
    const uint32_t variant = state->network->workers[fifo->ends.sender].variant;
    gyre_flows_start(state->flows, index, gyre_sim_later(now_ns, parcel->full_ns),
                     parcel->wire_bytes, gyre_sim_channels_of(state, variant));
}

void gyre_sim_post_parcel(struct gyre_sim_state *state, uint32_t index, double full_ns,
                          double wire_bytes)
{
    struct gyre_sim_fifo_state *fifo = gyre_sim_fifo_at(state, index);
    const uint32_t variant = state->network->workers[fifo->ends.sender].variant;
    const double messages_ns =
        state->simulation->cost->nic_message_ns * gyre_sim_channels_of(state, variant);
    state->parcels[(size_t)index * state->simulation->depth + fifo->post_at] =
        (struct gyre_sim_parcel){full_ns + messages_ns, wire_bytes};
    fifo->at_ns[fifo->post_at] = INFINITY;
    fifo->post_at = gyre_sim_next_slot(state, fifo->post_at);
    fifo->n_filled++;
    if (fifo->n_flying++ == 0)
        start_flow(state, index, full_ns);
}

/* A slot is through the fabric. */
static void end_flow(void *context, uint32_t index, double now_ns)
{
    struct gyre_sim_state *state = context;
    const struct gyre_cost *cost = state->simulation->cost;
    struct gyre_sim_fifo_state *fifo = gyre_sim_fifo_at(state, index);
    const double seen_ns = now_ns + state->network->routes[index].latency_ns +
                           cost->hop_ns[state->simulation->net_proto][GYRE_LINK_NETWORK];
    fifo->at_ns[fifo->fly_at] = seen_ns;
    fifo->fly_at = gyre_sim_next_slot(state, fifo->fly_at);
    gyre_sim_wake(state, fifo->ends.receiver, index, seen_ns);
    if (--fifo->n_flying > 0)
        start_flow(state, index, now_ns);
}

void gyre_sim_advance_fabric(struct gyre_sim_state *state)
{
    gyre_flows_advance(state->flows, end_flow, state);
}
