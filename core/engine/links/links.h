/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's links to every other rank. All ranks agree on the links when the communicator is made.
 */
#ifndef GYRE_LINKS_LINKS_H
#define GYRE_LINKS_LINKS_H

#include "core/engine/links/fifo_spec.h"
#include "core/engine/links/member.h"
#include "core/engine/links/network.h"
#include "core/foundation/model/schedule.h"
#include "core/foundation/topo/topo.h"
#include "transport/transport.h"

#define GYRE_MAX_TRANSPORTS 4

struct gyre_links {
    struct gyre_peer_info *infos; /* by rank */
    uint8_t *transport_of;        /* by rank: index into gyre_transports; not for the own rank */
    struct gyre_transport *transports[GYRE_MAX_TRANSPORTS]; /* by that index; NULL = not used */
    struct gyre_connector *connectors;
    struct gyre_fifo_spec spec;
    uint16_t *ring_prev; /* by rank: the predecessor in the ring */
    uint8_t *is_far;     /* by rank: 1 = the pair has spec.far */
    struct gyre_grouping grouping;
    struct gyre_topo topo;  /* of this host; empty where nobody asks */
    bool for_puts;          /* while put links' transports are opened */
    bool is_proxied;        /* a proxy serves some pair of ranks */
    bool is_proxied_inside; /* likewise, a pair of one host */
    bool uses_rdma;         /* the ib transport connects some pair */
    bool has_net_lines;     /* every pair that a proxy serves can use lines */
    bool is_ll128_safe; /* NVLink connects every pair, except proxied ones on different hosts, which
                         * never go by LL128 */
    bool is_p2p;        /* every pair addresses each other's memory directly */
    uint32_t n_gpu_sharers;      /* most ranks on one GPU; above 1 only with GYRE_SHARE_GPU */
    uint32_t least_sms;          /* multiprocessors that every rank has; 0 on the host device */
    struct gyre_network network; /* zeros on one host */
    /* other ranks connect to it in a shrink; NULL = none */
    struct gyre_regroup_listener *regroup_listener;
    char summary[64]; /* transports, such as "SHM+NET/Socket/0" */
};

/* A measured threshold (core/engine/plan/tuner/rows.h), or an algorithm. */
struct gyre_links_row {
    uint64_t hash;
    char text[128]; /* file, line and row; may be cut */
};

/* Must agree, as parameters and configuration do. */
struct gyre_links_options {
    const struct gyre_links_row *rows; /* in their order */
    uint32_t n_rows;
    uint64_t algo_hash;     /* of GYRE_ALGO_FILE's programs; 0 = not set */
    uint64_t tuning_hash;   /* of GYRE_TUNING_FILE's constants; 0 = not set */
    uint64_t newest_number; /* of this process's communicators */
};

/** Agree on settings, choose a transport for each pair, and connect. Collective. @member: complete
 * but for its number, which is set. Errors: INVALID_USAGE naming the rank and the setting that
 * differ, UNSUPPORTED (no transport for a pair), those of transports and of the rendezvous. After
 * an error gyre_links_close() frees what was made. */
gyre_status gyre_links_open(struct gyre_member *member, const struct gyre_links_options *options,
                            struct gyre_links *links);

/** After all ranks are connected. Sets links->summary. */
void gyre_links_log(const struct gyre_member *member, struct gyre_links *links);

void gyre_links_close(struct gyre_links *links);

/** Tell the proxies that something was enqueued. Any thread. */
void gyre_links_wake(const struct gyre_links *links);

/** gyre_executor_config's help. @context: struct gyre_links. */
bool gyre_links_help(void *context, bool is_last);

static inline bool gyre_links_is_proxied_to(const struct gyre_links *links, int rank)
{
    return gyre_transports[links->transport_of[rank]]->is_proxied;
}

/** How long connecting may take. */
uint64_t gyre_links_timeout_ns(const struct gyre_member *member);

