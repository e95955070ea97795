/* SPDX-License-Identifier: Apache-2.0
 *
 * Transports make connectors. A mapped one (p2p, shm) lets both ends address the same slots; a
 * proxied one (socket, ib) gives each end slots of its own and moves published slots with a
 * proxy thread that never reads a program. `no` always carries a reason.
 */
#ifndef GYRE_TRANSPORT_TRANSPORT_H
#define GYRE_TRANSPORT_TRANSPORT_H

#include "core/base/fault.h"
#include "core/base/param.h"
#include "core/base/sock_list.h"
#include "core/device/device.h"
#include "core/model/connector.h"
#include "core/topo/topo.h"

#define GYRE_PEER_PATH_UNKNOWN UINT32_MAX

/* What every rank tells all others before transports are chosen. Fixed layout: it is exchanged. */
struct gyre_peer_info {
    uint64_t host_hash;
    uint64_t process_id;    /* unique among the job's processes: random, drawn once per process */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid; 0 = /proc is not mounted */
    uint32_t pid;
    uint32_t uid; /* effective: other users' processes cannot map this one's memory */
    uint32_t rank;
    uint32_t reserved; /* no padding is exchanged */
    char host_name[64];
    struct gyre_device_info device;
    uint32_t ib_usable; /* 1: gyre_transport_ib found a device and a GID */
    /* enum gyre_topo_level from the GPU of the rank that holds this copy, or
     * GYRE_PEER_PATH_UNKNOWN; not exchanged: gyre_peer_info_measure fills it in. */
    uint32_t path_level;
    char ib_reason[128];        /* why not */
    uint64_t topo_hash;         /* of its host's topology, 0 = not looked at; the communicator's */
    struct gyre_sock_list door; /* where the rank is met when the bootstrap is gone; all zero =
                                 * nowhere; the communicator's */
};

struct gyre_transport_config {
    struct gyre_device *device;
    const struct gyre_params *params;
    int rank;
    int n_ranks;
    const struct gyre_peer_info *infos; /* by rank; outlives the transport */
    const uint16_t *peers;              /* ranks that this transport connects to, ascending */
    int n_peers;
    struct gyre_fifo_spec spec;
    const uint16_t *before; /* by rank: who comes before it in the order of rings; read when
                             * spec.near_slot_bytes is not 0 */
    const struct gyre_sock_address *rendezvous; /* this rank's address on its link to the
                                                 * rendezvous; NULL or family 0 = not known */
    const uint8_t *secret; /* GYRE_SECRET_BYTES (bootstrap.h): data sockets prove it */
    /* gyre_authenticate of bootstrap.h, handed in because transports do not know the bootstrap. */
    gyre_status (*authenticate)(int fd, const uint8_t *secret, bool is_server,
                                uint64_t deadline_ns);
    int traffic_class;        /* -1 = from params */
    int service_level;        /* likewise */
    struct gyre_fault *fault; /* raised by proxies, polled by them */
    /* Are all ranks still there? Handed in as authenticate is; NULL = not known. Not SUCCESS: the
     * cause names the rank that died or gave up. For gyre_transport_check. */
    gyre_status (*check_ranks)(void *context);
    void *check_context;
};

/** gyre_transport_check - for every wait of open and connect, a few times a second: not SUCCESS
 * when the communicator was given up here, or when another rank died or reported an error. The wait
 * ends with that status and cause. Does not block. One thread at a time. */
gyre_status gyre_transport_check(const struct gyre_transport_config *config);

struct gyre_transport_ops;

struct gyre_transport {
    const struct gyre_transport_ops *ops;
};

struct gyre_transport_ops {
    const char *name; /* "p2p", "shm", "ib", "socket" */
    bool is_proxied;

    /* Can these two talk this way? Both sides ask with their own view; the answers are compared,
     * and a pair uses the first transport that both allow.
     * @why_out: the reason when not, at most why_bytes with NUL. */
    bool (*reachable)(const struct gyre_params *params, const struct gyre_peer_info *mine,
                      const struct gyre_peer_info *peer, char *why_out, size_t why_bytes);

    /* Allocate and listen. @blob_out: malloc'ed bytes that all ranks will see. */
    gyre_status (*open)(const struct gyre_transport_config *config,
                        struct gyre_transport **transport_out, void **blob_out,
                        size_t *blob_bytes_out);

