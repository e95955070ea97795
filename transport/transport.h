/* SPDX-License-Identifier: Apache-2.0
 *
 * With a mapped transport (p2p, shm) both ranks address the same slots. With a proxied one (socket,
 * ib) each rank has its own, and a proxy thread moves published slots.
 */
#ifndef GYRE_TRANSPORT_TRANSPORT_H
#define GYRE_TRANSPORT_TRANSPORT_H

#include "core/foundation/base/param.h"
#include "core/foundation/base/sock.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/device/device.h"
#include "core/foundation/model/connector.h"
#include "core/foundation/topo/topo.h"
#include "core/foundation/trace/trace.h"
#include "core/gyre.h"

#define GYRE_PEER_PATH_UNKNOWN UINT32_MAX

/* Passed between the two transports of a pair while no connection carries data. The first word is
 * none of the kinds of core/engine/health. A wire format. */
#define GYRE_TRANSPORT_STATE_KIND  0x65746174u
#define GYRE_TRANSPORT_STATE_BYTES 1536

struct gyre_transport_state {
    uint32_t kind;
    uint32_t for_puts;
    uint32_t n_bytes;
    uint32_t pad;
    uint8_t bytes[GYRE_TRANSPORT_STATE_BYTES];
};

/* A wire format. */
struct gyre_peer_info {
    uint64_t host_hash;
    uint64_t process_id;    /* random */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid; 0 = not mounted */
    uint32_t pid;
    uint32_t uid; /* effective */
    uint32_t rank;
    uint32_t n_interfaces; /* for the data sockets of a host's ranks; 1 or more */
    char host_name[64];
    struct gyre_device_info device;
    uint32_t net_mbit_per_s; /* of the interface for sockets; 0 = unknown */
    uint32_t net_is_virtual; /* no hardware stands behind it */
    uint32_t ib_mbit_per_s;  /* of the slowest RDMA port; 0 = unknown */
    uint32_t ib_n_ports;
    char net_name[16];  /* "" = none */
    uint32_t ib_usable; /* a device and a GID were found */
    /* enum gyre_topo_level to the holder's GPU, or GYRE_PEER_PATH_UNKNOWN. gyre_peer_info_measure()
     * sets it. */
    uint32_t path_level;
    char ib_reason[128]; /* why ib_usable is 0 */
    uint64_t topo_hash;  /* 0 = unknown. The communicator sets it */
    uint64_t
        trace_hash; /* 1 = the file is named after the rank, 0 = none. The communicator sets it */
    struct gyre_sock_list regroup_addresses; /* where the rank listens without a bootstrap; all zero
                                              * = nowhere. The communicator sets it */
};

struct gyre_transport_config {
    struct gyre_device *device;
    const struct gyre_params *params;
    int rank;
    int n_ranks;
    const struct gyre_peer_info *infos; /* by rank; outlives the transport */
    const uint16_t *peers;              /* ascending */
    int n_peers;
    bool for_puts;
    struct gyre_fifo_spec spec;
    const uint16_t *ring_prev; /* by rank; if spec.ring_slot_bytes is not 0 */
    const uint8_t *is_far;     /* by rank: 1 = the pair has spec.far; NULL = none */
    const struct gyre_sock_address *rendezvous; /* this rank's; NULL or family 0 = unknown */
    bool may_use_sockets;                       /* in place of rails that failed */
    const uint8_t *secret;                      /* GYRE_SECRET_BYTES */
    /* gyre_authenticate() of bootstrap.h, which transports may not include. */
    gyre_status (*authenticate)(int fd, const uint8_t *secret, bool is_server,
                                uint64_t deadline_ns);
    int traffic_class;
    int service_level;
    struct gyre_fault *fault;
    struct gyre_trace *trace; /* outlives the transport. NULL = none */
    /* Are all ranks alive? The cause names the dead or failed rank. NULL = unknown. */
    gyre_status (*check_ranks)(void *context);
    /* Sends over the health link, which may lose it. Any thread. NULL = there is none. */
    void (*post_state)(void *context, int rank, const struct gyre_transport_state *state);
    void *check_context; /* of both */
    /* A connection broke, or runs again (GYRE_FAILOVER); NULL = nobody is told. Any thread. */
    void (*tell)(void *context, const gyre_connection_event *event);
    void *tell_context;
};

static inline void gyre_transport_tell(const struct gyre_transport_config *config, int rank,
                                       int kind, const char *text)
{
    const gyre_connection_event event = {.kind = kind, .peer = rank, .text = text};
    if (config->tell != NULL)
        config->tell(config->tell_context, &event);
}

