/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts how long a collective takes, with FIFOs, credits and shared links of a described
 * machine. The model is like LogGP (Alexandrov et al., "LogGP", SPAA 1995). The functions are pure
 * and contract no multiply-adds, so every rank gets the same bits and plans may depend on them.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_H
#define GYRE_ALGORITHMS_SIMULATE_H

#include "algorithms/algorithm.h"

/* X(enum suffix, word in keys) */
#define GYRE_LINK_TABLE(X)                                  \
    X(HOST, host)       /* NVLink, PCIe or shared memory */ \
    X(NETWORK, network) /* a proxy moves the slots through the NIC */

enum gyre_link_class {
#define GYRE_LINK_ENUM(id, name) GYRE_LINK_##id,
    GYRE_LINK_TABLE(GYRE_LINK_ENUM)
#undef GYRE_LINK_ENUM
        GYRE_N_LINKS
};

/* A rate of 0 is no limit. */
struct gyre_cost {
    double launch_ns;                           /* until the first step */
    double worker_launch_ns;                    /* each */
    double step_ns[GYRE_N_PROTOS];              /* decoding and barriers */
    double hop_ns[GYRE_N_PROTOS][GYRE_N_LINKS]; /* from the sender's write to the receiver's view */
    double wire_efficiency[GYRE_N_PROTOS];      /* payload / bytes sent; above 0, at most 1 */
    double credit_ns[GYRE_N_LINKS];             /* from the receiver's read to the sender's view */
    double worker_send_bytes_per_ns[GYRE_N_LINKS];
    double worker_step_bytes_per_ns;  /* a step's bytes on the wire, beside the costs of its inputs
                                         and outputs */
    double worker_read_bytes_per_ns;  /* of each input */
    double worker_store_bytes_per_ns; /* of each local output */
    double fence_ns;                  /* of a sending step in SIMPLE inside a host */
    double uncached_slowdown;         /* of the three worker rates, from 16 * cached_bytes on */
    double cached_bytes;              /* calls up to this size are not slowed down; 0 = all */
    double parallel_workers;          /* of one rank; 0 = all */
    double cores_per_host;            /* 0 = no limit */
    double egress_bytes_per_ns[GYRE_N_LINKS];  /* of a rank */
    double ingress_bytes_per_ns[GYRE_N_LINKS]; /* of a rank */
    double nic_bytes_per_ns;                   /* each way */
    double nic_message_ns;                     /* a slot */
    double rendezvous_ns;    /* later, if the receiver has to fetch a slot, as it has to from */
    double rendezvous_bytes; /* on the wire */
};

/** Threads or processes over shared memory. */
extern const struct gyre_cost gyre_cost_host;

/** GPUs connected by NVLink 4, hosts by 400 Gbit/s NICs. */
extern const struct gyre_cost gyre_cost_h200;

/** "host" or "h200"; else NULL. */
const struct gyre_cost *gyre_cost_find(const char *name);

/** "key = value" lines; `#` starts a comment. @text: untrusted. @base: values of the other keys;
 * may be cost_out. Errors: INVALID_ARGUMENT with the line, and the legal keys if the key is
 * unknown. */
gyre_status gyre_cost_from_text(const char *text, const struct gyre_cost *base,
                                struct gyre_cost *cost_out);

/** gyre_cost_from_text() reads the same bits back. @text_out: malloc'ed. Errors: OUT_OF_MEMORY. */
gyre_status gyre_cost_to_text(const struct gyre_cost *cost, char **text_out);

struct gyre_fabric;

struct gyre_machine {
    const struct gyre_grouping *grouping; /* NULL = one host. n_nics: of each host */
    bool is_all_network;                  /* also inside hosts */
    const struct gyre_fabric *fabric;     /* replaces nic_bytes_per_ns; NULL = none */
};

struct gyre_simulated_step {
    uint32_t variant;
    uint32_t rank;
    uint32_t worker;
    uint32_t step;
    uint64_t tile;
    double start_ns; /* from the call */
    double end_ns;   /* the worker is free */
    uint32_t n_sends;
    double arrived_ns[GYRE_STEP_MAX_SENDS]; /* by send: the receiver sees it */
};

