/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs of a shape, of all its variants, in the form that the simulator runs. A step has its
 * costs and the FIFOs that it waits for, but not its meaning. If renumbering the hosts, or the
 * positions on all hosts, maps ranks onto each other, only one of these ranks is kept.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_NETWORK_H
#define GYRE_ALGORITHMS_SIMULATE_NETWORK_H

#include "algorithms/simulate/fabric.h"
#include "algorithms/simulate/fold.h"
#include "algorithms/simulate/simulate.h"

struct gyre_sim_step {
    /* Index into fifo_of. There the step has the n_recvs FIFOs that it receives from, and behind
     * them the n_sends FIFOs that it sends to. */
    uint32_t first_fifo;
    uint16_t chunk;      /* the first one of the step's range */
    uint16_t last_chunk; /* the last one */
    uint16_t n_chunks;
    uint8_t n_recvs;
    uint8_t n_sends;
    uint8_t n_ins;    /* each is read once */
    uint8_t n_stores; /* local outputs: each is written once */
    uint8_t n_ahead;  /* this many of the following steps may run before this step has run */
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
    uint32_t sender;   /* worker */
    uint32_t receiver; /* worker */
    uint32_t link;     /* enum gyre_link_class */
};

/* Steps that may overtake each other are examined in groups of this size. */
#define GYRE_SIM_MAX_GROUP 8

struct gyre_sim_network {
    uint32_t n_kept; /* ranks that have a program here */
    uint32_t n_variants;
    uint32_t n_nics;   /* most of any host */
    uint32_t n_hosts;  /* of the shape, those without kept ranks included */
    uint32_t n_chunks; /* of the program */
    uint32_t n_lanes;
    uint32_t min_depth;
    uint32_t max_range;
    bool is_folded;        /* the kept ranks stand for all; every chunk counts as the longest */
    uint32_t n_alike;      /* ranks of one host that a kept rank stands for */
    uint32_t n_nic_alike;  /* those of them that share its NIC; 1 on several hosts */
    uint32_t channel_unit; /* the number of channels must be a multiple: all variants are alike */
    uint32_t n_workers;
    uint32_t n_fifos;
    uint32_t n_steps;
    uint32_t n_ends;
    struct gyre_sim_worker *workers;
    struct gyre_sim_fifo *fifos;
    const struct gyre_fabric *fabric; /* NULL = only NICs are modelled between hosts */
    struct gyre_fabric_route *routes; /* by FIFO, with a fabric; no links inside a host */
    struct gyre_sim_step *steps;
    uint32_t *fifo_of;
    uint32_t *host_of;      /* by kept rank */
    uint32_t *nic_of;       /* by kept rank: which NIC of its host */
    uint32_t *n_workers_of; /* [variant][kept rank] */
};

/* A tile may have so many steps. They take 3 GB of memory. */
#define GYRE_SIM_MAX_STEPS (1U << 27)

/* With a fabric, and where no rank stands for others, a tile may have so many steps. Each simulated
 * tile then takes about 20 seconds (docs/fabric.md). */
#define GYRE_SIM_FABRIC_MAX_STEPS 20000000U

/** gyre_sim_network_open - see gyre_simulator_open(). */
gyre_status gyre_sim_network_open(const struct gyre_algorithm *algorithm,
                                  const struct gyre_shape *shape,
                                  const struct gyre_machine *machine, enum gyre_sim_folding allowed,
                                  struct gyre_sim_network *network_out);

void gyre_sim_network_close(struct gyre_sim_network *network);

#endif
