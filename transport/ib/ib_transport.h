/* SPDX-License-Identifier: Apache-2.0
 *
 * After connect only the proxy thread uses these structures, except the words that executors share
 * with it (fifo.inbox, fifo.credit). A rail is a port in use. A slot may use any channel of its
 * pair.
 *
 *   sender, when a slot is published and has credit:
 *     RDMA WRITE      the payload, to the slot of the same number at the peer
 *     WRITE_WITH_IMM  slot_info and credit (16 bytes), to the slot's box;
 *                     imm = FIFO, slot, number of parts
 *   receiver, when the imm completes: writes slot_info and tail of the local inbox
 *   receiver, when the executor has advanced head:
 *     WRITE_WITH_IMM  head (8 bytes), to the sender's credit word, on the control channel
 *
 * A small payload travels in the box. A large one is cut into parts, one for each channel, and each
 * part ends with an imm. The slot has arrived when all its imms have: requests of one RC QP execute
 * in order, and the completion of an imm's receive becomes visible after the data of all earlier
 * requests (IB specification 1.4, 9.5 and 10.8.3). So relaxed PCI writes are allowed.
 *
 * More receives are posted than there can be credits, and they are posted again before a credit is
 * returned. So "receiver not ready" cannot happen.
 */
#ifndef GYRE_IB_TRANSPORT_H
#define GYRE_IB_TRANSPORT_H

#include "core/foundation/device/device.h"
#include "transport/ib/ib_device.h"
#include "transport/ib/ib_qp.h"
#include "transport/proxy.h"
#include "transport/transport.h"

#define GYRE_IB_MAX_RAILS        4
#define GYRE_IB_MAX_CHANNELS     16     /* of a pair: four bits of the imm */
#define GYRE_IB_MAX_ALL_CHANNELS 0x4000 /* of a rank: 14 bits of the wr_id */
#define GYRE_IB_PAIR_GIDS        8

#define GYRE_IB_MAX_QPS          (GYRE_IB_MAX_CHANNELS + GYRE_IB_MAX_RAILS) /* of a pair */

#define GYRE_IB_CM_TOKEN_BYTES   16

/* 240 bytes of payload suffice where latency counts, and are copied faster than a second message.
 */
#define GYRE_IB_BOX_BYTES         256
#define GYRE_IB_BOX_PAYLOAD_BYTES (GYRE_IB_BOX_BYTES - 16)

/* Smaller parts do not repay their doorbell and imm. */
#define GYRE_IB_STRIPE_MIN_BYTES 65536

/* Slots whose answers measure the rates of rails. */
#define GYRE_IB_SHARED_MIN_BYTES 16384
#define GYRE_IB_WHOLE_SHARE      256

#define GYRE_IB_BATCH            32
#define GYRE_IB_RECV_BATCH       32

struct gyre_ib_label {
    uint64_t slot_info;
    uint64_t credit; /* the sender's head in the other direction */
};

/* Written by the peer's NIC. */
struct gyre_ib_box {
    struct gyre_ib_label label;
    unsigned char payload[GYRE_IB_BOX_PAYLOAD_BYTES];
};

GYRE_STATIC_ASSERT(sizeof(struct gyre_ib_box) == GYRE_IB_BOX_BYTES, "the peer computes offsets");

struct gyre_ib_rail {
    struct gyre_ib_port port;
    int index; /* in the scan */
    struct ibv_context *context;
    struct ibv_device_attr attr;
    struct ibv_pd *pd;
    struct ibv_comp_channel *events;
    struct ibv_cq *cq;
    int n_cqe;
    bool is_armed;                                  /* a completion makes `events` readable */
    struct gyre_ib_gid_row gids[GYRE_IB_PAIR_GIDS]; /* usable, best first */
    int n_gids;
    struct ibv_mr *send_slots;
    struct ibv_mr *recv_slots;
    struct ibv_mr *send_lines; /* NULL = no slots of LL */
    struct ibv_mr *recv_lines;
    struct ibv_mr *recv_words; /* boxes and credit words: written by peers */
    struct ibv_mr *staging;    /* labels and heads: read by this NIC */
    struct ibv_qp *fence;      /* to itself; NULL if not needed */
    uint64_t down_since_ns;    /* 0 = it is active */
    bool is_dead;              /* the device failed */
};

enum gyre_ib_gdr { GYRE_IB_GDR_NONE, GYRE_IB_GDR_DMABUF, GYRE_IB_GDR_PEERMEM };

