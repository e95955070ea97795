/* SPDX-License-Identifier: Apache-2.0
 *
 * A step ends when its worker and its shared ports have had their time. A port serves steps in the
 * order of their starts.
 */
#include "algorithms/simulate/run.h"

#include <math.h>

#define UNCACHED_HALVINGS 4

static double transfer_ns(double n_bytes, double bytes_per_ns)
{
    return bytes_per_ns > 0 ? n_bytes / bytes_per_ns : 0;
}

static double use_port(struct gyre_sim_state *state, uint32_t port_index, double start_ns,
                       double busy_ns)
{
    struct gyre_sim_port *port = &state->ports[port_index];
    port->free_ns = gyre_sim_later(port->free_ns, start_ns) + busy_ns;
    port->busy_ns += busy_ns;
    return port->free_ns;
}

static double chunk_bytes(const struct gyre_sim_state *state, uint32_t chunk, uint64_t tile)
{
    if (state->network->is_folded)
        chunk = 0;
    return (double)gyre_tile_range(&state->call->split, 0, chunk, tile).n_elems;
}

static double step_bytes(const struct gyre_sim_state *state, const struct gyre_sim_step *step,
                         uint64_t tile)
{
    if (tile >= state->n_tiles / 2)
        tile += state->call->n_real_tiles - state->n_tiles;
    if (tile < state->call->n_full_tiles)
        return (double)state->call->split.tile_elems * step->n_chunks;
    if (step->n_chunks == 1 || state->network->is_folded)
        return chunk_bytes(state, step->chunk, tile) * step->n_chunks;
    return (chunk_bytes(state, step->chunk, tile) + chunk_bytes(state, step->last_chunk, tile)) /
           2 * step->n_chunks;
}

static uint32_t nic_index(const struct gyre_sim_state *state, uint32_t rank)
{
    return state->network->host_of[rank] * state->network->n_nics + state->network->nic_of[rank];
}

/* The ports that a connection of the weak host's uses are those that all others' slots use a part
 * of, so they are the ones that count. */
static double gain_of(const struct gyre_sim_network *network, const struct gyre_sim_fifo *fifo)
{
    const bool is_weak = network->host_of[fifo->from_rank] == network->weak_host ||
                         network->host_of[fifo->to_rank] == network->weak_host;
    return is_weak ? 1 : network->others_gain;
}

/* A proxied slot leaves when it is full, any other while it is written. Returns when the last byte
 * has passed. */
static double send_slot(struct gyre_sim_state *state, const struct gyre_sim_fifo *fifo,
                        double start_ns, double wire_bytes)
{
    const struct gyre_cost *cost = state->simulation->cost;
    const struct gyre_sim_ports *first = &state->first;
    const uint32_t link = fifo->link;
    const uint32_t n_channels =
        gyre_sim_channels_of(state, state->network->workers[fifo->sender].variant);
    const double gain = gain_of(state->network, fifo);
    const double all_bytes = wire_bytes / gain * n_channels;
    const double out_ns =
        use_port(state, first->egress + fifo->from_rank * GYRE_N_LINKS + link, start_ns,
                 transfer_ns(all_bytes, cost->egress_bytes_per_ns[link]));
    const double in_ns =
        use_port(state, first->ingress + fifo->to_rank * GYRE_N_LINKS + link, start_ns,
                 transfer_ns(all_bytes, cost->ingress_bytes_per_ns[link]));
    const double end_ns = gyre_sim_later(out_ns, in_ns);
    if (link != GYRE_LINK_NETWORK)
        return end_ns;
    const double n_messages = (double)n_channels * state->network->n_nic_alike;
    const double nic_ns = n_messages * (cost->nic_message_ns +
                                        transfer_ns(wire_bytes / gain, cost->nic_bytes_per_ns));
    const double nic_out_ns =
        use_port(state, first->nic_out + nic_index(state, fifo->from_rank), start_ns, nic_ns);
    const double nic_in_ns =
        use_port(state, first->nic_in + nic_index(state, fifo->to_rank), start_ns, nic_ns);
    return gyre_sim_later(end_ns, gyre_sim_later(nic_out_ns, nic_in_ns));
}

