/* SPDX-License-Identifier: Apache-2.0
 *
 * The event loop of the simulator. An event is a moment at which a worker checks whether it can go
 * on. A step starts when its slots have arrived, its sends have credit and its worker is free. It
 * ends when both its worker and the shared ports that it uses have had the time that they need. A
 * port serves steps in the order in which they start.
 */
#include "algorithms/simulate/run.h"

#include "algorithms/simulate/flows.h"
#include "core/base/status.h"
#include "core/base/util.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define NOT_QUEUED UINT32_MAX

/* Of a place in the queue. With four, the queue is half as deep as with two, and the children lie
 * side by side in memory. */
#define N_CHILDREN 4

struct worker {
    double free_ns; /* when its last step ends */
    uint32_t place; /* index in the queue, or NOT_QUEUED */
    uint64_t tile;
    uint32_t step;      /* first step of its present group, counted within the worker */
    uint32_t done_mask; /* bit per step of the group that is done */
    double busy_ns;
};

/* The moment at which a worker checks whether it can go on. */
struct event {
    double at_ns;
    uint32_t worker;
};

struct fifo {
    uint64_t n_posted;
    uint64_t n_consumed;
    uint64_t n_flown; /* with a fabric, between hosts: slots that are through it */
};

/* A slot that waits for its way through the fabric. */
struct parcel {
    double full_ns; /* when it may leave */
    double wire_bytes;
};

/* A resource that all channels and several workers share. It serves one step after the other. */
struct port {
    double free_ns;
    double busy_ns;
};

/* The ports of the kept ranks and hosts follow each other in one array. */
struct ports {
    uint32_t cores, egress, ingress, host_cores, nic_out, nic_in, n;
};

struct run {
    const struct gyre_sim_call *call;
    const struct gyre_sim_network *network;   /* of the call */
    const struct gyre_simulation *simulation; /* of the call */
    struct ports first;
    uint64_t n_tiles; /* to simulate */
    struct worker *workers;
    struct fifo *fifos;
    double *arrived_ns; /* by fifo and slot */
    double *freed_ns;
    struct port *ports;
    struct event *queue; /* a heap, the earliest event first */
    uint32_t n_queued;
    struct gyre_flows *flows; /* a flow for each FIFO; NULL = there is no fabric */
    struct parcel *parcels;   /* by fifo and slot, with a fabric */
    double end_ns;
    uint64_t n_steps;
};

/* ---- the queue of events ------------------------------------------------------------------ */

/* Events at the same time are ordered by worker, so that all runs are equal. */
static bool is_before(struct event a, struct event b)
{
    return a.at_ns < b.at_ns || (a.at_ns <= b.at_ns && a.worker < b.worker);
}

static void put(struct run *run, uint32_t place, struct event event)
{
    run->queue[place] = event;
    run->workers[event.worker].place = place;
}

/* Let the worker check at `at_ns`, unless it will check earlier. */
static void wake(struct run *run, uint32_t worker, double at_ns)
{
    struct worker *state = &run->workers[worker];
    const struct event event = {at_ns, worker};
    if (state->place == NOT_QUEUED)
        state->place = run->n_queued++;
    else if (run->queue[state->place].at_ns <= at_ns)
        return;
    uint32_t i = state->place;
    for (; i > 0 && is_before(event, run->queue[(i - 1) / N_CHILDREN]); i = (i - 1) / N_CHILDREN)
        put(run, i, run->queue[(i - 1) / N_CHILDREN]);
    put(run, i, event);
}

/* The earliest of the children of a place in the queue; n_queued = it has none. */
static uint32_t first_child(const struct run *run, uint32_t i)
{
    uint32_t first = N_CHILDREN * i + 1;
    if (first >= run->n_queued)
        return run->n_queued;
    const uint32_t end = gyre_min_u32(first + N_CHILDREN, run->n_queued);
    for (uint32_t child = first + 1; child < end; child++)
        if (is_before(run->queue[child], run->queue[first]))
            first = child;
    return first;
}

/* Remove the earliest event from the queue and return it. */
static struct event take_next(struct run *run)
{
    const struct event first = run->queue[0];
    const struct event last = run->queue[--run->n_queued];
    uint32_t i = 0;
    for (;;) {
        const uint32_t child = first_child(run, i);
        if (child == run->n_queued || !is_before(run->queue[child], last))
            break;
        put(run, i, run->queue[child]);
        i = child;
    }
    put(run, i, last);
    run->workers[first.worker].place = NOT_QUEUED;
    return first;
}