static inline struct gyre_fifo_size gyre_transport_fifos(const struct gyre_transport_config *config,
                                                         int peer)
{
    return gyre_fifo_size_of(&config->spec, config->is_far != NULL && config->is_far[peer] != 0);
}

/** Of a proxied FIFO at its sender. With GYRE_FAILOVER=1 a slot is kept until it was consumed, so
 * the sender has twice as many. */
static inline uint32_t gyre_transport_send_depth(const struct gyre_transport_config *config)
{
    const uint32_t depth = config->spec.depth;
    const bool keeps = gyre_param_number(config->params, GYRE_PARAM_FAILOVER) != 0;
    return keeps && 2 * depth <= GYRE_MAX_DEPTH ? 2 * depth : depth;
}

/** Every wait of open and connect calls this a few times a second and ends with its status: this
 * rank has given up, or another one has failed. Does not block. One thread at a time. */
gyre_status gyre_transport_check(const struct gyre_transport_config *config);

#define GYRE_MEASURE_NS 12000000ULL

/* A wire format. 0 = unknown. */
struct gyre_wire {
    uint64_t round_trip_ns; /* the shortest */
    uint64_t mbit_per_s;    /* of arriving data */
};

struct gyre_transport_ops;

struct gyre_transport {
    const struct gyre_transport_ops *ops;
    uint32_t is_moving; /* a connection broke, and data that are under way come later. Written by
                         * the transport's threads, one at a time */
};

struct gyre_transport_ops {
    const char *name;
    bool is_direct;
    bool is_rdma; /* the NIC writes into the peer's memory */
    bool is_proxied;
    bool has_lines; /* proxied: makes slots of LL, too */

    /* A pair uses the first transport that both ranks allow. @why_out: the reason if not. */
    bool (*reachable)(const struct gyre_params *params, const struct gyre_peer_info *mine,
                      const struct gyre_peer_info *peer, char *why_out, size_t why_bytes);

    /* @blob_out: malloc'ed bytes that all ranks get. */
    gyre_status (*open)(const struct gyre_transport_config *config,
                        struct gyre_transport **transport_out, void **blob_out,
                        size_t *blob_bytes_out);

    /* Fill the connectors of both directions of all FIFOs, in the order of gyre_connector_index().
     * @blobs, @offsets: of the bootstrap's all_gather_v; empty for ranks without this transport. */
    gyre_status (*connect)(struct gyre_transport *transport, const void *blobs,
                           const size_t *offsets, uint64_t deadline_ns,
                           struct gyre_connector *connectors);

    /* For a peer's log line, e.g. "NET/IB/0/GDRDMA". Static or owned by the transport. */
    const char *(*describe)(const struct gyre_transport *transport, int peer);

    size_t (*memory_bytes)(const struct gyre_transport *transport);

    /* Does a NIC or its proxy write this rank's slots of LL? Only if has_lines, after open: the NIC
     * may not reach the device's memory. */
    bool (*takes_lines)(const struct gyre_transport *transport);

    /* After all ranks have connected and before the first slot moves. Takes GYRE_MEASURE_NS at
     * most. */
    void (*measure)(struct gyre_transport *transport, struct gyre_wire *wire_out);

    /* Wake a sleeping proxy. Does not block; any thread. */
    void (*wake)(struct gyre_transport *transport);

    /* What the peer's transport posted. Does not block; one thread, after connect. */
    void (*take_state)(struct gyre_transport *transport, int rank, const void *state,
                       size_t n_bytes);

    /* gyre_proxy_help() for the transport's proxies. */
    bool (*help)(struct gyre_transport *transport, bool is_last);

    /* Before it all ranks have left, or the fault is raised. The operating system frees memory that
     * a live peer may still use when the last process has unmapped it. */
    void (*close)(struct gyre_transport *transport);
};

extern const struct gyre_transport_ops gyre_transport_p2p;
extern const struct gyre_transport_ops gyre_transport_shm;
extern const struct gyre_transport_ops gyre_transport_ib;
extern const struct gyre_transport_ops gyre_transport_socket;

extern const struct gyre_transport_ops *const gyre_transports[];

void gyre_transport_no_wire(struct gyre_transport *transport, struct gyre_wire *wire_out);

bool gyre_transport_no_lines(const struct gyre_transport *transport);

void gyre_transport_no_state(struct gyre_transport *transport, int rank, const void *state,
                             size_t n_bytes);

/** Errors: SYSTEM, and those of the device's info(). */
gyre_status gyre_peer_info_fill(const struct gyre_params *params, struct gyre_device *device,
                                int rank, struct gyre_peer_info *info_out);