    /* Connect to all peers and fill the connectors of both directions of all their FIFOs.
     * @blobs, @offsets: as gyre_bootstrap all_gather_v gave them, by rank (empty for ranks that do
     * not use this transport). @connectors: the communicator's table, gyre_connector_index() order.
     * Ends by deadline_ns. */
    gyre_status (*connect)(struct gyre_transport *transport, const void *blobs,
                           const size_t *offsets, uint64_t deadline_ns,
                           struct gyre_connector *connectors);

    /* Words for the log line of a peer: "P2P/direct", "P2P/IPC", "SHM", "NET/IB/0/GDRDMA",
     * "NET/Socket/0". Static or owned by the transport. */
    const char *(*describe)(const struct gyre_transport *transport, int peer);

    /* Device and host memory that open and connect took, for the budget line. */
    size_t (*memory_bytes)(const struct gyre_transport *transport);

    /* An operation was enqueued: a sleeping proxy looks again. Cheap; any thread. */
    void (*wake)(struct gyre_transport *transport);

    /* Move slots in the caller's thread, which waits for them anyway: gyre_proxy_help. True if
     * anything moved. Mapped transports have no proxy to help: theirs is gyre_slab_help, which
     * always returns false. */
    bool (*help)(struct gyre_transport *transport, bool is_last);

    /* Stop proxies, unmap, free what this rank owns. All ranks have left, or the fault is raised;
     * memory that a live peer may still touch is left to the operating system's reference count. */
    void (*close)(struct gyre_transport *transport);
};

extern const struct gyre_transport_ops gyre_transport_p2p;
extern const struct gyre_transport_ops gyre_transport_shm;
extern const struct gyre_transport_ops gyre_transport_ib;
extern const struct gyre_transport_ops gyre_transport_socket;

/** All, in order of preference, ended by NULL. */
extern const struct gyre_transport_ops *const gyre_transports[];

/** gyre_peer_info_fill - describe this rank to the others: host, process, device, RDMA.
 * Errors: SYSTEM, and what the device's info returns. */
gyre_status gyre_peer_info_fill(const struct gyre_params *params, struct gyre_device *device,
                                int rank, struct gyre_peer_info *info_out);

/** gyre_peer_info_measure - fill in peer->path_level as `mine` sees it: unknown between hosts, for
 * host devices, and for a GPU that is not in the topology. */
void gyre_peer_info_measure(const struct gyre_topo *topo, const struct gyre_peer_info *mine,
                            struct gyre_peer_info *peer);

/** gyre_transport_ib_probe - is there a usable device? Fills ib_usable and ib_reason. */
void gyre_transport_ib_probe(const struct gyre_params *params, struct gyre_peer_info *info);

/* ---- shared buffers (transport/share.c): what p2p is for slots, for a user's buffers -------- */

#define GYRE_SHARE_IPC_BYTES 64

/* What peers need. Exchanged: fixed layout. */
struct gyre_share_handle {
    uint64_t address;                  /* in its process */
    uint64_t offset_bytes;             /* of the buffer in its allocation */
    uint64_t allocation_id;            /* in its process; never given twice */
    uint64_t allocation_bytes;         /* CUDA: as it was asked for; else 0 */
    uint8_t ipc[GYRE_SHARE_IPC_BYTES]; /* CUDA, for other processes */
};

/* A peer's buffer here. */
struct gyre_share_mapping {
    void *address;
    void *state; /* the device's; NULL = nothing to give back */
};

/** gyre_share_export - @to_processes: some peer is another process. Errors: UNSUPPORTED with the
 * reason, DEVICE. */
gyre_status gyre_share_export(const struct gyre_peer_info *mine, bool to_processes, void *buffer,
                              struct gyre_share_handle *handle_out);

/** gyre_share_import - map a peer's buffer. Errors: UNSUPPORTED with the reason (another host,
 * another process on host memory), DEVICE. */
gyre_status gyre_share_import(struct gyre_device *device, const struct gyre_peer_info *mine,
                              const struct gyre_peer_info *peer,
                              const struct gyre_share_handle *handle,
                              struct gyre_share_mapping *mapping_out);

/** gyre_share_release - give a mapping back; one that is all zero is nothing. */
void gyre_share_release(struct gyre_share_mapping *mapping);

#endif