/* ---- one step ----------------------------------------------------------------------------- */

/* A rate of 0 is no limit. */
static double transfer_ns(double n_bytes, double bytes_per_ns)
{
    return bytes_per_ns > 0 ? n_bytes / bytes_per_ns : 0;
}

/* Returns the time at which the port is free again. */
static double use_port(struct run *run, uint32_t port_index, double start_ns, double busy_ns)
{
    struct port *port = &run->ports[port_index];
    port->free_ns = (port->free_ns > start_ns ? port->free_ns : start_ns) + busy_ns;
    port->busy_ns += busy_ns;
    return port->free_ns;
}

static double chunk_bytes(const struct run *run, uint32_t chunk, uint64_t tile)
{
    if (run->network->is_folded)
        chunk = 0;
    return (double)gyre_tile_range(&run->call->split, 0, chunk, tile).n_elems;
}

static double step_bytes(const struct run *run, const struct gyre_sim_step *step, uint64_t tile)
{
    if (tile >= run->n_tiles / 2)
        tile += run->call->n_real_tiles - run->n_tiles;
    if (tile < run->call->n_full_tiles)
        return (double)run->call->split.tile_elems * step->n_chunks;
    if (step->n_chunks == 1 || run->network->is_folded)
        return chunk_bytes(run, step->chunk, tile) * step->n_chunks;
    /* Use the mean of the first and the last chunk for all chunks of the range. The lengths of two
     * chunks differ by at most one unit. */
    return (chunk_bytes(run, step->chunk, tile) + chunk_bytes(run, step->last_chunk, tile)) / 2 *
           step->n_chunks;
}

/* The time at which the step can start; INFINITY if that is not known yet. */
static double ready_ns(const struct run *run, const struct gyre_sim_step *step)
{
    const uint64_t depth = run->simulation->depth;
    double ready = 0;
    for (unsigned i = 0; i < step->n_recvs + (unsigned)step->n_sends; i++) {
        const uint32_t index = run->network->fifo_of[step->first_fifo + i];
        const struct fifo *fifo = &run->fifos[index];
        double at = 0;
        if (i < step->n_recvs) {
            if (fifo->n_posted == fifo->n_consumed)
                return INFINITY;
            at = run->arrived_ns[index * depth + fifo->n_consumed % depth];
        } else if (fifo->n_posted >= depth) {
            if (fifo->n_posted - fifo->n_consumed == depth)
                return INFINITY;
            at = run->freed_ns[index * depth + fifo->n_posted % depth];
        }
        if (at > ready)
            ready = at;
    }
    return ready;
}

/* How many channels run a variant. One of them is simulated and stands for all of them. */
static uint32_t channels_of(const struct run *run, uint32_t variant)
{
    const uint32_t n_channels = run->simulation->n_channels;
    const uint32_t n_variants = run->network->n_variants;
    return n_channels / n_variants + (variant < n_channels % n_variants ? 1 : 0);
}

static uint32_t nic_index(const struct run *run, uint32_t rank)
{
    return run->network->host_of[rank] * run->network->n_nics + run->network->nic_of[rank];
}

/* ---- through a fabric --------------------------------------------------------------------- */

/* Let the next slot of a FIFO leave. The slots of a FIFO follow each other, as on a queue pair. */
static void start_flow(struct run *run, uint32_t index, double now_ns)
{
    const uint64_t depth = run->simulation->depth;
    const struct parcel *parcel = &run->parcels[index * depth + run->fifos[index].n_flown % depth];
    const uint32_t sender = run->network->fifos[index].sender;
    gyre_flows_start(run->flows, index, fmax(now_ns, parcel->full_ns), parcel->wire_bytes,
                     channels_of(run, run->network->workers[sender].variant));
}

/* Put a slot that is full at `full_ns` on its way. Its receiver is woken when it arrives. */
static void post_parcel(struct run *run, uint32_t index, double full_ns, double wire_bytes)
{
    const uint64_t depth = run->simulation->depth;
    struct fifo *fifo = &run->fifos[index];
    const uint64_t slot = index * depth + fifo->n_posted % depth;
    const uint32_t variant = run->network->workers[run->network->fifos[index].sender].variant;
    const double messages_ns = run->simulation->cost->nic_message_ns * channels_of(run, variant);
    run->parcels[slot] = (struct parcel){full_ns + messages_ns, wire_bytes};
    run->arrived_ns[slot] = INFINITY;
    if (fifo->n_posted++ == fifo->n_flown)
        start_flow(run, index, full_ns);
}

