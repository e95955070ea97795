/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one run of the simulator: workers, FIFOs, shared ports, and the queue of events.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_STATE_H
#define GYRE_ALGORITHMS_SIMULATE_STATE_H

#include "algorithms/simulate/flows.h"
#include "algorithms/simulate/run.h"

#define GYRE_SIM_NO_FIFO UINT32_MAX

struct gyre_sim_worker_state {
    double free_ns; /* when its last step ends */
    double busy_ns;
    double check_ns; /* when it will check whether it can go on; INFINITY = when it is woken */
    uint64_t tile;
    uint32_t step;      /* first step of its present group, counted within the worker */
    uint32_t done_mask; /* bit per step of the group that is done */
    uint32_t waits_for; /* the FIFO without which the worker cannot go on, or GYRE_SIM_NO_FIFO */
};

/* The moment at which a worker checks whether it can go on. */
struct gyre_sim_event {
    double at_ns;
    uint32_t worker;
};

/* A FIFO and its slots, which a step uses together: with four slots they fill one cache line. A
 * slot is either filled or free, so it has one time. */
struct gyre_sim_fifo_state {
    struct gyre_sim_fifo ends;
    uint8_t n_filled;   /* slots that were posted and not consumed */
    uint8_t n_flying;   /* with a fabric, between hosts: posted slots that are not through it */
    uint8_t post_at;    /* the slot that is posted next */
    uint8_t consume_at; /* the slot that is consumed next */
    uint8_t fly_at;     /* the slot that is through the fabric next */
    double at_ns[];     /* by slot: when the receiver sees that it is filled, or the sender that it
                         * is free */
};

/* A slot that waits for its way through the fabric. */
struct gyre_sim_parcel {
    double full_ns; /* when it may leave */
    double wire_bytes;
};

/* A resource that all channels and several workers share. It serves one step after the other. */
struct gyre_sim_port {
    double free_ns;
    double busy_ns;
};

/* The ports of the kept ranks and hosts follow each other in one array. */
struct gyre_sim_ports {
    uint32_t cores, egress, ingress, host_cores, nic_out, nic_in, n;
};

struct gyre_sim_state {
    const struct gyre_sim_call *call;
    const struct gyre_sim_network *network;   /* of the call */
    const struct gyre_simulation *simulation; /* of the call */
    struct gyre_sim_ports first;
    uint64_t n_tiles; /* to simulate */
    struct gyre_sim_worker_state *workers;
    char *fifos; /* fifo_bytes each */
    size_t fifo_bytes;
    struct gyre_sim_port *ports;
    struct gyre_sim_event *queue; /* a heap, the earliest event first */
    uint32_t n_queued, n_most_queued;
    struct gyre_flows *flows;        /* a flow for each FIFO; NULL = there is no fabric */
    struct gyre_sim_parcel *parcels; /* by FIFO and slot, with a fabric */
    double *done_ns;                 /* by tile: the end of its last step; NULL = nobody asks */
    double end_ns;
    uint64_t n_steps;
};

static inline struct gyre_sim_fifo_state *gyre_sim_fifo_at(const struct gyre_sim_state *state,
                                                           uint32_t fifo)
{
    return (struct gyre_sim_fifo_state *)(void *)&state->fifos[fifo * state->fifo_bytes];
}

/* The slot behind a slot. */
static inline uint8_t gyre_sim_next_slot(const struct gyre_sim_state *state, uint8_t slot)
{
    return slot + 1U == state->simulation->depth ? 0 : (uint8_t)(slot + 1);
}

/* The later one of two times. Neither is NAN, which fmax() would have to check. */
static inline double gyre_sim_later(double a_ns, double b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

/* How many channels run a variant. One of them is simulated and stands for all of them. */
static inline uint32_t gyre_sim_channels_of(const struct gyre_sim_state *state, uint32_t variant)
{
    const uint32_t n_channels = state->simulation->n_channels;
    const uint32_t n_variants = state->network->n_variants;
    return n_channels / n_variants + (variant < n_channels % n_variants ? 1 : 0);
}

/** gyre_sim_check_at - let a worker check at `at_ns`, unless it will check earlier (events.c). */
void gyre_sim_check_at(struct gyre_sim_state *state, uint32_t worker, double at_ns);

/** gyre_sim_wake - a slot of a FIFO is filled or free from `at_ns` on: let the worker at that end
 * check, if it may wait for it. */
void gyre_sim_wake(struct gyre_sim_state *state, uint32_t worker, uint32_t fifo, double at_ns);

/** gyre_sim_next_ns - the time of the earliest event; INFINITY = there is none. */
double gyre_sim_next_ns(struct gyre_sim_state *state);

/** gyre_sim_take_next - remove the earliest event from the queue and return its worker. Call
 * gyre_sim_next_ns() before. Events at the same time are in the order of workers, so that all runs
 * are equal. */
uint32_t gyre_sim_take_next(struct gyre_sim_state *state);

/** gyre_sim_execute - carry out a step of a worker that starts now (step.c). */
void gyre_sim_execute(struct gyre_sim_state *state, uint32_t worker,
                      const struct gyre_sim_step *step, double now_ns);

/** gyre_sim_post_parcel - put a slot that is full at `full_ns` on its way through the fabric. Its
 * receiver is woken when it arrives (parcels.c). */
void gyre_sim_post_parcel(struct gyre_sim_state *state, uint32_t fifo, double full_ns,
                          double wire_bytes);

/** gyre_sim_advance_fabric - go on to the next moment at which something happens in the fabric. */
void gyre_sim_advance_fabric(struct gyre_sim_state *state);

#endif