/** The interface for sockets is hardware whose driver tells a rate. */
static inline bool gyre_peer_info_tells_rate(const struct gyre_peer_info *info)
{
    return info->net_mbit_per_s > 0 && info->net_is_virtual == 0;
}

/** Sets path_level: UNKNOWN between hosts, for host devices, and for a GPU that the topology lacks.
 */
void gyre_peer_info_measure(const struct gyre_topo *topo, const struct gyre_peer_info *mine,
                            struct gyre_peer_info *peer);

/** Set ib_usable and ib_reason. */
void gyre_transport_ib_probe(const struct gyre_params *params, struct gyre_peer_info *info);

/* A put link carries one-sided calls between two ranks that a proxy serves: a FIFO in each
 * direction, of a transport that serves nothing else. Messages arrive in the order of posting. */

enum gyre_put_kind {
    GYRE_PUT_DATA = 1, /* bytes for a window, a signal, or both */
    GYRE_PUT_FENCE,    /* the messages before it were taken */
    GYRE_PUT_GOODBYE,  /* the rank has left; its last message */
    GYRE_PUT_BLOCKED   /* the rank leaves, but waits for signals; its last message. offset_bytes is
                        * n_ended of struct gyre_blocked */
};

/* Stands before a message's bytes. A wire format. */
struct gyre_put_head {
    uint64_t offset_bytes; /* in the receiver's buffer of the window */
    uint32_t kind;
    uint32_t window;
    uint32_t n_bytes;
    int32_t signal; /* counted up after the bytes; GYRE_NO_SIGNAL = none */
    uint64_t pad;
};

struct gyre_put_links;

struct gyre_put_links_config {
    int rank;
    int n_ranks;
    uint32_t slot_bytes; /* at least 4096 */
    const struct gyre_connector
        *connectors; /* of one FIFO a pair, by gyre_connector_index(); zeros = no link. Copied */
    struct gyre_fault *fault;
    void (*wake)(void *context); /* any thread */
    /* Called by one thread at a time; does not block. @data: head->n_bytes bytes. */
    void (*take)(void *context, int rank, const struct gyre_put_head *head, const void *data);
    void *context;
};

gyre_status gyre_put_links_open(const struct gyre_put_links_config *config,
                                struct gyre_put_links **links_out);

uint32_t gyre_put_links_most_bytes(const struct gyre_put_links *links);

/** Any thread; does not block. False = all slots are in flight. */
bool gyre_put_links_post(struct gyre_put_links *links, int rank, const struct gyre_put_head *head,
                         const void *data);

/** True if any arrived. */
bool gyre_put_links_help(struct gyre_put_links *links);

/** Say goodbye on each link once it has room: this rank posts nothing any more. Does not block. */
void gyre_put_links_leave(struct gyre_put_links *links);

/** Before the links' transports are closed. NULL does nothing. */
void gyre_put_links_close(struct gyre_put_links *links);

/* User buffers that peers can address (share.c). */

#define GYRE_SHARE_IPC_BYTES 64

/* A wire format. */
struct gyre_share_handle {
    uint64_t address;          /* in the owner's process */
    uint64_t offset_bytes;     /* of the buffer in its allocation */
    uint64_t allocation_id;    /* never used twice in that process */
    uint64_t allocation_bytes; /* 0 = host memory that only the owner's process can address */
    uint8_t ipc[GYRE_SHARE_IPC_BYTES]; /* for other processes. Host: struct gyre_shared_file */
};

struct gyre_share_mapping {
    void *address;
    void *state;     /* of the device's code; NULL = nothing to release */
    void *host_base; /* held host memory; NULL = none */
};

/** @to_processes: for peers in other processes. Errors: UNSUPPORTED (on the host: not memory of
 * gyre_mem_alloc()), DEVICE. */
gyre_status gyre_share_export(const struct gyre_peer_info *mine, bool to_processes, void *buffer,
                              struct gyre_share_handle *handle_out);

/** Host memory lives on until gyre_share_release(), also if its owner frees it before. Errors:
 * UNSUPPORTED (another host), REMOTE (the memory is gone), SYSTEM, DEVICE. */
gyre_status gyre_share_import(struct gyre_device *device, const struct gyre_peer_info *mine,
                              const struct gyre_peer_info *peer,
                              const struct gyre_share_handle *handle,
                              struct gyre_share_mapping *mapping_out);

/** Nothing if the mapping is all zero. */
void gyre_share_release(struct gyre_share_mapping *mapping);

#endif
