/* SPDX-License-Identifier: Apache-2.0
 *
 * The event loop of the simulator. An event is a moment at which a worker checks whether it can go
 * on. A step starts when its slots have arrived, its sends have credit and its worker is free. It
 * ends when both its worker and the shared ports that it uses have had the time that they need. A
 * port serves steps in the order in which they start.
 */
#include "algorithms/simulate/run.h"

#include "core/base/status.h"

#include <math.h>
#include <stdlib.h>

#define NOT_QUEUED UINT32_MAX

struct worker {
    double free_ns;   /* when its last step ends */
    double wakeup_ns; /* when it next checks whether it can go on */
    uint32_t place;   /* index in the queue, or NOT_QUEUED */
    uint64_t tile;
    uint32_t step;      /* first step of its present group, counted within the worker */
    uint32_t done_mask; /* bit per step of the group that is done */
    double busy_ns;
};

struct fifo {
    uint64_t n_posted;
    uint64_t n_consumed;
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
    uint32_t *queue; /* a heap of workers, by their wakeup_ns */
    uint32_t n_queued;
    double end_ns;
    uint64_t n_steps;
};

/* ---- the queue of events ------------------------------------------------------------------ */

/* Events at the same time are ordered by worker, so that all runs are equal. */
static bool is_before(const struct run *run, uint32_t a, uint32_t b)
{
    const double a_ns = run->workers[a].wakeup_ns, b_ns = run->workers[b].wakeup_ns;
    return a_ns < b_ns || (a_ns <= b_ns && a < b);
}

static void put(struct run *run, uint32_t place, uint32_t worker)
{
    run->queue[place] = worker;
    run->workers[worker].place = place;
}

/* Let the worker check at `at_ns`, unless it will check earlier. */
static void wake(struct run *run, uint32_t worker, double at_ns)
{
    struct worker *state = &run->workers[worker];
    if (state->place == NOT_QUEUED)
        state->place = run->n_queued++;
    else if (state->wakeup_ns <= at_ns)
        return;
    state->wakeup_ns = at_ns;
    uint32_t i = state->place;
    for (; i > 0 && is_before(run, worker, run->queue[(i - 1) / 2]); i = (i - 1) / 2)
        put(run, i, run->queue[(i - 1) / 2]);
    put(run, i, worker);
}

/* Remove the worker with the earliest event from the queue and return it. */
static uint32_t take_next(struct run *run)
{
    const uint32_t first = run->queue[0];
    const uint32_t last = run->queue[--run->n_queued];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= run->n_queued)
            break;
        if (child + 1 < run->n_queued && is_before(run, run->queue[child + 1], run->queue[child]))
            child++;
        if (!is_before(run, run->queue[child], last))
            break;
        put(run, i, run->queue[child]);
        i = child;
    }
    put(run, i, last);
    run->workers[first].place = NOT_QUEUED;
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

/* The time that the worker itself needs for the step. */
static double worker_ns(const struct run *run, const struct gyre_sim_step *step, double n_bytes)
{
    const struct gyre_cost *cost = run->simulation->cost;
    const enum gyre_proto proto = run->simulation->proto;
    double ns = cost->step_ns[proto] +
                transfer_ns(n_bytes * step->n_copies, cost->worker_copy_bytes_per_ns);
    for (unsigned i = step->n_recvs; i < step->n_recvs + (unsigned)step->n_sends; i++) {
        const uint32_t link = run->network->fifos[run->network->fifo_of[step->first_fifo + i]].link;
        ns += transfer_ns(n_bytes / cost->wire_efficiency[proto],
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
    const enum gyre_proto proto = run->simulation->proto;
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
        const double seen_ns = end_ns + cost->credit_ns[from->link];
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
    if (run->workers == NULL || run->fifos == NULL || run->arrived_ns == NULL ||
        run->freed_ns == NULL || run->ports == NULL || run->queue == NULL) {
        close_run(run);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %zu slots to simulate",
                         n_slots);
    }
    return GYRE_SUCCESS;
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
    while (run.n_queued > 0) {
        const uint32_t worker = take_next(&run);
        if (limit_ns > 0 && run.workers[worker].wakeup_ns > limit_ns &&
            run.workers[worker].tile < n_tiles) {
            prediction->time_ns = INFINITY;
            prediction->n_steps += run.n_steps;
            close_run(&run);
            return GYRE_SUCCESS;
        }
        look(&run, worker, run.workers[worker].wakeup_ns);
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