/* A slot is through the fabric. */
static void end_flow(void *context, uint32_t index, double now_ns)
{
    struct run *run = context;
    const struct gyre_cost *cost = run->simulation->cost;
    const uint64_t depth = run->simulation->depth;
    struct fifo *fifo = &run->fifos[index];
    const double seen_ns = now_ns + run->network->routes[index].latency_ns +
                           cost->hop_ns[run->simulation->net_proto][GYRE_LINK_NETWORK];
    run->arrived_ns[index * depth + fifo->n_flown % depth] = seen_ns;
    wake(run, run->network->fifos[index].receiver, seen_ns);
    if (++fifo->n_flown < fifo->n_posted)
        start_flow(run, index, now_ns);
}

/* The next event is one of the fabric. */
static bool is_fabric_next(const struct run *run)
{
    return run->flows != NULL &&
           gyre_flows_next_ns(run->flows) <= (run->n_queued > 0 ? run->queue[0].at_ns : DBL_MAX);
}

/* ---- through ports ------------------------------------------------------------------------ */

/* Move one slot over the shared ports of its path. A proxied slot leaves when it is full, any other
 * slot while it is written. Returns the time at which the last byte has passed. */
static double send_slot(struct run *run, const struct gyre_sim_fifo *fifo, double start_ns,
                        double wire_bytes)
{
    const struct gyre_cost *cost = run->simulation->cost;
    const uint32_t link = fifo->link;
    const uint32_t n_channels = channels_of(run, run->network->workers[fifo->sender].variant);
    const double all_bytes = wire_bytes * n_channels;
    double end_ns = use_port(run, run->first.egress + fifo->from_rank * GYRE_N_LINKS + link,
                             start_ns, transfer_ns(all_bytes, cost->egress_bytes_per_ns[link]));
    end_ns =
        fmax(end_ns, use_port(run, run->first.ingress + fifo->to_rank * GYRE_N_LINKS + link,
                              start_ns, transfer_ns(all_bytes, cost->ingress_bytes_per_ns[link])));
    if (link != GYRE_LINK_NETWORK)
        return end_ns;
    const double n_messages = (double)n_channels * run->network->n_nic_alike;
    const double nic_ns =
        n_messages * (cost->nic_message_ns + transfer_ns(wire_bytes, cost->nic_bytes_per_ns));
    end_ns = fmax(end_ns, use_port(run, run->first.nic_out + nic_index(run, fifo->from_rank),
                                   start_ns, nic_ns));
    return fmax(end_ns,
                use_port(run, run->first.nic_in + nic_index(run, fifo->to_rank), start_ns, nic_ns));
}

static enum gyre_proto proto_of(const struct run *run, uint32_t link)
{
    return link == GYRE_LINK_NETWORK ? run->simulation->net_proto : run->simulation->proto;
}

/* The time that a step takes beside its bytes. A step with links of both kinds takes as long as the
 * slower protocol needs, since the worker goes on when the whole step is done. */
static double step_ns(const struct run *run, const struct gyre_sim_step *step)
{
    const double *ns_of = run->simulation->cost->step_ns;
    const unsigned n_links = step->n_recvs + (unsigned)step->n_sends;
    double ns = n_links == 0 ? ns_of[run->simulation->proto] : 0;
    for (unsigned i = 0; i < n_links; i++)
        ns = fmax(ns,
                  ns_of[proto_of(
                      run, run->network->fifos[run->network->fifo_of[step->first_fifo + i]].link)]);
    return ns;
}

/* The time that the worker itself needs for the step. */
static double worker_ns(const struct run *run, const struct gyre_sim_step *step, double n_bytes)
{
    const struct gyre_cost *cost = run->simulation->cost;
    double ns =
        step_ns(run, step) + transfer_ns(n_bytes * step->n_copies, cost->worker_copy_bytes_per_ns);
    for (unsigned i = step->n_recvs; i < step->n_recvs + (unsigned)step->n_sends; i++) {
        const uint32_t link = run->network->fifos[run->network->fifo_of[step->first_fifo + i]].link;
        ns += transfer_ns(n_bytes / cost->wire_efficiency[proto_of(run, link)],
                          cost->worker_send_bytes_per_ns[link]);
    }
    return ns;
}

