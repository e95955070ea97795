/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's links to every other rank. All ranks agree on the links when the communicator is made.
 */
#ifndef GYRE_LINKS_LINKS_H
#define GYRE_LINKS_LINKS_H

#include "algorithms/algorithm.h"
#include "bootstrap/bootstrap.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/device/device.h"
#include "core/foundation/model/connector.h"
#include "core/foundation/model/schedule.h"
#include "core/foundation/topo/topo.h"
#include "core/foundation/trace/trace.h"
#include "core/gyre.h"
#include "transport/transport.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

struct gyre_rank {
    int rank;
    int n_ranks;
    char name[64]; /* of the communicator */
    uint64_t job;  /* hash of the unique id: ranks of one job in one process end together. Under the
                    * registry's lock */
    uint64_t number; /* the same on all ranks, above their processes' earlier ones */
    struct gyre_params params;
    gyre_config config; /* every undefined field resolved */
    struct gyre_fault fault;
    struct gyre_trace *trace; /* NULL: not traced */
    int file_rank;            /* %r in names of files: the rank before all splits and shrinks */
    struct gyre_device *device;
    struct gyre_device_info device_info;
    struct gyre_bootstrap *bootstrap;
    uint64_t stage_ns; /* when the current stage of making it began */
    /* Of connections; set before any is made. */
    void (*tell)(void *context, const gyre_connection_event *event);
    void *tell_context;
    uint32_t has_left; /* 1: said goodbye. By the thread that leaves, release */
};

void gyre_rank_end_stage(struct gyre_rank *self, const char *stage);

/** Of a call. UINT32_MAX = any number. */
uint32_t gyre_rank_max_channels(const struct gyre_rank *self);

/* Pure functions of agreed facts, so all ranks compute the same. */

#define GYRE_FIFO_BUDGET_BYTES (64ULL << 20)
/* GPUs behind proxies: slots at both ends, and many FIFOs in flight to fill eight NICs. */
#define GYRE_FIFO_BUDGET_ACROSS_BYTES (256ULL << 20)

/** On one host, within the budget of a rank, or of more than two GPUs within twice that.
 * @buffer_bytes: GYRE_BUFFSIZE; 0 = unset.
 * @max_channels: of a call; UINT32_MAX = any number. */
struct gyre_fifo_spec gyre_tuner_fifo_spec(gyre_device_kind kind, uint32_t n_ranks, bool is_proxied,
                                           uint64_t buffer_bytes, uint32_t max_channels);

/** On several hosts. Large calls use near pairs, so these get most of the budget.
 * @is_proxied_inside: proxies also serve pairs on one host. @by_rdma: between hosts; else TCP. */
struct gyre_fifo_spec gyre_tuner_fifo_spec_across(gyre_device_kind kind,
                                                  const struct gyre_peer_counts *peers,
                                                  bool is_proxied_inside, bool by_rdma,
                                                  uint64_t buffer_bytes, uint32_t max_channels);

/** Of a slot of LL: all take a sixteenth of GYRE_FIFO_BUDGET_BYTES at most, on GPUs an eighth of
 * GYRE_FIFO_BUDGET_ACROSS_BYTES. 0: too short to be of use. @n_near, @n_far: proxied peers. */
uint32_t gyre_net_line_bytes(gyre_device_kind kind, const struct gyre_fifo_spec *spec,
                             uint32_t n_near, uint32_t n_far);

/** A call's kernels go by one line protocol, so nothing is added if ranks that share a host have no
 * slots of LL. */
void gyre_fifo_spec_add_net_lines(struct gyre_fifo_spec *spec, gyre_device_kind kind,
                                  const struct gyre_peer_counts *peers, bool is_proxied_inside);

/* The network between hosts, the same on all ranks. */

struct gyre_network {
    bool is_rdma;
    uint32_t nic_mbit_per_s; /* of the slowest NIC that a rank uses; 0 = unknown */
    uint64_t latency_ns;     /* of the wire, one way; 0 = unknown */
    uint32_t least_ports;    /* RDMA ports in use on the host with the fewest, */
    uint32_t most_ports;     /* and on that with the most; 0 = unknown */
};