struct gyre_simulation {
    const struct gyre_cost *cost;
    enum gyre_proto proto;
    enum gyre_proto net_proto;
    uint32_t n_channels; /* one of each variant is simulated */
    uint32_t tile_bytes; /* payload of a slot, >= 1 */
    uint32_t depth;      /* 1..GYRE_SIMULATE_MAX_DEPTH */
    uint64_t n_bytes;    /* the vector or one block */
    bool all_tiles;      /* else extrapolate from the first ones */
    bool is_rough;       /* an error of a percent will do */
    double limit_ns;     /* 0 = none */
    /* In the order of starts; may be NULL. Without all_tiles and all ranks some steps are left
     * out or repeated. With a fabric, arrivals between hosts are INFINITY: arrive() tells them
     * later. */
    void (*observe)(void *observer, const struct gyre_simulated_step *step);
    /* May be NULL. @step: how many were observed before the one that sent it. @send: index of its
     * arrived_ns. */
    void (*arrive)(void *observer, uint64_t step, uint32_t send, double arrived_ns);
    void *observer;
};

#define GYRE_SIMULATE_MAX_DEPTH 64
#define GYRE_SIMULATE_MAX_FIFOS (1U << 21) /* about 400 MB */

/* X(enum suffix, name). LATENCY: no resource was busy for half of the time. */
#define GYRE_RESOURCE_TABLE(X) \
    X(LATENCY, latency)        \
    X(WORKER, worker)          \
    X(CORES, cores)            \
    X(EGRESS, egress)          \
    X(INGRESS, ingress)        \
    X(HOST_CORES, host_cores) X(NIC_OUT, nic_out) X(NIC_IN, nic_in) X(FABRIC, fabric_link)

enum gyre_resource {
#define GYRE_RESOURCE_ENUM(id, name) GYRE_RESOURCE_##id,
    GYRE_RESOURCE_TABLE(GYRE_RESOURCE_ENUM)
#undef GYRE_RESOURCE_ENUM
        GYRE_N_RESOURCES
};

extern const char *const gyre_resource_names[GYRE_N_RESOURCES];

struct gyre_prediction {
    double time_ns; /* INFINITY if longer than limit_ns */
    enum gyre_resource bottleneck;
    double busy_share;    /* 0..1, of the bottleneck */
    uint32_t fabric_link; /* if the bottleneck is FABRIC */
    bool is_extrapolated;
    uint64_t n_steps;
};

struct gyre_simulator;

/** A few ranks stand for all if a renumbering does not change the programs, and one host where all
 * pairs of more than 64 ranks exchange data, which changes the time by up to 4 %. @shape, @machine:
 * their groupings and the fabric must outlive the simulator. With a fabric all ranks are simulated,
 * unless its hosts are uniform and no data leave a leaf. Errors: as gyre_algorithm_emit();
 * INVALID_ARGUMENT (a sending side has no receiving side); UNSUPPORTED (more than
 * GYRE_SIMULATE_MAX_FIFOS FIFOs, too many steps, or no route through the fabric). */
gyre_status gyre_simulator_open(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, const struct gyre_machine *machine,
                                bool all_ranks, struct gyre_simulator **simulator_out);

void gyre_simulator_close(struct gyre_simulator *simulator);

uint32_t gyre_simulator_lanes(const struct gyre_simulator *simulator);

/** Simulations are fast if it divides the number of channels. */
uint32_t gyre_simulator_channel_unit(const struct gyre_simulator *simulator);

uint32_t gyre_simulator_min_depth(const struct gyre_simulator *simulator);

/** Of all tiles. Errors: INVALID_ARGUMENT. */
gyre_status gyre_simulator_steps(struct gyre_simulator *simulator,
                                 const struct gyre_simulation *simulation, uint64_t *n_steps_out);

/** One thread at a time. Errors: INVALID_ARGUMENT (a parameter is out of range, or the programs
 * deadlock at this depth), OUT_OF_MEMORY. */
gyre_status gyre_simulator_run(struct gyre_simulator *simulator,
                               const struct gyre_simulation *simulation,
                               struct gyre_prediction *prediction_out);

/** About the least time by the links, without latencies; 0 = not known. On several hosts all bytes
 * of a rank count on its links inside the host, so algorithms can be faster. @shape: coll, n_ranks
 * and grouping (with n_nics) are used. @n_bytes: of the whole vector, or of all blocks. */
double gyre_bound_ns(const struct gyre_shape *shape, const struct gyre_cost *cost,
                     uint64_t n_bytes);

#endif
