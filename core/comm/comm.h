/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator, as its own files see it. Each part has one owner: connect.c makes the links,
 * plan.c the programs, group.c the order of launches, health.c watches, comm.c makes and ends it.
 */
#ifndef GYRE_COMM_COMM_H
#define GYRE_COMM_COMM_H

#include "bootstrap/bootstrap.h"
#include "core/base/fault.h"
#include "core/base/param.h"
#include "core/comm/plan.h"
#include "core/comm/record.h"
#include "core/topo/topo.h"
#include "kernels/executor.h"
#include "transport/transport.h"

#define GYRE_MAX_TRANSPORTS 4
#define GYRE_MAX_USER_OPS   64

/* How this rank talks to every other; made by connect.c. */
struct gyre_links {
    struct gyre_peer_info *infos; /* by rank */
    uint8_t *transport_of;        /* by rank: index into gyre_transports; own rank: unused */
    struct gyre_transport *transports[GYRE_MAX_TRANSPORTS]; /* by that index; NULL = not used */
    struct gyre_connector *connectors;
    struct gyre_fifo_spec spec;
    uint16_t *before; /* by rank: who comes before it in the order of rings */
    struct gyre_grouping grouping;
    struct gyre_topo topo; /* of this host; empty where nobody asks it anything */
    bool is_proxied;       /* any pair of any ranks */
    bool is_ll128_safe;    /* all pairs of all ranks */
    char summary[64];      /* "SHM" or "SHM+NET/Socket/0": what the whole communicator uses */
};

/* A sum with a scalar, made by gyre_op_create_premul_sum. */
struct gyre_user_op {
    bool is_used;
    gyre_dtype dtype;
    uint64_t scalar;
};

struct gyre_health;

struct gyre_comm {
    int rank;
    int n_ranks;
    char name[64];
    uint64_t job; /* hash of the unique id: ranks of one job in one process end together */
    struct gyre_params params;
    struct gyre_tuning tuning;
    gyre_config config; /* every undefined field resolved */
    struct gyre_fault fault;
    struct gyre_device *device;
    struct gyre_device_info device_info;
    struct gyre_bootstrap *bootstrap;
    struct gyre_links links;
    struct gyre_executor *executor;
    struct gyre_plan_cache *plans;
    struct gyre_health *health;
    struct gyre_board board;
    uint64_t *n_p2p; /* by peer * 2 + is_send: messages so far */
    struct gyre_user_op user_ops[GYRE_MAX_USER_OPS];
    bool is_finalized;      /* no more calls */
    uint32_t has_left;      /* said goodbye: written by the caller, read by the health thread */
    struct gyre_comm *next; /* in the registry of comm.c */
    bool is_ending;         /* destroyed by the user; its end is under way */
};

/** gyre_comm_check - is this a live handle that may take calls? Errors: INVALID_ARGUMENT (NULL),
 * INVALID_USAGE (destroyed, finalized), or what the communicator failed with. */
gyre_status gyre_comm_check(gyre_comm *comm);

/** gyre_connect - agree on settings, choose transports, connect, fill comm->links; collective.
 * comm->bootstrap, params, config, device are set. */
gyre_status gyre_connect(gyre_comm *comm);

/** gyre_disconnect - close what gyre_connect made. */
void gyre_disconnect(gyre_comm *comm);

/** gyre_links_wake - tell the proxies that something was enqueued. */
void gyre_links_wake(gyre_comm *comm);

/* ---- topology.c --------------------------------------------------------------------------- */

/** gyre_topology_open - check GYRE_P2P_LEVEL and fill comm->links.topo: from GYRE_TOPO_FILE, else
 * from this machine if anything depends on it. Errors: INVALID_ARGUMENT listing the legal words, or
 * with the file, the line and what is wrong there; those of gyre_topo_detect. */
gyre_status gyre_topology_open(gyre_comm *comm);

/** gyre_topology_hash - for gyre_peer_info.topo_hash; 0 = there is none. */
uint64_t gyre_topology_hash(const gyre_comm *comm);

/** gyre_topology_dump - GYRE_TOPO_DUMP_FILE, by the first rank of each host. Errors: SYSTEM. */
gyre_status gyre_topology_dump(const gyre_comm *comm);

/** gyre_topology_compare - warn, once a job, when hosts do not look alike. */
void gyre_topology_compare(const gyre_comm *comm);

/* ---- group.c ------------------------------------------------------------------------------ */

/** gyre_group_submit - take one call: launch it now, or at the end of this thread's group. */
gyre_status gyre_group_submit(gyre_comm *comm, const struct gyre_call *call);

/* An init inside a group. */
struct gyre_pending_init {
    gyre_comm **comm_out;
    int n_ranks;
    gyre_unique_id id;
    int rank;
    gyre_config config;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

/** gyre_group_is_open - is this thread inside a group? */
bool gyre_group_is_open(void);

/** gyre_group_defer_init - carry the init out at the end of the group. */
gyre_status gyre_group_defer_init(const struct gyre_pending_init *init);

/** gyre_comm_init_now - gyre_comm_init_rank without groups. */
gyre_status gyre_comm_init_now(gyre_comm **comm_out, int n_ranks, const gyre_unique_id *id,
                               int rank, const gyre_config *config);

/** gyre_run_inits - carry out inits side by side, a thread each; the first failure. */
gyre_status gyre_run_inits(struct gyre_pending_init *inits, int n_inits);

/* ---- health.c ----------------------------------------------------------------------------- */

/** gyre_health_open - start watching: peers, stalls, mismatched calls, timeouts. */
gyre_status gyre_health_open(gyre_comm *comm, struct gyre_health **health_out);

/** gyre_health_pause / resume - keep the thread away from the bootstrap links while the caller
 * uses all_gather. */
void gyre_health_pause(struct gyre_health *health);
void gyre_health_resume(struct gyre_health *health);

/** gyre_health_posted - a call was posted on the board: compare it with what peers asked about. */
void gyre_health_posted(struct gyre_health *health, const struct gyre_record *record);

/** gyre_health_launched - work number `work` (as the pulse counts) carries out board record
 * `record`. Called before the launch. */
void gyre_health_launched(struct gyre_health *health, uint64_t work, uint64_t record);

/** gyre_health_tell - tell all peers that this communicator ends here, and why. */
void gyre_health_tell(struct gyre_health *health, const char *text);

/** gyre_health_wait_left - wait until every other rank left or was lost, or the deadline. */
void gyre_health_wait_left(struct gyre_health *health, uint64_t deadline_ns);

void gyre_health_close(struct gyre_health *health);

/** gyre_compare_calls - GYRE_CHECK=calls: gather every rank's record and compare, before anything
 * is launched. Errors: INVALID_USAGE naming two ranks and their calls. */
gyre_status gyre_compare_calls(gyre_comm *comm, const struct gyre_record *record);

#endif