struct gyre_ib_peer;
struct gyre_ib_cm;

struct gyre_ib_channel {
    struct ibv_qp *qp;
    struct gyre_ib_peer *peer;
    struct gyre_ib_rail *rail;
    uint32_t id;
    bool is_control;
    struct gyre_ib_qp_path path;
    int remote_rail;
    int remote_nth; /* among the peer's channels to this rank */
    int gid_row;    /* in the rail's list */
    uint32_t remote_gid_index;
    uint32_t max_msg_bytes;
    struct gyre_ib_qp_size size;
    uint64_t n_posted;
    uint64_t n_retired;
    uint64_t signalled_at;   /* n_posted at the last signalled one */
    uint64_t n_retired_seen; /* at the last look for silent rails */
    uint64_t silent_ns;      /* since then an answer is missing; 0 = none is */
    uint32_t share;          /* of GYRE_IB_WHOLE_SHARE: the rate beside that of the fastest rail */
    uint32_t n_in_flight;    /* parts of GYRE_IB_SHARED_MIN_BYTES or more */
    uint64_t busy_since_ns;  /* if any are */
    uint64_t busy_ns;        /* in this window */
    uint64_t window_bytes;
    uint64_t load; /* bytes so far, over the share */
    uint32_t n_recv_due;
    int n_batch;
    struct ibv_send_wr batch[GYRE_IB_BATCH];
    struct ibv_sge sges[GYRE_IB_BATCH][2];
};

struct gyre_ib_line_send {
    unsigned char *slots;
    uint64_t posted;
    uint64_t released;
    uint64_t credit; /* may exceed `posted`: a GPU may return an empty slot early */
    bool is_under_way[GYRE_MAX_DEPTH]; /* with several channels */
};

/* Written by the peer's NIC, polled by the executor. */
struct gyre_ib_line_recv {
    unsigned char *slots;
    uint64_t returned; /* as the sender knows */
    uint64_t *head;
};

struct gyre_ib_send {
    struct gyre_proxy_fifo fifo;
    uint64_t posted;   /* given to the NIC */
    uint64_t released; /* acknowledged; `posted` is at most spec.depth ahead */
    uint64_t credit;   /* the receiver's head as known here */
    struct gyre_ib_label *labels;
    uint8_t parts_left[GYRE_MAX_DEPTH];
    struct gyre_ib_line_send lines;
};

struct gyre_ib_recv {
    struct gyre_proxy_fifo fifo;
    uint64_t arrived; /* whose tail was published */
    uint64_t returned;
    uint64_t fenced;  /* complete slots under a fence that ended */
    uint64_t fencing; /* and those under the running one */
    uint64_t *head;
    struct gyre_ib_box *boxes;
    uint8_t parts_seen[GYRE_MAX_DEPTH];
    uint8_t n_parts[GYRE_MAX_DEPTH]; /* 0: no imm yet */
    bool is_boxed[GYRE_MAX_DEPTH];
    struct gyre_ib_line_recv lines;
};

/* Where the peer receives. A wire format. */
struct gyre_ib_remote {
    uint64_t slots;   /* of the first FIFO from this rank */
    uint64_t boxes;   /* [n_fifos][depth] */
    uint64_t lines;   /* line_stride apart */
    uint64_t credits; /* SIMPLE's n_fifos, then LL's */
    uint32_t slots_rkey[GYRE_IB_MAX_RAILS];
    uint32_t lines_rkey[GYRE_IB_MAX_RAILS];
    uint32_t words_rkey[GYRE_IB_MAX_RAILS];
    uint32_t takes_boxes;
};

enum gyre_ib_step { GYRE_IB_NONE, GYRE_IB_HALTED, GYRE_IB_MADE, GYRE_IB_UP };

/* Two rails that are connected to each other. Both ranks number them alike. */
struct gyre_ib_rail_pair {
    int mine;
    int theirs;
    struct gyre_ib_qp_end remote; /* at set-up, as gid_row */
    int gid_row;
    bool is_bad;        /* it broke there, and no probe was answered since */
    uint64_t broken_ns; /* when it did last; 0 = never */
    char cause[200];    /* of its last failure; "" = none */
};

struct gyre_ib_state;
struct gyre_ib_socket;

enum gyre_ib_fence_state { GYRE_IB_FENCE_NONE, GYRE_IB_FENCE_RUNS, GYRE_IB_FENCE_ENDED };

/* A thread, from the first failure on. */
struct gyre_ib_worker {
    pthread_t thread;
    bool is_running;
    pthread_cond_t changed; /* this and the rest: under mail_lock */
    bool has_work;
    bool stops;
    bool has_ended;
};

