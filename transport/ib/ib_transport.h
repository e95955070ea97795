/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of transport/ib share: rails (ports in use), lanes (queue pairs), peers and the
 * ends of their FIFOs. After connect everything here belongs to the proxy thread, but for the words
 * that executors share (fifo.inbox, fifo.credit).
 *
 * How a slot travels. A lane is a QP of a pair of ranks; a FIFO's slots may use any lane of its
 * pair.
 *
 *   sender: slot published and credit there ->
 *     RDMA WRITE  payload                 to the slot of the same number at the peer
 *     WRITE_WITH_IMM  slot_info and credit (16 bytes) to the slot's box, imm = FIFO, slot, number
 *                     of parts
 *   receiver: completion of the imm -> slot_info and tail of the local inbox
 *
 * A payload that fits is written into the box behind them: one message. A large payload is cut
 * into parts, one per lane, each ended by such an imm; the slot is there when all its imms are.
 * Why that is enough: requests of one RC QP execute in order at the responder, and the completion
 * of a receive that an imm consumed is made visible after the data of all requests before it (IB
 * specification 1.4, 9.5 and 10.8.3), whatever order relaxed PCI writes took: readiness is never
 * read from the last byte of the data.
 *
 *   receiver: head advanced by the executor ->
 *     WRITE_WITH_IMM  head (8 bytes)      to the sender's credit word, on the control QP
 *
 * Receives are posted for more imms than there can be credits, and posted again before a credit is
 * returned, so "receiver not ready" cannot happen.
 */
#ifndef GYRE_IB_TRANSPORT_H
#define GYRE_IB_TRANSPORT_H

#include "transport/ib/ib_device.h"
#include "transport/ib/ib_mr.h"
#include "transport/ib/ib_qp.h"
#include "transport/proxy.h"
#include "transport/transport.h"

#define GYRE_IB_MAX_RAILS      4
#define GYRE_IB_MAX_LANES      16     /* of a pair of ranks; the imm has four bits for it */
#define GYRE_IB_MAX_ALL_LANES  0x4000 /* of a rank; the wr_id has 14 bits for it */
#define GYRE_IB_PAIR_GIDS      8      /* of a port that are told to peers */

#define GYRE_IB_CM_TOKEN_BYTES 16

/* 4 KiB hold 16 of them; 240 bytes of payload cover the latency-bound calls, and copying them once
 * more costs less than a second message. */
#define GYRE_IB_BOX_BYTES         256
#define GYRE_IB_BOX_PAYLOAD_BYTES (GYRE_IB_BOX_BYTES - 16)

/* A part is worth a doorbell and an imm of its own from here on. */
#define GYRE_IB_STRIPE_MIN_BYTES 65536

#define GYRE_IB_BATCH            32 /* work requests posted at once */
#define GYRE_IB_RECV_BATCH       32 /* receives posted again at once */

/* What a box begins with; the NIC reads it from staging. */
struct gyre_ib_label {
    uint64_t slot_info;
    uint64_t credit; /* the sender's head of the FIFO with the same number the other way: saves the
                      * message of its own where data flow both ways */
};

/* Written by the peer's NIC. */
struct gyre_ib_box {
    struct gyre_ib_label label;
    unsigned char payload[GYRE_IB_BOX_PAYLOAD_BYTES];
};

GYRE_STATIC_ASSERT(sizeof(struct gyre_ib_box) == GYRE_IB_BOX_BYTES, "the peer computes offsets");

/* A port in use. */
struct gyre_ib_rail {
    struct gyre_ib_port port;
    int index; /* in the scan: NET/IB/<index> */
    struct ibv_context *context;
    struct ibv_device_attr attr;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    int n_cqe;
    bool is_armed; /* the next completion makes the channel readable */
    struct gyre_ib_gid_row gids[GYRE_IB_PAIR_GIDS]; /* usable, best first */
    int n_gids;
    struct ibv_mr *send_slots;
    struct ibv_mr *recv_slots;
    struct ibv_mr *landing; /* boxes and credit words: written by peers */
    struct ibv_mr *staging; /* labels and heads: read by this NIC */
    struct ibv_qp *fence;   /* connected to itself; NULL where nothing has to be fenced */
    uint64_t down_since_ns; /* 0 = the port is active */
};

struct gyre_ib_peer;
struct gyre_ib_cm;