/* If a rank, or all ranks of a host together, have fewer cores than workers, the workers of all
 * channels share the cores. n cores are modelled as one port that is n times as fast. */
static double compute(struct run *run, const struct gyre_sim_worker *worker, double start_ns,
                      double alone_ns)
{
    const struct gyre_cost *cost = run->simulation->cost;
    const uint32_t rank = worker->rank;
    const double all_ns = alone_ns * channels_of(run, worker->variant);
    const uint32_t host = run->network->host_of[rank];
    const double of_rank_ns = use_port(run, run->first.cores + rank, start_ns,
                                       transfer_ns(all_ns, cost->parallel_workers));
    const double of_host_ns =
        use_port(run, run->first.host_cores + host, start_ns,
                 transfer_ns(all_ns * run->network->n_alike, cost->cores_per_host));
    return fmax(fmax(of_rank_ns, of_host_ns), start_ns + alone_ns);
}

/* The number of a worker within its rank's program. The workers of one program follow each other.
 */
static uint32_t index_in_program(const struct gyre_sim_network *network, uint32_t worker_index)
{
    const struct gyre_sim_worker *worker = &network->workers[worker_index];
    uint32_t first = worker_index;
    while (first > 0 && network->workers[first - 1].rank == worker->rank &&
           network->workers[first - 1].variant == worker->variant)
        first--;
    return worker_index - first;
}

static void observe(const struct run *run, uint32_t worker_index, const struct gyre_sim_step *step,
                    struct gyre_simulated_step *simulated)
{
    const struct gyre_sim_worker *worker = &run->network->workers[worker_index];
    if (run->simulation->observe == NULL)
        return;
    simulated->variant = worker->variant;
    simulated->rank = worker->rank;
    simulated->worker = index_in_program(run->network, worker_index);
    simulated->step = (uint32_t)(step - &run->network->steps[worker->first_step]);
    simulated->tile = run->workers[worker_index].tile;
    simulated->n_sends = step->n_sends;
    run->simulation->observe(run->simulation->observer, simulated);
}

static void execute(struct run *run, uint32_t worker_index, const struct gyre_sim_step *step,
                    double now_ns)
{
    struct gyre_simulated_step simulated;
    const struct gyre_sim_network *network = run->network;
    const struct gyre_cost *cost = run->simulation->cost;
    const uint64_t depth = run->simulation->depth;
    struct worker *worker = &run->workers[worker_index];
    const double n_bytes = step_bytes(run, step, worker->tile);
    const double alone_ns = worker_ns(run, step, n_bytes);
    const double computed_ns = compute(run, &network->workers[worker_index], now_ns, alone_ns);
    const uint32_t *fifo_of = &network->fifo_of[step->first_fifo];
    double end_ns = computed_ns;
    for (unsigned i = step->n_recvs; i < step->n_recvs + (unsigned)step->n_sends; i++) {
        const struct gyre_sim_fifo *to = &network->fifos[fifo_of[i]];
        struct fifo *fifo = &run->fifos[fifo_of[i]];
        const bool is_proxied = to->link == GYRE_LINK_NETWORK;
        const enum gyre_proto proto = proto_of(run, to->link);
        if (is_proxied && run->flows != NULL) {
            post_parcel(run, fifo_of[i], computed_ns, n_bytes / cost->wire_efficiency[proto]);
            simulated.arrived_ns[i - step->n_recvs] = INFINITY;
            continue;
        }
        const double through_ns =
            fmax(computed_ns, send_slot(run, to, is_proxied ? computed_ns : now_ns,
                                        n_bytes / cost->wire_efficiency[proto]));
        const double seen_ns = through_ns + cost->hop_ns[proto][to->link];
        run->arrived_ns[fifo_of[i] * depth + fifo->n_posted++ % depth] = seen_ns;
        simulated.arrived_ns[i - step->n_recvs] = seen_ns;
        wake(run, to->receiver, seen_ns);
        if (!is_proxied)
            end_ns = fmax(end_ns, through_ns);
    }
    for (unsigned i = 0; i < step->n_recvs; i++) {
        const struct gyre_sim_fifo *from = &network->fifos[fifo_of[i]];
        struct fifo *fifo = &run->fifos[fifo_of[i]];
        const double way_ns = run->flows == NULL ? 0 : network->routes[fifo_of[i]].latency_ns;
        const double seen_ns = end_ns + cost->credit_ns[from->link] + way_ns;
        run->freed_ns[fifo_of[i] * depth + fifo->n_consumed++ % depth] = seen_ns;
        wake(run, from->sender, seen_ns);
    }
    simulated.start_ns = now_ns;
    simulated.end_ns = end_ns;
    observe(run, worker_index, step, &simulated);
    worker->free_ns = end_ns;
    worker->busy_ns += alone_ns;
    run->end_ns = fmax(run->end_ns, end_ns);
    run->n_steps++;
}