/** The nearest power of two microseconds; 0 stays 0. Plans depend on the class alone, so two
 * measurements give one plan. Pure. */
uint64_t gyre_network_round(uint64_t round_trip_ns);

/** Likewise 1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.4 or 8 times a power of ten. Pure. */
uint64_t gyre_network_round_rate(uint64_t mbit_per_s);

/** Of the values that are not 0; 0 if there is none. Sorts @values. */
uint64_t gyre_network_median(uint64_t *values, int n);

#define GYRE_MAX_TRANSPORTS 4

struct gyre_links {
    struct gyre_peer_info *infos; /* by rank */
    uint8_t *transport_of;        /* by rank: index into gyre_transports; not the own */
    struct gyre_transport *transports[GYRE_MAX_TRANSPORTS]; /* by that index; NULL = not used */
    struct gyre_connector *connectors;
    struct gyre_fifo_spec spec;
    uint16_t *ring_prev; /* by rank: the predecessor in the ring */
    uint8_t *is_far;     /* by rank: 1 = it has spec.far */
    struct gyre_grouping grouping;
    struct gyre_topo topo; /* of this host; empty if nobody asks */
    bool for_puts;
    bool is_proxied;        /* a proxy serves some pair */
    bool is_proxied_inside; /* likewise, on one host */
    bool uses_rdma;         /* the ib transport connects some pair */
    bool has_net_lines;     /* every proxied pair can use lines */
    bool is_ll128_safe;     /* NVLink connects every pair, except proxied ones between hosts, which
                             * never go by LL128 */
    bool is_p2p;            /* every pair addresses each other's memory */
    uint32_t n_gpu_sharers; /* most ranks on one GPU; above 1 only with GYRE_SHARE_GPU */
    uint32_t least_sms;     /* every rank has; 0 on the host device */
    struct gyre_network network; /* zeros on one host */
    /* the other ranks of a shrink connect to them */
    struct gyre_sock_listeners regroup_listeners;
    char summary[64]; /* such as "SHM+NET/Socket/0" */
};

/* A measured threshold or an algorithm. */
struct gyre_links_row {
    uint64_t hash;
    char text[128]; /* file, line and row; may be cut */
};

struct gyre_links_options {
    const struct gyre_links_row *rows; /* in order */
    uint32_t n_rows;
    uint64_t algo_hash;     /* of GYRE_ALGO_FILE's programs; 0 = not set */
    uint64_t tuning_hash;   /* of GYRE_TUNING_FILE's constants; 0 = not set */
    uint64_t newest_number; /* of this process's communicators */
};

/** All ranks' structs. @all_out: room for them; NULL: OUT_OF_MEMORY. Other errors: those of the
 * bootstrap. */