/* A queue pair. */
struct gyre_ib_lane {
    struct ibv_qp *qp;
    struct gyre_ib_peer *peer;
    struct gyre_ib_rail *rail;
    uint32_t id; /* in transport->lanes; stands in wr_id */
    bool is_control;
    struct gyre_ib_qp_path path;
    int remote_rail;           /* of the peer */
    int remote_nth;            /* of the peer's lanes to this rank */
    uint32_t remote_gid_index; /* for error texts */
    uint32_t max_msg_bytes;    /* that both ports take */
    struct gyre_ib_qp_size size;
    uint64_t n_posted; /* sends */
    uint64_t n_retired;
    uint64_t signalled_at; /* n_posted when the last signalled one was added */
    uint32_t n_recv_due;   /* receives consumed and not yet posted again */
    int n_batch;
    struct ibv_send_wr batch[GYRE_IB_BATCH];
    struct ibv_sge sges[GYRE_IB_BATCH][2];
};

struct gyre_ib_send {
    struct gyre_proxy_fifo fifo;
    uint64_t posted;              /* slots handed to the NIC */
    uint64_t released;            /* slots whose bytes have left */
    uint64_t credit;              /* the receiver's head, as far as known */
    struct gyre_ib_label *labels; /* depth, in staging */
    uint8_t parts_left[GYRE_MAX_DEPTH];
};

struct gyre_ib_recv {
    struct gyre_proxy_fifo fifo;
    uint64_t arrived;  /* slots whose tail was published */
    uint64_t returned; /* head that the sender was told */
    uint64_t fenced;   /* slots that a fence has passed since they were complete */
    uint64_t fencing;  /* of the fence that is under way */
    uint64_t *head;    /* one word in staging */
    struct gyre_ib_box *boxes;
    uint8_t parts_seen[GYRE_MAX_DEPTH];
    uint8_t n_parts[GYRE_MAX_DEPTH]; /* 0: no imm yet */
    bool is_boxed[GYRE_MAX_DEPTH];
};

/* Where a peer's memory is. */
struct gyre_ib_remote {
    uint64_t slots; /* of the first FIFO from this rank; slots_stride apart */
    uint64_t slots_stride;
    uint64_t boxes;   /* [n_fifos][depth] */
    uint64_t credits; /* [n_fifos] words */
    uint32_t slots_rkey[GYRE_IB_MAX_RAILS];
    uint32_t landing_rkey[GYRE_IB_MAX_RAILS];
    bool takes_boxes;
};

struct gyre_ib_peer {
    int rank;
    struct gyre_ib_lane *lanes;                   /* by rail: data lanes, then a control lane */
    struct gyre_ib_lane *used[GYRE_IB_MAX_LANES]; /* data lanes of rails that are connected */
    int n_used;
    struct gyre_ib_lane *control;
    struct gyre_ib_send *sends;
    struct gyre_ib_recv *recvs;
    uint64_t *credit_words; /* n_fifos, in landing */
    struct gyre_ib_remote remote;
    uint8_t cm_token[GYRE_IB_CM_TOKEN_BYTES]; /* that it proves when it connects to this rank */
    char words[48];                           /* describe() */
    uint64_t n_completions;                   /* of anything to or from it */
    uint64_t n_completions_seen;              /* when it was last looked at */
};

/* A read of slots through every NIC, after which what the NICs wrote before is there for the GPU.
 * One is under way at a time; what comes meanwhile waits for the next. */
struct gyre_ib_fence {
    bool is_needed;
    bool is_wanted; /* complete slots wait for one that has not begun */
    int n_left;     /* reads of the one that is under way */
};

