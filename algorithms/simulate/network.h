/* SPDX-License-Identifier: Apache-2.0
 *
 * All variants' programs as the simulator runs them: steps have costs and FIFOs, but no meaning. Of
 * ranks that a renumbering of hosts or positions maps onto each other, one is kept.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_NETWORK_H
#define GYRE_ALGORITHMS_SIMULATE_NETWORK_H

#include "algorithms/simulate/fabric.h"
#include "algorithms/simulate/simulate.h"

enum gyre_sim_folding {
    GYRE_SIM_FOLD_ALL,          /* channels: a multiple of channel_unit */
    GYRE_SIM_FOLD_ANY_CHANNELS, /* channel_unit is 1 */
    GYRE_SIM_FOLD_NOTHING
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

#endif