/* A wire format. */
struct gyre_ib_probe_state {
    uint32_t number;
    uint8_t step;     /* GYRE_IB_MADE or GYRE_IB_UP */
    uint8_t rails;    /* with a queue pair: a bit for each pair of rails */
    uint8_t answered; /* own messages */
    uint8_t pad;
    struct {
        uint32_t qpn;
        uint32_t psn;
    } qps[GYRE_IB_MAX_RAILS];
};

struct gyre_ib_probe_result {
    uint64_t begun_ns;
    uint8_t answered;
    uint8_t both; /* and the peer's message */
    bool has_ended;
};

/* By the thread of ib_probe.c where nothing else is said. */
struct gyre_ib_probe {
    uint32_t left_out; /* active rails that carry no data; written by the proxy */
    bool is_due;       /* this and the next four: under mail_lock */
    bool has_mail;
    struct gyre_ib_probe_state mail;
    bool has_result;
    struct gyre_ib_probe_result result;
    bool runs;
    bool has_sent;
    uint64_t begun_ns;
    uint64_t told_ns;
    struct gyre_ib_probe_state mine;
    struct gyre_ib_probe_state theirs;
    struct gyre_ib_qp_path paths[GYRE_IB_MAX_RAILS];
    struct ibv_qp *qps[GYRE_IB_MAX_RAILS]; /* NULL = none */
    struct ibv_cq *cqs[GYRE_IB_MAX_RAILS];
};

/* How the peer's connection moves to other rails (ib_failover.c). */
struct gyre_ib_move {
    bool is_possible;
    bool is_halted; /* nothing is posted */
    bool is_broken; /* a new epoch shall begin */
    bool is_parked;
    bool avoids_socket; /* in the next epoch */
    bool is_fencing;    /* old queue pairs are not gone yet */
    uint8_t used;       /* a bit for each pair of rails that carries data, or GYRE_IB_SOCKETS */
    enum gyre_ib_step step;
    enum gyre_ib_step seen; /* the peer's, in this epoch */
    uint32_t epoch;
    struct gyre_ib_rail_pair pairs[GYRE_IB_MAX_RAILS];
    int n_pairs;
    uint64_t broken_ns; /* since when no data have moved; 0 = they move */
    uint64_t run_ns;    /* when it last began to run */
    uint64_t return_ns; /* so long after it rails that were left out are probed */
    uint64_t n_run;     /* n_completions then */
    uint64_t told_ns;   /* own state */
    uint64_t wait_ns;   /* until it is told again */
    char cause[240];
    struct gyre_ib_state *mine; /* each of state_bytes */
    struct gyre_ib_state *theirs;
    struct gyre_ib_state *mail;     /* under mail_lock */
    bool has_mail;                  /* likewise */
    enum gyre_ib_fence_state fence; /* likewise */
    uint64_t fence_ns;              /* when it began */
    struct ibv_qp *old[GYRE_IB_MAX_QPS];
    int n_old;
    int fence_error; /* an errno; by the fencer until the fence has ended */
    struct gyre_ib_probe probe;
    uint64_t probe_ns; /* when the next one may begin */
    uint32_t n_unanswered;
    struct gyre_ib_socket *socket; /* NULL = the pair waits for a rail */
};

struct gyre_ib_peer {
    int rank;
    struct gyre_fifo_size size;
    uint64_t slots_stride;            /* between two FIFOs' received slots, on both ranks */
    uint64_t send_stride;             /* between two FIFOs' slots to send */
    struct gyre_ib_channel *channels; /* by rail: data channels, then control */
    struct gyre_ib_channel *used[GYRE_IB_MAX_CHANNELS];
    int n_used;
    bool has_shares; /* that differ */
    int n_off;       /* looks at which rates did not fit to shares */
    struct gyre_ib_channel *control;
    struct gyre_ib_send *sends;
    struct gyre_ib_recv *recvs;
    uint64_t *credit_words; /* size.n_fifos of SIMPLE, then of LL, in recv_words */
    struct gyre_ib_remote remote;
    uint8_t cm_token[GYRE_IB_CM_TOKEN_BYTES]; /* the peer proves it when it connects */
    char words[48];
    uint64_t n_completions;
    uint64_t n_completions_seen; /* at the last look for silent peers */
    struct gyre_ib_move move;
};

