/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_ALGORITHMS_SIMULATE_RUN_H
#define GYRE_ALGORITHMS_SIMULATE_RUN_H

#include "algorithms/simulate/flows.h"
#include "algorithms/simulate/network.h"
#include "core/foundation/model/tile.h"

struct gyre_sim_call {
    const struct gyre_sim_network *network;
    const struct gyre_simulation *simulation;
    struct gyre_split split;
    uint64_t n_real_tiles;
    uint64_t n_full_tiles;
};

#define GYRE_SIM_NO_FIFO UINT32_MAX

struct gyre_sim_worker_state {
    double free_ns;
    double busy_ns;
    double check_ns; /* INFINITY = until woken */
    uint64_t tile;
    uint32_t step; /* first of the group, within the worker */
    uint32_t done_mask;
    uint32_t waits_for; /* or GYRE_SIM_NO_FIFO */
};

struct gyre_sim_event {
    double at_ns;
    uint32_t worker;
};

/* Four slots fill a cache line. A slot is either filled or free. */
struct gyre_sim_fifo_state {
    struct gyre_sim_fifo ends;
    uint8_t n_filled; /* not consumed */
    uint8_t n_flying; /* still in the fabric */
    uint8_t post_at;
    uint8_t consume_at;
    uint8_t fly_at;
    double at_ns[]; /* by slot: when the receiver sees it filled, or the sender free */
};

struct gyre_sim_parcel {
    double full_ns;
    double wire_bytes;
    uint64_t step; /* number of the step that sent it */
    uint32_t send;
};

/* Serves one step after the other, of all channels and workers. */
struct gyre_sim_port {
    double free_ns;
    double busy_ns;
};

struct gyre_sim_ports {
    uint32_t cores, egress, ingress, host_cores, nic_out, nic_in, n;
};

struct gyre_sim_state {
    const struct gyre_sim_call *call;
    const struct gyre_sim_network *network;
    const struct gyre_simulation *simulation;
    struct gyre_sim_ports first;
    uint64_t n_tiles;
    struct gyre_sim_worker_state *workers;
    char *fifos;
    size_t fifo_bytes;
    struct gyre_sim_port *ports;
    struct gyre_sim_event *queue;
    uint32_t n_queued, n_most_queued;
    struct gyre_flows *flows;        /* NULL = no fabric */
    struct gyre_sim_parcel *parcels; /* by FIFO and slot, with a fabric */
    double *done_ns;                 /* by tile; NULL = not asked for */
    double end_ns;
    uint64_t n_steps;
};

static inline struct gyre_sim_fifo_state *gyre_sim_fifo_at(const struct gyre_sim_state *state,
                                                           uint32_t fifo)
{
    return (struct gyre_sim_fifo_state *)(void *)&state->fifos[fifo * state->fifo_bytes];
}

static inline uint8_t gyre_sim_next_slot(const struct gyre_sim_state *state, uint8_t slot)
{
    return slot + 1U == state->simulation->depth ? 0 : (uint8_t)(slot + 1);
}

/* fmax() would check for NAN. */
static inline double gyre_sim_later(double a_ns, double b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

/* From the last byte's passage to the receiver's view. */
static inline double gyre_sim_sight_ns(const struct gyre_cost *cost, enum gyre_proto proto,
                                       uint32_t link, double wire_bytes)
{
    const bool is_fetched = link == GYRE_LINK_NETWORK && wire_bytes >= cost->rendezvous_bytes;
    return cost->hop_ns[proto][link] + (is_fetched ? cost->rendezvous_ns : 0);
}

/* One channel of a variant stands for all. */
static inline uint32_t gyre_sim_channels_of(const struct gyre_sim_state *state, uint32_t variant)
{
    const uint32_t n_channels = state->simulation->n_channels;
    const uint32_t n_variants = state->network->n_variants;
    return n_channels / n_variants + (variant < n_channels % n_variants ? 1 : 0);
}

/** Unless the worker will check earlier. */
void gyre_sim_check_at(struct gyre_sim_state *state, uint32_t worker, double at_ns);

/** A slot is filled or free from `at_ns` on. */
void gyre_sim_wake(struct gyre_sim_state *state, uint32_t worker, uint32_t fifo, double at_ns);

void gyre_sim_execute(struct gyre_sim_state *state, uint32_t worker,
                      const struct gyre_sim_step *step, double now_ns);

/** The slot is full at `full_ns`; its arrival wakes the receiver. @send: of the current step, as in
 * struct gyre_sim_parcel. */
void gyre_sim_post_parcel(struct gyre_sim_state *state, uint32_t fifo, uint32_t send,
                          double full_ns, double wire_bytes);

/** Tiles that `n_tiles` leaves out are full ones from the middle. @done_ns: NULL, or all 0; by
 * tile: when all ranks were done with it. @prediction: n_steps is added to; the time is INFINITY if
 * limit_ns ended the run. Errors: as gyre_simulator_run(). */
gyre_status gyre_sim_run(const struct gyre_sim_call *call, uint64_t n_tiles, double *done_ns,
                         struct gyre_prediction *prediction);

#endif