static enum gyre_proto proto_of(const struct gyre_sim_state *state, uint32_t link)
{
    return link == GYRE_LINK_NETWORK ? state->simulation->net_proto : state->simulation->proto;
}

static const struct gyre_sim_fifo *ends_of(const struct gyre_sim_state *state,
                                           const struct gyre_sim_step *step, unsigned i)
{
    return &gyre_sim_fifo_at(state, state->network->fifo_of[step->first_fifo + i])->ends;
}

/* The call's data do not stay in the caches. */
static double slowdown(const struct gyre_sim_state *state)
{
    const struct gyre_cost *cost = state->simulation->cost;
    const double n_bytes = (double)state->simulation->n_bytes;
    if (cost->cached_bytes <= 0 || n_bytes <= cost->cached_bytes || cost->uncached_slowdown <= 1)
        return 1;
    /* Halvings, linear between powers of two, so that every machine computes the same bits. */
    double ratio = n_bytes / cost->cached_bytes, n = 0;
    for (; ratio >= 2; ratio /= 2)
        n++;
    return 1 + (cost->uncached_slowdown - 1) * fmin(1, (n + ratio - 1) / UNCACHED_HALVINGS);
}

/* With both kinds of links the slower protocol counts, because the worker goes on when the whole
 * step is done. */
static double worker_ns(const struct gyre_sim_state *state, const struct gyre_sim_step *step,
                        double n_bytes)
{
    const struct gyre_cost *cost = state->simulation->cost;
    const unsigned n_links = step->n_recvs + (unsigned)step->n_sends;
    const double slower = slowdown(state);
    double send_ns[GYRE_N_LINKS], ns = n_links == 0 ? cost->step_ns[state->simulation->proto] : 0;
    for (uint32_t link = 0; link < GYRE_N_LINKS; link++)
        send_ns[link] = slower * transfer_ns(n_bytes / cost->wire_efficiency[proto_of(state, link)],
                                             cost->worker_send_bytes_per_ns[link]);
    for (unsigned i = 0; i < n_links; i++)
        ns = gyre_sim_later(ns, cost->step_ns[proto_of(state, ends_of(state, step, i)->link)]);
    ns += slower * transfer_ns(n_bytes / cost->wire_efficiency[state->simulation->proto],
                               cost->worker_step_bytes_per_ns);
    ns += slower * transfer_ns(n_bytes * step->n_ins, cost->worker_read_bytes_per_ns);
    ns += slower * transfer_ns(n_bytes * step->n_stores, cost->worker_store_bytes_per_ns);
    for (unsigned i = step->n_recvs; i < n_links; i++)
        ns += send_ns[ends_of(state, step, i)->link];
    return ns;
}

/* Workers of all channels share a rank's or host's cores. n cores are one port that is n times as
 * fast. */
static double compute(struct gyre_sim_state *state, const struct gyre_sim_worker *worker,
                      double start_ns, double alone_ns)
{
    const struct gyre_cost *cost = state->simulation->cost;
    const uint32_t host = state->network->host_of[worker->rank];
    const double all_ns = alone_ns * gyre_sim_channels_of(state, worker->variant);
    double end_ns = start_ns + alone_ns;
    if (cost->parallel_workers > 0)
        end_ns = gyre_sim_later(end_ns, use_port(state, state->first.cores + worker->rank, start_ns,
                                                 all_ns / cost->parallel_workers));
    if (cost->cores_per_host > 0)
        end_ns = gyre_sim_later(end_ns,
                                use_port(state, state->first.host_cores + host, start_ns,
                                         all_ns * state->network->n_alike / cost->cores_per_host));
    return end_ns;
}

/* @computed_ns: the worker is done. @arrived_ns_out: each slot is seen. Returns when the worker is
 * free. */