/* One fence runs at a time; slots that complete meanwhile wait for the next. */
struct gyre_ib_fence {
    bool is_needed;
    bool is_wanted;
    int n_left; /* unanswered reads */
};

struct gyre_ib_transport {
    struct gyre_transport base;
    struct gyre_transport_config config; /* what it points to is the communicator's, except peers */
    struct gyre_ib_scan scan;
    const struct gyre_verbs *verbs;
    struct gyre_ib_rail rails[GYRE_IB_MAX_RAILS];
    int n_rails;
    struct gyre_ib_peer *peers;
    struct gyre_ib_channel *channels;
    int n_channels;
    int channels_per_peer;
    int channels_per_rail;
    struct gyre_ib_cm *cm; /* NULL: the blobs suffice to connect */
    struct gyre_ib_send *sends;
    struct gyre_ib_recv *recvs;
    struct gyre_proxy_fifo *fifos; /* sends, then recvs */
    unsigned traffic_class;
    unsigned control_class;
    unsigned service_level;
    unsigned timeout;
    unsigned retries;
    enum gyre_ib_gdr recv_gdr;
    enum gyre_ib_gdr send_gdr;
    struct gyre_ib_fence fence;
    void *fifo_memory; /* inboxes, credits, slots without GPUDirect */
    size_t fifo_bytes;
    void *gpu_memory; /* slots, with GPUDirect */
    size_t gpu_bytes;
    uint32_t n_fifos;
    uint64_t recv_slots_bytes;
    uint64_t send_slots_bytes;
    uint32_t send_depth; /* of each FIFO to a peer; the peer has spec.depth slots for it */
    unsigned char *send_slots;
    unsigned char *recv_slots;
    void *recv_words; /* boxes[n_fifos][depth], credit words[2 * n_fifos], fences' word */
    size_t recv_words_bytes;
    void *staging; /* labels[n_fifos][send_depth], heads[2 * n_fifos] */
    size_t staging_bytes;
    unsigned char *send_lines; /* slots of LL, in host memory; NULL = none */
    unsigned char *recv_lines; /* the device polls them */
    uint64_t send_lines_bytes;
    uint64_t recv_lines_bytes;
    uint64_t line_stride; /* between two FIFOs' received lines; 0 = none */
    uint64_t send_line_stride;
    uint64_t idle_since_ns; /* 0 = something moves */
    int nap_fd;
    struct gyre_proxy *proxy;
    struct gyre_trace_buffer *recorded; /* NULL = nothing is */
    uint64_t events_looked_ns;
    uint64_t probed_ns;
    uint64_t n_polls;
    bool is_failed;
    bool can_move;   /* GYRE_FAILOVER: connections move to other rails */
    bool has_shares; /* likewise: rates of rails are measured */
    uint64_t shares_looked_ns;
    bool is_closing;     /* they do not any more */
    uint32_t needs_move; /* a message has come, or a connection is broken */
    size_t state_bytes;
    pthread_mutex_t mail_lock;
    struct gyre_ib_worker fencer;
    struct gyre_ib_worker prober;
    struct gyre_ib_worker dialer;
    struct gyre_sock_listeners listeners; /* in place of rails */
    struct gyre_sock_list socket_list;
};

/* ---- ib_rail.c ----------------------------------------------------------------------------- */

gyre_status gyre_ib_rails_open(struct gyre_ib_transport *ib);
void gyre_ib_rails_close(struct gyre_ib_transport *ib);

/** Best first; n = 0 on InfiniBand. Errors: as gyre_ib_gid_choose, with the port's name. */
gyre_status gyre_ib_rail_gids(const struct gyre_verbs *verbs, const struct gyre_params *params,
                              struct ibv_context *context, const struct gyre_ib_port *port,
                              struct gyre_ib_gid_row *gids_out, int *n_out);

struct gyre_ib_rail_list {
    int n;
    uint32_t indices[GYRE_IB_MAX_RAILS]; /* in the scan, nearest first */
};

struct gyre_ib_rail_pairs {
    int n;
    int mine[GYRE_IB_MAX_RAILS]; /* positions in the lists */
    int theirs[GYRE_IB_MAX_RAILS];
};

/** Both ranks find the same pairs. @cross: CROSS_NIC, set by @variable. 0: only ports of the same
 * index, as a fabric of separate rails needs. 1: the first with the first, and so on. 2: as 0 if
 * possible, else as 1. Errors: UNSUPPORTED (no pair), naming the rails of both. */