/* ---- agreement.c -------------------------------------------------------------------------- */

/** Sets member->number. Collective, the same result on all ranks. Errors: INVALID_USAGE naming two
 * ranks and the first setting or row that differs; those of the bootstrap, OUT_OF_MEMORY. */
gyre_status gyre_links_agree(struct gyre_member *member, const struct gyre_links_options *options);

/* ---- choose.c ----------------------------------------------------------------------------- */

/** Fill links->transport_of, and facts about all pairs such as is_p2p. Collective, after the infos
 * were gathered. Errors: UNSUPPORTED naming two ranks without a transport, and why; those of the
 * bootstrap, OUT_OF_MEMORY. */
gyre_status gyre_links_choose_transports(const struct gyre_member *member,
                                         struct gyre_links *links);

/* ---- put links, in connect.c ---------------------------------------------------------------- */

/* They are apart, because plans divide the other transports' FIFOs among channels. */
struct gyre_put_transports {
    struct gyre_transport *transports[GYRE_MAX_TRANSPORTS]; /* as in struct gyre_links */
    struct gyre_connector *connectors; /* one FIFO a pair; zeros without a proxy */
    uint32_t slot_bytes;
};

/** Collective. Errors: those of transports and of the rendezvous; gyre_put_transports_close() then
 * frees what was made. */
gyre_status gyre_put_transports_open(struct gyre_member *member, const struct gyre_links *links,
                                     struct gyre_put_transports *puts);

/** Any thread. */
void gyre_put_transports_wake(const struct gyre_put_transports *puts);
void gyre_put_transports_close(struct gyre_put_transports *puts);

/** No two ranks may use one GPU, because they could wait for each other's blocks for ever. Where
 * GYRE_SHARE_GPU allows it, limits member->config.sm_budget to this rank's part. Sets
 * links->n_gpu_sharers and links->least_sms. Errors: INVALID_USAGE naming two ranks and their
 * GPU. */
gyre_status gyre_links_check_gpus(struct gyre_member *member, struct gyre_links *links);

/** Refuse a trace file of several processes. The same result on all ranks. Errors: INVALID_ARGUMENT
 * naming two ranks. */
gyre_status gyre_links_check_traces(const struct gyre_member *member,
                                    const struct gyre_links *links);

/** If some rank is traced and there are several hosts. Collective. @offset_ns_out: this clock minus
 * that of rank 0's host. @error_ns_out: the most that it is wrong by, apart from later drift. Both
 * are 0 on one host. Errors: those of the rendezvous, OUT_OF_MEMORY. */
gyre_status gyre_links_measure_clock(const struct gyre_member *member,
                                     const struct gyre_links *links, int64_t *offset_ns_out,
                                     uint64_t *error_ns_out);

/* ---- network.c ---------------------------------------------------------------------------- */

/** Fill links->network, the same on all ranks; nothing on one host. Collective, after connecting.
 * Errors: those of the bootstrap. */
gyre_status gyre_links_measure(const struct gyre_member *member, struct gyre_links *links);

/* ---- the topology, in choose.c -------------------------------------------------------------- */

/** Check GYRE_P2P_LEVEL and fill links->topo: from GYRE_TOPO_FILE, else from this machine if it is
 * used. Errors: INVALID_ARGUMENT listing the legal words, or with file and line; those of
 * gyre_topo_detect. */
gyre_status gyre_topology_open(const struct gyre_member *member, struct gyre_links *links);

/** For gyre_peer_info.topo_hash; 0 = there is none. */
uint64_t gyre_topology_hash(const struct gyre_links *links);

/** To GYRE_TOPO_DUMP_FILE, on each host's first rank. Errors: those of gyre_topo_xml_write. */
gyre_status gyre_topology_dump(const struct gyre_member *member, const struct gyre_links *links);

/** Warn, once a job, when hosts do not look alike. */
void gyre_topology_compare(const struct gyre_member *member, const struct gyre_links *links);

#endif
