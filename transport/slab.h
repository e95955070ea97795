/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of mapped transports (p2p, shm). Each rank has one slab; it holds, for every peer of
 * the transport and every FIFO, what this rank receives into (inbox and slots of every protocol)
 * and the credit words that it polls as a sender. Offsets are a pure function of the FIFO spec and
 * of the owner's list of peers, so a peer that mapped the slab computes them without asking.
 *
 * Where a slab lives is behind struct gyre_slab_memory_ops: threads of one process (p2p.c), memfd
 * (shm.c), GPU memory. Adding a kind of memory (transport/p2p_cuda.c for CUDA): define one
 * `const struct gyre_slab_memory_ops` and name it in the switch of p2p.c's memory_of(), inside
 * `#ifdef GYRE_WITH_CUDA`. Nothing else changes: layout, blob and connectors are made here, and no
 * code here ever dereferences slab memory, so it may be a GPU's.
 */
#ifndef GYRE_TRANSPORT_SLAB_H
#define GYRE_TRANSPORT_SLAB_H

#include "transport/transport.h"

#define GYRE_SLAB_PAGE_BYTES   4096
#define GYRE_SLAB_TOKEN_BYTES  16
#define GYRE_SLAB_HANDLE_BYTES 128

/* Offsets within a slab, from its start. The first page belongs to the memory kind (shm keeps the
 * slab's token there). Inboxes and credits are arrays by (peer index, FIFO); so are, protocol after
 * protocol, the slot areas, each of them page aligned and page granular. The SIMPLE areas of the
 * near peer are larger than the others. */
struct gyre_slab_layout {
    uint32_t n_fifos;
    uint32_t n_peers;
    uint32_t near_peer; /* index of the peer with large SIMPLE slots; n_peers = none */
    uint64_t inboxes_offset_bytes;
    uint64_t credits_offset_bytes;
    uint64_t proto_offset_bytes[GYRE_N_SLOT_PROTOS]; /* of a protocol's first area */
    uint64_t area_bytes[GYRE_N_SLOT_PROTOS];         /* of a FIFO's slots; 0 = no such protocol */
    uint64_t near_area_bytes;                        /* likewise, SIMPLE, from the near peer */
    uint64_t n_bytes;                                /* of the whole slab, in whole pages */
};

#define GYRE_SLAB_NO_NEAR_PEER UINT32_MAX

/** gyre_slab_layout_make - the layout of a slab whose owner has n_peers peers.
 * @near_peer: index of the one whose data arrive in slots of spec->near_slot_bytes, or
 * GYRE_SLAB_NO_NEAR_PEER.
 * Errors: INVALID_ARGUMENT (depth out of range, no SIMPLE slots, a size past 2^46 bytes). */
gyre_status gyre_slab_layout_make(const struct gyre_fifo_spec *spec, uint32_t n_peers,
                                  uint32_t near_peer, struct gyre_slab_layout *layout_out);

/** Offsets of the parts that serve one FIFO between the slab's owner and its peer_index-th peer:
 * inbox and slots for data from that peer to the owner, credit for data from the owner to it.
 * gyre_slab_slots_offset: only for protocols with area_bytes. */
uint64_t gyre_slab_inbox_offset(const struct gyre_slab_layout *layout, uint32_t peer_index,
                                uint32_t fifo);
uint64_t gyre_slab_credit_offset(const struct gyre_slab_layout *layout, uint32_t peer_index,
                                 uint32_t fifo);
uint64_t gyre_slab_slots_offset(const struct gyre_slab_layout *layout, uint32_t peer_index,
                                uint32_t fifo, unsigned proto);

/* How a peer finds a slab; what the bytes mean is the memory kind's business. */
struct gyre_slab_handle {
    uint8_t token[GYRE_SLAB_TOKEN_BYTES]; /* random: proves that what was found is this slab */
    uint8_t bytes[GYRE_SLAB_HANDLE_BYTES];
};

/* A piece of mapped memory: the owner's own slab or an imported one. */
struct gyre_slab_mapping {
    void *base; /* NULL: nothing */
    size_t n_bytes;
    void *state; /* the memory kind's */
};

/* A kind of memory that slabs can live in. */
struct gyre_slab_memory_ops {
    const char *name;