gyre_status gyre_ib_pair_rails(const struct gyre_ib_rail_list *mine,
                               const struct gyre_ib_rail_list *theirs, int cross,
                               const char *variable, struct gyre_ib_rail_pairs *pairs_out);

gyre_status gyre_ib_channels_open(struct gyre_ib_transport *ib);
gyre_status gyre_ib_channel_open(struct gyre_ib_transport *ib, struct gyre_ib_channel *channel);
void gyre_ib_channels_close(struct gyre_ib_transport *ib);

gyre_status gyre_ib_path_begin(const struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail,
                               struct gyre_ib_qp_path *path_out);

/* ---- ib_memory.c --------------------------------------------------------------------------- */

struct gyre_ib_mr_request {
    const struct gyre_verbs *verbs;
    struct ibv_pd *pd;
    void *base;
    size_t n_bytes;
    bool remote_write;     /* else only this NIC reads it */
    bool remote_read;      /* by this rank's fences */
    bool relaxed_ordering; /* if the library can */
    enum gyre_ib_gdr gdr;  /* NONE: host memory */
};

/** Errors: OUT_OF_MEMORY explaining the memlock limit, SYSTEM with the errno (EFAULT on GPU memory:
 * the NIC's driver does not know it). */
gyre_status gyre_ib_mr_register(const struct gyre_ib_mr_request *request, struct ibv_mr **mr_out);

gyre_status gyre_ib_memlock_fail(const char *what, size_t n_bytes);

gyre_status gyre_ib_memory_open(struct gyre_ib_transport *ib);
void gyre_ib_memory_close(struct gyre_ib_transport *ib);

/* ---- ib_connect.c -------------------------------------------------------------------------- */

gyre_status gyre_ib_blob(const struct gyre_ib_transport *ib, void **blob_out, size_t *n_bytes_out);

gyre_status gyre_ib_channels_connect(struct gyre_ib_transport *ib, const void *blobs,
                                     const size_t *offsets, uint64_t deadline_ns);

/* ---- ib_path.c ----------------------------------------------------------------------------- */

bool gyre_ib_poll(void *transport);

bool gyre_ib_is_behind(const void *transport, bool has_credit);

bool gyre_ib_settle(void *transport);

/** True if there was any. */
bool gyre_ib_take_completions(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail);

void gyre_ib_release_slots(const struct gyre_ib_peer *peer, const struct gyre_ib_send *send,
                           bool is_lines);

gyre_status gyre_ib_fences_open(struct gyre_ib_transport *ib);

gyre_status gyre_ib_post_receives(struct gyre_ib_channel *channel, uint32_t n);

/* ---- ib_events.c --------------------------------------------------------------------------- */

/** Raises the fault or breaks connections. */
void gyre_ib_events_look(struct gyre_ib_transport *ib, uint64_t now_ns);

/** After it the data path does nothing more. */
void gyre_ib_raise(struct gyre_ib_transport *ib, gyre_status status, const char *cause);

/** With E401, unless the connection can move to another rail. */
void gyre_ib_raise_completion(struct gyre_ib_transport *ib, const struct gyre_ib_channel *channel,
                              const struct ibv_wc *wc);

void gyre_ib_raise_post(struct gyre_ib_transport *ib, const struct gyre_ib_channel *channel,
                        const char *what, int error_number);

const char *gyre_ib_channel_to_text(const struct gyre_ib_transport *ib,
                                    const struct gyre_ib_channel *channel, char *text_out,
                                    size_t text_bytes);

/* ---- ib_cm.c ------------------------------------------------------------------------------- */

/** Listen, and draw the peers' tokens. Errors: UNSUPPORTED (no rdma_cm in the build, no library, no
 * /dev/infiniband/rdma_cm, a port that is not RoCE), SYSTEM. */
gyre_status gyre_ib_cm_open(struct gyre_ib_transport *ib);

/** 0 for NULL. */
uint32_t gyre_ib_cm_port(const struct gyre_ib_cm *cm);

/** The higher rank connects, the lower one accepts. @port, @token: the peer's. Errors: UNSUPPORTED
 * (link-local GIDs). */
gyre_status gyre_ib_cm_add(struct gyre_ib_cm *cm, struct gyre_ib_channel *channel, uint32_t port,
                           const uint8_t *token);

/** Errors: REMOTE, TIMEOUT, SYSTEM naming the channel and the step. */
gyre_status gyre_ib_cm_connect(struct gyre_ib_cm *cm, uint64_t deadline_ns);

void gyre_ib_cm_close(struct gyre_ib_cm *cm);

#endif