/* The group is done: go to the next group, or to the next tile. */
static void advance(const struct run *run, uint32_t index)
{
    const struct gyre_sim_worker *program = &run->network->workers[index];
    struct worker *worker = &run->workers[index];
    worker->done_mask = 0;
    worker->step += run->network->steps[program->first_step + worker->step].n_ahead + 1U;
    if (worker->step == program->n_steps) {
        worker->step = 0;
        worker->tile++;
    }
}

/* Run the steps that are ready. Of steps that may overtake each other, the earliest runs first. */
static void look(struct run *run, uint32_t index, double now_ns)
{
    const struct gyre_sim_worker *program = &run->network->workers[index];
    struct worker *worker = &run->workers[index];
    if (worker->tile == run->n_tiles)
        return;
    const struct gyre_sim_step *group = &run->network->steps[program->first_step + worker->step];
    const unsigned n_group = group->n_ahead + 1U;
    double best_ns = INFINITY;
    unsigned best = 0;
    for (unsigned i = 0; i < n_group; i++) {
        if ((worker->done_mask >> i & 1U) != 0)
            continue;
        const double at_ns = fmax(ready_ns(run, &group[i]), worker->free_ns);
        if (at_ns < best_ns) {
            best_ns = at_ns;
            best = i;
        }
    }
    if (best_ns > now_ns) {
        if (best_ns < INFINITY)
            wake(run, index, best_ns);
        return;
    }
    execute(run, index, &group[best], now_ns);
    worker->done_mask |= 1U << best;
    if (worker->done_mask == (1U << n_group) - 1)
        advance(run, index);
    if (worker->tile < run->n_tiles)
        wake(run, index, worker->free_ns);
}

/* ---- one run ------------------------------------------------------------------------------ */

static void close_run(struct run *run)
{
    free(run->workers);
    free(run->fifos);
    free(run->arrived_ns);
    free(run->freed_ns);
    free(run->ports);
    free(run->queue);
    free(run->parcels);
    gyre_flows_close(run->flows);
}

static gyre_status open_run(struct run *run)
{
    const struct gyre_sim_network *network = run->network;
    const size_t n_slots = (size_t)network->n_fifos * run->simulation->depth;
    struct ports *first = &run->first;
    first->egress = first->cores + network->n_kept;
    first->ingress = first->egress + network->n_kept * GYRE_N_LINKS;
    first->host_cores = first->ingress + network->n_kept * GYRE_N_LINKS;
    first->nic_out = first->host_cores + network->n_hosts;
    first->nic_in = first->nic_out + network->n_hosts * network->n_nics;
    first->n = first->nic_in + network->n_hosts * network->n_nics;
    run->workers = calloc(network->n_workers + 1, sizeof(*run->workers));
    run->fifos = calloc(network->n_fifos + 1, sizeof(*run->fifos));
    run->arrived_ns = calloc(n_slots + 1, sizeof(double));
    run->freed_ns = calloc(n_slots + 1, sizeof(double));
    run->ports = calloc(first->n, sizeof(*run->ports));
    run->queue = calloc(network->n_workers + 1, sizeof(*run->queue));
    run->parcels = calloc(network->fabric == NULL ? 1 : n_slots + 1, sizeof(*run->parcels));
    if (run->workers == NULL || run->fifos == NULL || run->arrived_ns == NULL ||
        run->freed_ns == NULL || run->ports == NULL || run->queue == NULL || run->parcels == NULL) {
        close_run(run);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %zu slots to simulate",
                         n_slots);
    }
    if (network->fabric == NULL)
        return GYRE_SUCCESS;
    const gyre_status status =
        gyre_flows_open(network->fabric->bytes_per_ns, network->fabric->n_links, network->routes,
                        network->n_fifos, &run->flows);
    if (status != GYRE_SUCCESS)
        close_run(run);
    return status;
}