static inline gyre_status gyre_rank_gather(const struct gyre_rank *self, const void *mine,
                                           size_t n_bytes, void *all_out)
{
    if (all_out == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    return self->bootstrap->ops->all_gather(self->bootstrap, mine, n_bytes, all_out);
}

/** Collective. @self: complete but for its number, which is set. Errors: INVALID_USAGE naming the
 * rank and the setting that differ, UNSUPPORTED (no transport for a pair), those of transports and
 * of the rendezvous. After an error gyre_links_close() frees what was made. */
gyre_status gyre_links_open(struct gyre_rank *self, const struct gyre_links_options *options,
                            struct gyre_links *links);

/** Once all ranks are connected. Sets links->summary. */
void gyre_links_log(const struct gyre_rank *self, struct gyre_links *links);

void gyre_links_close(struct gyre_links *links);

/** Something was enqueued. Any thread. */
void gyre_links_wake(const struct gyre_links *links);

/** gyre_executor_config's help. @context: struct gyre_links. */
bool gyre_links_help(void *context, bool is_last);

static inline bool gyre_links_is_proxied_to(const struct gyre_links *links, int rank)
{
    return gyre_transports[links->transport_of[rank]]->is_proxied;
}

uint64_t gyre_links_timeout_ns(const struct gyre_rank *self);

/* ---- agreement.c -------------------------------------------------------------------------- */

/** Sets self->number. Collective, the same result on all ranks. Errors: INVALID_USAGE naming two
 * ranks and the first setting or row that differs; those of the bootstrap. */
gyre_status gyre_links_agree(struct gyre_rank *self, const struct gyre_links_options *options);

/* ---- choose.c ----------------------------------------------------------------------------- */

/** Fill links->transport_of, and facts about all pairs. Collective, after gathering the infos.
 * Errors: UNSUPPORTED naming two ranks without a transport, and why; those of the bootstrap. */
gyre_status gyre_links_choose_transports(const struct gyre_rank *self, struct gyre_links *links);

/* ---- put links, in connect.c ---------------------------------------------------------------- */

/* Apart, because plans divide the other FIFOs among channels. */
struct gyre_put_transports {
    struct gyre_transport *transports[GYRE_MAX_TRANSPORTS]; /* as in struct gyre_links */
    struct gyre_connector *connectors; /* one FIFO a pair; zeros without a proxy */
    uint32_t slot_bytes;
    uint32_t is_open; /* set by the thread that opens them, release; read by the health thread */
};

/** A message of another rank's transport (struct gyre_transport_state); a malformed one is dropped.
 * By the health thread. */
void gyre_links_take_state(const struct gyre_links *links, const struct gyre_put_transports *puts,
                           int rank, const void *message, size_t n_bytes);

/** A connection broke and has not carried data again yet (GYRE_FAILOVER). Any thread. */
bool gyre_links_are_moving(const struct gyre_links *links, const struct gyre_put_transports *puts);

/** Collective. Errors: those of transports and of the rendezvous; then gyre_put_transports_close()
 * frees what was made. */
gyre_status gyre_put_transports_open(struct gyre_rank *self, const struct gyre_links *links,
                                     struct gyre_put_transports *puts);

/** Any thread. */
void gyre_put_transports_wake(const struct gyre_put_transports *puts);
void gyre_put_transports_close(struct gyre_put_transports *puts);

/** No two ranks may use one GPU: they could wait for each other's blocks for ever. Where
 * GYRE_SHARE_GPU allows it, self->config.sm_budget becomes this rank's part. Sets n_gpu_sharers
 * and least_sms. Errors: INVALID_USAGE naming two ranks and their GPU. */
gyre_status gyre_links_check_gpus(struct gyre_rank *self, struct gyre_links *links);

/** A trace file has one process. The same result on all ranks. Errors: INVALID_ARGUMENT naming two
 * ranks. */
gyre_status gyre_links_check_traces(const struct gyre_rank *self, const struct gyre_links *links);

/** If some rank is traced and there are several hosts. Collective. @offset_ns_out: this clock minus
 * that of rank 0's host. @error_ns_out: the largest error, apart from later drift. Both are 0 on
 * one host. Errors: those of the rendezvous. */
gyre_status gyre_links_measure_clock(const struct gyre_rank *self, const struct gyre_links *links,
                                     int64_t *offset_ns_out, uint64_t *error_ns_out);

/* ---- network.c ---------------------------------------------------------------------------- */

/** Fill links->network, the same on all ranks. Collective, after connecting. Errors: those of the
 * bootstrap. */
gyre_status gyre_links_measure(const struct gyre_rank *self, struct gyre_links *links);

/* ---- the topology, in choose.c -------------------------------------------------------------- */

/** Fill links->topo from GYRE_TOPO_FILE, else from this machine if it is used, and check
 * GYRE_P2P_LEVEL. Errors: INVALID_ARGUMENT listing the legal words, or with file and line; those of
 * gyre_topo_detect. */
gyre_status gyre_topology_open(const struct gyre_rank *self, struct gyre_links *links);

/** On each host's first rank. Errors: those of gyre_topo_xml_write. */
gyre_status gyre_topology_dump(const struct gyre_rank *self, const struct gyre_links *links);

/** Warn, once a job, of hosts that differ. */
void gyre_topology_compare(const struct gyre_rank *self, const struct gyre_links *links);

#endif
