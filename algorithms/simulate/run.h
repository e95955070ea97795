/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_ALGORITHMS_SIMULATE_RUN_H
#define GYRE_ALGORITHMS_SIMULATE_RUN_H

#include "algorithms/simulate/fabric.h"
#include "algorithms/simulate/simulate.h"
#include "core/foundation/model/tile.h"

/* All variants' programs as the simulator runs them: steps have costs and FIFOs, but no meaning. Of
 * ranks that a renumbering of hosts or positions maps onto each other, one is kept. */

enum gyre_sim_folding {
    GYRE_SIM_FOLD_ALL,          /* channels: a multiple of channel_unit */
    GYRE_SIM_FOLD_ANY_CHANNELS, /* channel_unit is 1 */
    GYRE_SIM_FOLD_NOTHING,
    GYRE_SIM_N_FOLDINGS
};

enum gyre_sim_renumbering { GYRE_SIM_BY_ADDING, GYRE_SIM_BY_XOR };

/* Ranks are numbered host after host; otherwise every rank is a host. */
struct gyre_sim_fold {
    const struct gyre_algorithm *algorithm;
    const struct gyre_shape *shape;
    const struct gyre_machine *machine;
    unsigned n_variants;
    bool is_one_host;
    unsigned n_of_host;
    unsigned n_kept_hosts;
    unsigned n_kept_positions; /* position p is like p modulo this number */
    /* Variant v of a rank is like variant v - k * variant_shift of the kept rank which is
     * k * n_kept_positions ranks before it. */
    unsigned variant_shift;
    enum gyre_sim_renumbering renumbering;
    /* The kept ranks receive in another order. */
    bool any_order;
};

/** What the arguments point to must outlive the result. Errors: as gyre_algorithm_emit(). */
gyre_status gyre_sim_fold_find(const struct gyre_algorithm *algorithm,
                               const struct gyre_shape *shape, const struct gyre_machine *machine,
                               enum gyre_sim_folding allowed, struct gyre_sim_fold *fold_out);

/** Errors: as gyre_algorithm_emit(). */
gyre_status gyre_sim_fold_emit(const struct gyre_sim_fold *fold, unsigned variant, unsigned rank,
                               struct gyre_program **program_out);

/** The renumbering does not change it. */
uint32_t gyre_sim_fold_relative(const struct gyre_sim_fold *fold, unsigned from, unsigned to);

/** The kept rank that stands for a rank. @variant: replaced by the like variant of the kept
 * rank. */
uint32_t gyre_sim_fold_index(const struct gyre_sim_fold *fold, unsigned rank, unsigned *variant);

unsigned gyre_sim_fold_rank(const struct gyre_sim_fold *fold, uint32_t index);

struct gyre_sim_step {
    /* In fifo_of: n_recvs FIFOs, then n_sends. */
    uint32_t first_fifo;
    uint16_t chunk;
    uint16_t last_chunk;
    uint16_t n_chunks;
    uint8_t n_recvs;
    uint8_t n_sends;
    uint8_t n_ins;
    uint8_t n_stores; /* local outputs */
    uint8_t n_ahead;  /* how many of the next steps may run before this one */
};

struct gyre_sim_worker {
    uint32_t rank;
    uint32_t variant;
    uint32_t first_step;
    uint32_t n_steps;
};

struct gyre_sim_fifo {
    uint32_t from_rank;
    uint32_t to_rank;
    uint32_t sender;
    uint32_t receiver;
    uint32_t link;
};

/* Steps that may overtake each other are examined in such groups. */
#define GYRE_SIM_MAX_GROUP 8

struct gyre_sim_network {
    uint32_t n_kept;
    uint32_t n_variants;
    uint32_t n_nics;
    uint32_t n_hosts;
    uint32_t n_chunks;
    uint32_t n_lanes;
    uint32_t min_depth;
    uint32_t max_range;
    bool is_folded;        /* every chunk counts as the longest */
    uint32_t n_alike;      /* of one host, for which a kept rank stands */
    uint32_t n_nic_alike;  /* those sharing a NIC; 1 on several hosts */
    uint32_t channel_unit; /* divides the number of channels */
    uint32_t n_workers;
    uint32_t n_fifos;
    uint32_t n_steps;
    uint32_t n_ends;
    struct gyre_sim_worker *workers;
    struct gyre_sim_fifo *fifos;
    const struct gyre_fabric *fabric; /* NULL = only NICs limit data between hosts */
    struct gyre_fabric_route *routes; /* by FIFO, with a fabric; no links inside a host */
    uint32_t *route_links;            /* of all routes */
    struct gyre_sim_step *steps;
    uint32_t *fifo_of;
    uint32_t weak_host;
    double others_gain;     /* their bandwidth over that of the weak host; 1 = none is weak */
    uint32_t *host_of;      /* by kept rank */
    uint32_t *nic_of;       /* by kept rank: of its host */
    uint32_t *n_workers_of; /* [variant][kept rank] */
};

/* Of a tile; takes 3 GB of memory. */
#define GYRE_SIM_MAX_STEPS (1U << 27)

/* With a fabric, if no rank stands for others; takes 20 seconds. */
#define GYRE_SIM_FABRIC_MAX_STEPS 20000000U

/** As gyre_simulator_open(). */
gyre_status gyre_sim_network_open(const struct gyre_algorithm *algorithm,
                                  const struct gyre_shape *shape,
                                  const struct gyre_machine *machine, enum gyre_sim_folding allowed,
                                  struct gyre_sim_network *network_out);

void gyre_sim_network_close(struct gyre_sim_network *network);

/* Max-min fair rates by progressive filling (Bertsekas and Gallager, "Data Networks", section
 * 6.5.2): all flows grow alike until a link is full, its flows keep their rate, and the others go
 * on. */

struct gyre_flows;

/** @bytes_per_ns: by link, above 0 in routes; @routes: by flow, without links for a flow that never
 * starts; both must outlive the flows. Errors: OUT_OF_MEMORY. */
gyre_status gyre_flows_open(const double *bytes_per_ns, uint32_t n_links,
                            const struct gyre_fabric_route *routes, uint32_t n_flows,
                            struct gyre_flows **flows_out);
void gyre_flows_close(struct gyre_flows *flows);

/** Not before the last event. @n_bytes: of each member. @n_members: equal flows for which this one
 * stands. */
void gyre_flows_start(struct gyre_flows *flows, uint32_t flow, double at_ns, double n_bytes,
                      double n_members);

/** INFINITY = no flow. */
double gyre_flows_next_ns(const struct gyre_flows *flows);

/** Goes to the next event. @on_end: for each flow that ends there; may start flows. */
void gyre_flows_advance(struct gyre_flows *flows,
                        void (*on_end)(void *context, uint32_t flow, double at_ns), void *context);

/** How long the link at its full rate needs for all bytes that were started. */
double gyre_flows_busy_ns(const struct gyre_flows *flows, uint32_t link);

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