/* How long the busiest resource was busy, in ns. */
static void find_busiest(const struct run *run, struct gyre_prediction *prediction)
{
    const struct ports *first = &run->first;
    double most_ns = 0;
    prediction->bottleneck = GYRE_RESOURCE_LATENCY;
    for (uint32_t i = 0; i < first->n; i++) {
        if (run->ports[i].busy_ns <= most_ns)
            continue;
        most_ns = run->ports[i].busy_ns;
        prediction->bottleneck = i >= first->nic_in       ? GYRE_RESOURCE_NIC_IN
                                 : i >= first->nic_out    ? GYRE_RESOURCE_NIC_OUT
                                 : i >= first->host_cores ? GYRE_RESOURCE_HOST_CORES
                                 : i >= first->ingress    ? GYRE_RESOURCE_INGRESS
                                 : i >= first->egress     ? GYRE_RESOURCE_EGRESS
                                                          : GYRE_RESOURCE_CORES;
    }
    for (uint32_t i = 0; i < run->network->n_workers; i++) {
        if (run->workers[i].busy_ns <= most_ns)
            continue;
        most_ns = run->workers[i].busy_ns;
        prediction->bottleneck = GYRE_RESOURCE_WORKER;
    }
    for (uint32_t i = 0; run->flows != NULL && i < run->network->fabric->n_links; i++) {
        if (gyre_flows_busy_ns(run->flows, i) <= most_ns)
            continue;
        most_ns = gyre_flows_busy_ns(run->flows, i);
        prediction->bottleneck = GYRE_RESOURCE_FABRIC;
        prediction->fabric_link = i;
    }
    prediction->busy_share = run->end_ns > 0 ? fmin(most_ns / run->end_ns, 1) : 0;
    if (prediction->busy_share < 0.5)
        prediction->bottleneck = GYRE_RESOURCE_LATENCY;
}

/* The time at which the rank's workers start. */
static double launched_ns(const struct run *run, uint32_t rank)
{
    const struct gyre_cost *cost = run->simulation->cost;
    const struct gyre_sim_network *network = run->network;
    uint32_t n_workers = 0;
    for (uint32_t variant = 0; variant < network->n_variants; variant++)
        n_workers +=
            channels_of(run, variant) * network->n_workers_of[variant * network->n_kept + rank];
    return cost->launch_ns + cost->worker_launch_ns * n_workers;
}

gyre_status gyre_sim_run(const struct gyre_sim_call *call, uint64_t n_tiles,
                         struct gyre_prediction *prediction)
{
    struct run run = {
        .call = call, .network = call->network, .simulation = call->simulation, .n_tiles = n_tiles};
    GYRE_TRY(open_run(&run));
    for (uint32_t i = 0; i < run.network->n_workers; i++) {
        const double start_ns = launched_ns(&run, run.network->workers[i].rank);
        run.workers[i].place = NOT_QUEUED;
        if (channels_of(&run, run.network->workers[i].variant) == 0) {
            run.workers[i].tile = n_tiles; /* no channel runs it */
            continue;
        }
        run.end_ns = fmax(run.end_ns, start_ns);
        wake(&run, i, start_ns);
    }
    const double limit_ns = call->simulation->limit_ns;
    while (run.n_queued > 0 || is_fabric_next(&run)) {
        if (is_fabric_next(&run)) {
            gyre_flows_advance(run.flows, end_flow, &run);
            continue;
        }
        const struct event next = take_next(&run);
        if (limit_ns > 0 && next.at_ns > limit_ns && run.workers[next.worker].tile < n_tiles) {
            prediction->time_ns = INFINITY;
            prediction->n_steps += run.n_steps;
            close_run(&run);
            return GYRE_SUCCESS;
        }
        look(&run, next.worker, next.at_ns);
    }
    gyre_status status = GYRE_SUCCESS;
    for (uint32_t i = 0; i < run.network->n_workers && status == GYRE_SUCCESS; i++)
        if (run.workers[i].tile < n_tiles)
            status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                               "deadlock with FIFOs of %u slots: rank %u waits in tile %llu",
                               run.simulation->depth, run.network->workers[i].rank,
                               (unsigned long long)run.workers[i].tile);
    if (status == GYRE_SUCCESS) {
        find_busiest(&run, prediction);
        prediction->time_ns = run.end_ns;
        prediction->n_steps += run.n_steps;
    }
    close_run(&run);
    return status;
}