struct gyre_ib_transport {
    struct gyre_transport base;
    struct gyre_transport_config config; /* pointers in it are the communicator's, but for peers */
    struct gyre_ib_scan scan;
    const struct gyre_verbs *verbs;
    struct gyre_ib_rail rails[GYRE_IB_MAX_RAILS];
    int n_rails;
    struct gyre_ib_peer *peers;
    struct gyre_ib_lane *lanes;
    int n_lanes; /* all peers', controls included */
    int lanes_per_peer;
    int lanes_per_rail;    /* of a peer */
    struct gyre_ib_cm *cm; /* NULL: connected by what the bootstrap carries */
    struct gyre_ib_send *sends;
    struct gyre_ib_recv *recvs;
    struct gyre_proxy_fifo *fifos; /* sends, then recvs */
    unsigned traffic_class;
    unsigned control_class;
    unsigned service_level;
    unsigned timeout;
    unsigned retries;
    enum gyre_ib_gdr recv_gdr; /* how NICs reach slots that are received into */
    enum gyre_ib_gdr send_gdr;
    struct gyre_ib_fence fence;
    void *fifo_memory; /* pinned: inboxes, credits and, without GPUDirect, slots */
    size_t fifo_bytes;
    void *gpu_memory; /* slots, with GPUDirect */
    size_t gpu_bytes;
    unsigned char *send_slots; /* of all FIFOs; slots_stride apart */
    unsigned char *recv_slots;
    uint64_t slots_stride;
    void *landing; /* boxes[n][depth], credit words[n], a word for fences; n = peers * n_fifos */
    size_t landing_bytes;
    void *staging; /* labels[n][depth], heads[n] */
    size_t staging_bytes;
    int nap_fd; /* epoll over completion channels and async events */
    struct gyre_proxy *proxy;
    uint64_t events_looked_ns; /* when async events were looked for */
    uint64_t probed_ns;        /* when silent peers were looked for */
    uint64_t n_polls;
    bool is_failed; /* an error was raised: the path stands still */
};

static inline uint32_t gyre_ib_n_fifos(const struct gyre_ib_transport *ib)
{
    return ib->config.spec.n_fifos;
}

/* ---- ib_rail.c ----------------------------------------------------------------------------- */

/** gyre_ib_rails_open - scan, choose the ports nearest to the device, open them, choose GIDs. */
gyre_status gyre_ib_rails_open(struct gyre_ib_transport *ib);
void gyre_ib_rails_close(struct gyre_ib_transport *ib);

/** gyre_ib_rail_gids - the usable GIDs of a port, best first; n = 0 on InfiniBand.
 * Errors: as gyre_ib_gid_choose, with the port's name. */
gyre_status gyre_ib_rail_gids(const struct gyre_verbs *verbs, const struct gyre_params *params,
                              struct ibv_context *context, const struct gyre_ib_port *port,
                              struct gyre_ib_gid_row *gids_out, int *n_out);

struct gyre_ib_rail_list {
    int n;
    uint32_t indices[GYRE_IB_MAX_RAILS]; /* in the scan of all ports, nearest first */
};

struct gyre_ib_rail_pairs {
    int n;
    int mine[GYRE_IB_MAX_RAILS]; /* positions in the lists */
    int theirs[GYRE_IB_MAX_RAILS];
};

/** gyre_ib_pair_rails - which rails of two ranks are connected; pure, both come to the same pairs.
 * @cross: GYRE_CROSS_NIC. 0: only ports of the same index, as a fabric of separate rails needs; 1:
 * first to first, second to second; 2: as 0 where there is such a pair, else as 1.
 * Errors: UNSUPPORTED (no pair), naming the rails of both. */
gyre_status gyre_ib_pair_rails(const struct gyre_ib_rail_list *mine,
                               const struct gyre_ib_rail_list *theirs, int cross,
                               struct gyre_ib_rail_pairs *pairs_out);

/* ---- ib_memory.c --------------------------------------------------------------------------- */

/** gyre_ib_memory_open - FIFOs, landing and staging memory, registered on every rail. */
gyre_status gyre_ib_memory_open(struct gyre_ib_transport *ib);
void gyre_ib_memory_close(struct gyre_ib_transport *ib);

/* ---- ib_lanes.c -------------------------------------------------------------------------- */

/** gyre_ib_lanes_open - completion queues and queue pairs, in INIT with receives posted. */
gyre_status gyre_ib_lanes_open(struct gyre_ib_transport *ib);
void gyre_ib_lanes_close(struct gyre_ib_transport *ib);

/** gyre_ib_path_begin - what every queue pair of a rail has in common: port, class, timers and this
 * end but for its GID and number, with a random PSN. Errors: SYSTEM. */
gyre_status gyre_ib_path_begin(const struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail,
                               struct gyre_ib_qp_path *path_out);

/* ---- ib_fence.c ------------------------------------------------------------------------------ */