static double send_slots(struct gyre_sim_state *state, const struct gyre_sim_step *step,
                         double now_ns, double computed_ns, double n_bytes, double *arrived_ns_out)
{
    const struct gyre_cost *cost = state->simulation->cost;
    const uint32_t *fifo_of = &state->network->fifo_of[step->first_fifo + step->n_recvs];
    double end_ns = computed_ns;
    for (unsigned i = 0; i < step->n_sends; i++) {
        struct gyre_sim_fifo_state *fifo = gyre_sim_fifo_at(state, fifo_of[i]);
        const struct gyre_sim_fifo *to = &fifo->ends;
        const bool is_proxied = to->link == GYRE_LINK_NETWORK;
        const enum gyre_proto proto = proto_of(state, to->link);
        const double wire_bytes = n_bytes / cost->wire_efficiency[proto];
        arrived_ns_out[i] = INFINITY;
        if (is_proxied && state->flows != NULL) {
            gyre_sim_post_parcel(state, fifo_of[i], i, computed_ns, wire_bytes);
            continue;
        }
        const bool is_fenced = !is_proxied && proto == GYRE_PROTO_SIMPLE;
        const double through_ns =
            gyre_sim_later(computed_ns,
                           send_slot(state, to, is_proxied ? computed_ns : now_ns, wire_bytes)) +
            (is_fenced ? cost->fence_ns : 0);
        const double seen_ns = through_ns + gyre_sim_sight_ns(cost, proto, to->link, wire_bytes);
        fifo->at_ns[fifo->post_at] = seen_ns;
        fifo->post_at = gyre_sim_next_slot(state, fifo->post_at);
        fifo->n_filled++;
        arrived_ns_out[i] = seen_ns;
        gyre_sim_wake(state, to->receiver, fifo_of[i], seen_ns);
        if (!is_proxied)
            end_ns = gyre_sim_later(end_ns, through_ns);
    }
    return end_ns;
}

void gyre_sim_execute(struct gyre_sim_state *state, uint32_t worker_index,
                      const struct gyre_sim_step *step, double now_ns)
{
    struct gyre_simulated_step simulated = {.start_ns = now_ns};
    const struct gyre_simulation *simulation = state->simulation;
    const struct gyre_sim_worker *workers = state->network->workers;
    const struct gyre_sim_worker *program = &workers[worker_index];
    struct gyre_sim_worker_state *worker = &state->workers[worker_index];
    const double n_bytes = step_bytes(state, step, worker->tile);
    const double alone_ns = worker_ns(state, step, n_bytes);
    const double computed_ns = compute(state, program, now_ns, alone_ns);
    simulated.end_ns = send_slots(state, step, now_ns, computed_ns, n_bytes, simulated.arrived_ns);
    const uint32_t *fifo_of = &state->network->fifo_of[step->first_fifo];
    for (unsigned i = 0; i < step->n_recvs; i++) {
        struct gyre_sim_fifo_state *fifo = gyre_sim_fifo_at(state, fifo_of[i]);
        const double way_ns =
            state->flows == NULL ? 0 : state->network->routes[fifo_of[i]].latency_ns;
        const double seen_ns =
            simulated.end_ns + simulation->cost->credit_ns[fifo->ends.link] + way_ns;
        fifo->at_ns[fifo->consume_at] = seen_ns;
        fifo->consume_at = gyre_sim_next_slot(state, fifo->consume_at);
        fifo->n_filled--;
        gyre_sim_wake(state, fifo->ends.sender, fifo_of[i], seen_ns);
    }
    if (simulation->observe != NULL) {
        uint32_t first = worker_index; /* of the program */
        while (first > 0 && workers[first - 1].rank == program->rank &&
               workers[first - 1].variant == program->variant)
            first--;
        simulated.variant = program->variant;
        simulated.rank = program->rank;
        simulated.worker = worker_index - first;
        simulated.step = (uint32_t)(step - &state->network->steps[program->first_step]);
        simulated.tile = worker->tile;
        simulated.n_sends = step->n_sends;
        simulation->observe(simulation->observer, &simulated);
    }
    worker->free_ns = simulated.end_ns;
    worker->busy_ns += alone_ns;
    state->end_ns = gyre_sim_later(state->end_ns, simulated.end_ns);
    if (state->done_ns != NULL)
        state->done_ns[worker->tile] =
            gyre_sim_later(state->done_ns[worker->tile], simulated.end_ns);
    state->n_steps++;
}