    /* As gyre_transport_ops.reachable: can `mine` map memory of this kind that `peer` owns? */
    bool (*reachable)(const struct gyre_params *params, const struct gyre_peer_info *mine,
                      const struct gyre_peer_info *peer, char *why_out, size_t why_bytes);
    /* Zero-filled, page aligned memory, and how a peer finds it. handle->token is filled in by the
     * caller; alloc writes handle->bytes. Errors: OUT_OF_MEMORY or SYSTEM naming n_bytes. */
    gyre_status (*alloc)(const struct gyre_transport_config *config, size_t n_bytes,
                         struct gyre_slab_handle *handle, struct gyre_slab_mapping *mapping_out);
    /* Map a peer's slab of n_bytes. Errors: REMOTE (it is gone, or is not what the token says),
     * SYSTEM. */
    gyre_status (*import)(const struct gyre_transport_config *config,
                          const struct gyre_peer_info *peer, const struct gyre_slab_handle *handle,
                          size_t n_bytes, struct gyre_slab_mapping *mapping_out);
    /* Give up an own or imported mapping. Memory that another rank still maps stays. */
    void (*release)(struct gyre_slab_mapping *mapping);
    /* gyre_transport_ops.describe for this peer; a static string. */
    const char *(*describe)(const struct gyre_peer_info *mine, const struct gyre_peer_info *peer);
};

/* A mapped transport is a slab and nothing else: these are the slots of its gyre_transport_ops. */

/** gyre_slab_open - allocate this rank's slab and write the blob that lets peers map it, as
 * gyre_transport_ops.open.
 * @ops: of the transport that is made. @config: what it points to must outlive the transport. */
gyre_status gyre_slab_open(const struct gyre_transport_ops *ops,
                           const struct gyre_slab_memory_ops *memory,
                           const struct gyre_transport_config *config,
                           struct gyre_transport **transport_out, void **blob_out,
                           size_t *blob_bytes_out);

/** gyre_slab_connect - map the slabs of all peers and fill the connectors; blobs are untrusted.
 * Never waits. Errors: REMOTE or INVALID_USAGE naming the peer, and what import returns. */
gyre_status gyre_slab_connect(struct gyre_transport *transport, const void *blobs,
                              const size_t *offsets, uint64_t deadline_ns,
                              struct gyre_connector *connectors);

const char *gyre_slab_describe(const struct gyre_transport *transport, int peer);

/** gyre_slab_memory_bytes - of this rank's own slab. */
size_t gyre_slab_memory_bytes(const struct gyre_transport *transport);

/** gyre_slab_wake - does nothing. Both ends of a mapped FIFO are executors, so no proxy sleeps. */
void gyre_slab_wake(struct gyre_transport *transport);

/** gyre_slab_help - does nothing and returns false. A mapped transport has no slots to move. */
bool gyre_slab_help(struct gyre_transport *transport, bool is_last);

/** gyre_slab_close - release the own slab and all imported ones. */
void gyre_slab_close(struct gyre_transport *transport);

/* ---- slabs of this process (transport/slab_registry.c) ------------------------------------ *
 *
 * Ranks that are threads of one process find each other's slabs here by token. An entry lives until
 * its last user released it, so a rank that aborts never frees memory that another rank still
 * writes: the slab is parked meanwhile. */

struct gyre_slab_entry;

/** gyre_slab_registry_add - publish memory under its token, with one user: the caller.
 * @release: frees the memory when the last user has released it; runs on that user's thread. */
gyre_status gyre_slab_registry_add(const uint8_t token[GYRE_SLAB_TOKEN_BYTES], void *base,
                                   size_t n_bytes, void (*release)(void *base, size_t n_bytes),
                                   struct gyre_slab_entry **entry_out);

/** gyre_slab_registry_acquire - become a user of the slab with this token.
 * Errors: REMOTE when there is none (its owner has closed), or when it is not n_bytes long. */
gyre_status gyre_slab_registry_acquire(const uint8_t token[GYRE_SLAB_TOKEN_BYTES], size_t n_bytes,
                                       void **base_out, struct gyre_slab_entry **entry_out);

/** gyre_slab_registry_release - stop being a user. */
void gyre_slab_registry_release(struct gyre_slab_entry *entry);

/** gyre_slab_registry_count - entries alive in this process; for tests of leaks. */
size_t gyre_slab_registry_count(void);

#endif