/** gyre_ib_fences_open - a queue pair of every rail, connected to itself; nothing where no fence is
 * needed. Errors: as gyre_ib_qp_create and gyre_ib_qp_connect. */
gyre_status gyre_ib_fences_open(struct gyre_ib_transport *ib);
void gyre_ib_fences_close(struct gyre_ib_transport *ib);

/** gyre_ib_fence_begin - post the reads of the fence that is wanted, if none is under way; true if
 * it did. */
bool gyre_ib_fence_begin(struct gyre_ib_transport *ib);

/** gyre_ib_fence_end - one of the reads is done; true if it was the last. A failed one raises the
 * fault. */
bool gyre_ib_fence_end(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail,
                       const struct ibv_wc *wc);

/* ---- ib_connect.c -------------------------------------------------------------------------- */

/** gyre_ib_blob - what peers need to know. */
gyre_status gyre_ib_blob(const struct gyre_ib_transport *ib, void **blob_out, size_t *n_bytes_out);

/** gyre_ib_lanes_connect - read the peers' blobs, pair GIDs, connect all QPs. */
gyre_status gyre_ib_lanes_connect(struct gyre_ib_transport *ib, const void *blobs,
                                  const size_t *offsets, uint64_t deadline_ns);

/* ---- ib_path.c ----------------------------------------------------------------------------- */

/** gyre_ib_poll - one round of the proxy; true if anything moved. */
bool gyre_ib_poll(void *transport);

/** gyre_ib_is_behind - are there published slots (has_credit: that may be sent) that no queue pair
 * has taken? */
bool gyre_ib_is_behind(const void *transport, bool has_credit);

/** gyre_ib_settle - before a nap on nap_fd: make the next completion end it; true if one came. */
bool gyre_ib_settle(void *transport);

/** gyre_ib_post_receives - top up a lane. Errors: SYSTEM. */
gyre_status gyre_ib_post_receives(struct gyre_ib_lane *lane, uint32_t n);

/* ---- ib_events.c --------------------------------------------------------------------------- */

/** gyre_ib_events_look - handle the async events that are there; raise the fault if a port has been
 * down for longer than the retry window, or the device failed. */
void gyre_ib_events_look(struct gyre_ib_transport *ib, uint64_t now_ns);

/** gyre_ib_raise_completion - E401 for a completion with an error. */
void gyre_ib_raise_completion(struct gyre_ib_transport *ib, const struct gyre_ib_lane *lane,
                              const struct ibv_wc *wc);

/** gyre_ib_raise_post - for an errno of ibv_post_send or ibv_post_recv. */
void gyre_ib_raise_post(struct gyre_ib_transport *ib, const struct gyre_ib_lane *lane,
                        const char *what, int error_number);

/** gyre_ib_lane_to_text - the ends of a connection, as E401 prints them. */
const char *gyre_ib_lane_to_text(const struct gyre_ib_transport *ib,
                                 const struct gyre_ib_lane *lane, char *text_out,
                                 size_t text_bytes);

/* ---- ib_cm.c ------------------------------------------------------------------------------- */

/** gyre_ib_cm_open - listen for the queue pairs of GYRE_IB_CONNECT=rdmacm, and draw the tokens that
 * peers prove. Errors: UNSUPPORTED (built without, no library, no /dev/infiniband/rdma_cm, a port
 * that is not RoCE), SYSTEM. */
gyre_status gyre_ib_cm_open(struct gyre_ib_transport *ib, struct gyre_ib_cm **cm_out);

/** gyre_ib_cm_port - where it listens; 0 for NULL. */
uint32_t gyre_ib_cm_port(const struct gyre_ib_cm *cm);

/** gyre_ib_cm_add - a lane whose path is known. The higher rank calls, the lower is called.
 * @port, @token: where the peer listens and what it wants to see. Errors: UNSUPPORTED (link-local
 * GIDs). */
gyre_status gyre_ib_cm_add(struct gyre_ib_cm *cm, struct gyre_ib_lane *lane, uint32_t port,
                           const uint8_t *token);

/** gyre_ib_cm_connect - connect all that were added. Errors: REMOTE, TIMEOUT, SYSTEM naming the
 * lane and the step. */
gyre_status gyre_ib_cm_connect(struct gyre_ib_cm *cm, uint64_t deadline_ns);

void gyre_ib_cm_close(struct gyre_ib_cm *cm);

#endif
