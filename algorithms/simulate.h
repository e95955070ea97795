/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts how long a collective takes: the programs of all ranks are run against each other over a
 * described machine, tile by tile, with the FIFO depth, credits and shared links that executors
 * meet. A LogGP-like model (Alexandrov et al., "LogGP", SPAA 1995): per step and per connection
 * latencies and byte rates. Pure functions without contracted multiply-adds: the same input gives
 * the same bits on every rank, so plans may depend on it (docs/tuning.md).
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_H
#define GYRE_ALGORITHMS_SIMULATE_H

#include "algorithms/algorithm.h"

/* What lies between two ranks. X(enum suffix, word in keys) */
#define GYRE_LINK_TABLE(X)                                              \
    X(HOST, host)       /* NVLink, PCIe or shared memory of one host */ \
    X(NETWORK, network) /* a proxy moves the slots through the host's NIC */

enum gyre_link_class {
#define GYRE_LINK_ENUM(id, name) GYRE_LINK_##id,
    GYRE_LINK_TABLE(GYRE_LINK_ENUM)
#undef GYRE_LINK_ENUM
        GYRE_N_LINKS
};

/* The constants of the model. A rate of 0 means: not limited by this. */
struct gyre_cost {
    double launch_ns;                              /* from the call to the first step */
    double worker_launch_ns;                       /* more, for each worker of the rank */
    double step_ns[GYRE_N_PROTOS];                 /* decoding and barriers of one step */
    double hop_ns[GYRE_N_PROTOS][GYRE_N_LINKS];    /* from written to seen by the receiver */
    double wire_efficiency[GYRE_N_PROTOS];         /* payload / bytes sent; above 0, at most 1 */
    double credit_ns[GYRE_N_LINKS];                /* from slot read to seen free by the sender */
    double worker_send_bytes_per_ns[GYRE_N_LINKS]; /* one worker writing into one connection */
    double worker_copy_bytes_per_ns; /* one worker reading an input or writing a local output */
    double parallel_workers;         /* of one rank that run at the same time; 0 = all */
    double cores_per_host;           /* that all ranks of a host share; 0 = enough for all */
    double egress_bytes_per_ns[GYRE_N_LINKS];  /* of one rank, all its workers together */
    double ingress_bytes_per_ns[GYRE_N_LINKS]; /* likewise */
    double nic_bytes_per_ns; /* of one host, all its ranks together, each direction */
    double nic_message_ns; /* that each slot keeps it busy besides: proxies, messages per second */
};

/** Ranks as threads or processes over shared memory. */
extern const struct gyre_cost gyre_cost_host;

/** GPUs joined by NVLink 4, hosts by 400 Gbit/s NICs. */
extern const struct gyre_cost gyre_cost_h200;

/** gyre_cost_find - "host" or "h200"; NULL = no such table. */
const struct gyre_cost *gyre_cost_find(const char *name);

/** gyre_cost_from_text - read "key = value" lines; `#` starts a comment. Keys carry their unit.
 * @text: untrusted. @base: gives the values of keys that the text does not name; may be cost_out.
 * Errors: INVALID_ARGUMENT with the line, and the legal keys where the key is none of them. */
gyre_status gyre_cost_from_text(const char *text, const struct gyre_cost *base,
                                struct gyre_cost *cost_out);

/** gyre_cost_to_text - all keys, as gyre_cost_from_text() reads them back bit by bit.
 * @text_out: malloc'ed. Errors: OUT_OF_MEMORY. */
gyre_status gyre_cost_to_text(const struct gyre_cost *cost, char **text_out);

struct gyre_machine {
    const struct gyre_grouping *grouping; /* NULL = one host; between hosts is NETWORK */
    bool is_all_network;                  /* inside hosts, too */
};

/* How a simulated call is carried out. */
struct gyre_simulation {
    const struct gyre_cost *cost;
    enum gyre_proto proto;
    uint32_t n_channels; /* >= 1; all alike, so one is simulated and shared rates are divided */
    uint32_t tile_bytes; /* payload of one slot, >= 1 */
    uint32_t depth;      /* slots of a FIFO, 1..GYRE_SIMULATE_MAX_DEPTH */
    uint64_t n_bytes;    /* of the vector, or of one block where buffers are made of blocks */
    bool all_tiles;      /* simulate each tile, instead of extrapolating from the first ones */
};

#define GYRE_SIMULATE_MAX_DEPTH 64
#define GYRE_SIMULATE_MAX_FIFOS (1U << 21) /* about 400 MB */

/* X(enum suffix, name): what can be busy. LATENCY: nothing was, half of the time. */
#define GYRE_RESOURCE_TABLE(X) \
    X(LATENCY, latency)        \
    X(WORKER, worker)          \
    X(CORES, cores)            \
    X(EGRESS, egress)          \
    X(INGRESS, ingress) X(HOST_CORES, host_cores) X(NIC_OUT, nic_out) X(NIC_IN, nic_in)

enum gyre_resource {
#define GYRE_RESOURCE_ENUM(id, name) GYRE_RESOURCE_##id,
    GYRE_RESOURCE_TABLE(GYRE_RESOURCE_ENUM)
#undef GYRE_RESOURCE_ENUM
        GYRE_N_RESOURCES
};

extern const char *const gyre_resource_names[GYRE_N_RESOURCES];

struct gyre_prediction {
    double time_ns;                /* from the call to the end of the last rank */
    enum gyre_resource bottleneck; /* the busiest */
    double busy_share;             /* of the time, of the busiest resource: 0..1 */
    bool is_extrapolated;          /* not every tile was simulated */
    uint64_t n_steps;              /* that were simulated */
};

struct gyre_simulator;

/** gyre_simulator_open - programs of all ranks, prepared. Where turning the machine by one host (or
 * one rank of a single host) changes nothing, one host stands for all: a ring of 1024 ranks on
 * 128 hosts costs no more than eight ranks. @all_ranks: do without that.
 * Errors: as gyre_algorithm_emit(); INVALID_ARGUMENT when connections do not fit together;
 * UNSUPPORTED when there are over GYRE_SIMULATE_MAX_FIFOS of them. */
gyre_status gyre_simulator_open(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, const struct gyre_machine *machine,
                                bool all_ranks, struct gyre_simulator **simulator_out);

void gyre_simulator_close(struct gyre_simulator *simulator);

/** gyre_simulator_lanes - as n_lanes of the programs. */
uint32_t gyre_simulator_lanes(const struct gyre_simulator *simulator);

/** gyre_simulator_min_depth - as min_depth of the programs. */
uint32_t gyre_simulator_min_depth(const struct gyre_simulator *simulator);

/** gyre_simulator_run - predict one call. Several runs of one simulator are independent; one thread
 * at a time. Errors: INVALID_ARGUMENT (a parameter out of range, or a depth at which the programs
 * deadlock), OUT_OF_MEMORY. */
gyre_status gyre_simulator_run(struct gyre_simulator *simulator,
                               const struct gyre_simulation *simulation,
                               struct gyre_prediction *prediction_out);

#endif
