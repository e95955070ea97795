/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank has one slab: for every peer and FIFO, the inbox and slots into which it receives, and the
 * credit words that it polls as a sender. A peer computes offsets from the FIFO spec and the
 * owner's list of peers. slab.c never dereferences slab memory, because it may be a GPU's.
 */
#ifndef GYRE_TRANSPORT_SLAB_H
#define GYRE_TRANSPORT_SLAB_H

#include "transport/transport.h"

#define GYRE_SLAB_PAGE_BYTES   4096
#define GYRE_SLAB_TOKEN_BYTES  16
#define GYRE_SLAB_HANDLE_BYTES 128

/* The first page belongs to the kind of memory (shm's token). Then inboxes, credits and each
 * protocol's slots, whole pages, by (peer index, FIFO). The ring predecessor's SIMPLE areas are
 * larger. */
struct gyre_slab_layout {
    uint32_t n_fifos;
    uint32_t n_peers;
    uint32_t ring_prev_peer; /* n_peers = none */
    uint64_t inboxes_offset_bytes;
    uint64_t credits_offset_bytes;
    uint64_t proto_offset_bytes[GYRE_N_SLOT_PROTOS];
    uint64_t area_bytes[GYRE_N_SLOT_PROTOS]; /* of one FIFO; 0 = no such slots */
    uint64_t ring_area_bytes;                /* of one SIMPLE FIFO */
    uint64_t n_bytes;
};

#define GYRE_SLAB_NO_RING_PREV UINT32_MAX

/** @ring_prev_peer: whose data arrive in slots of spec->ring_slot_bytes, or GYRE_SLAB_NO_RING_PREV.
 * Errors: INVALID_ARGUMENT (depth out of range, no SIMPLE slots, a size past 2^46 bytes). */
gyre_status gyre_slab_layout_make(const struct gyre_fifo_spec *spec, uint32_t n_peers,
                                  uint32_t ring_prev_peer, struct gyre_slab_layout *layout_out);

/** Between the owner and its peer: inbox and slots serve data from it, credit data to it. */
uint64_t gyre_slab_inbox_offset(const struct gyre_slab_layout *layout, uint32_t peer_index,
                                uint32_t fifo);
uint64_t gyre_slab_credit_offset(const struct gyre_slab_layout *layout, uint32_t peer_index,
                                 uint32_t fifo);
uint64_t gyre_slab_slots_offset(const struct gyre_slab_layout *layout, uint32_t peer_index,
                                uint32_t fifo, unsigned proto);

struct gyre_slab_handle {
    uint8_t token[GYRE_SLAB_TOKEN_BYTES]; /* random; proves that the memory is this slab */
    uint8_t bytes[GYRE_SLAB_HANDLE_BYTES];
};

struct gyre_slab_mapping {
    void *base; /* NULL = no mapping */
    size_t n_bytes;
    void *state; /* of the kind of memory */
};

struct gyre_slab_memory_ops {
    bool (*reachable)(const struct gyre_params *params, const struct gyre_peer_info *mine,
                      const struct gyre_peer_info *peer, char *why_out, size_t why_bytes);
    /* Allocate zeroed, page aligned memory and fill handle->bytes; handle->token is set. Errors:
     * OUT_OF_MEMORY or SYSTEM naming n_bytes. */
    gyre_status (*alloc)(const struct gyre_transport_config *config, size_t n_bytes,
                         struct gyre_slab_handle *handle, struct gyre_slab_mapping *mapping_out);
    /* Errors: REMOTE (the slab is gone, or the memory has another token), SYSTEM. */
    gyre_status (*import)(const struct gyre_transport_config *config,
                          const struct gyre_peer_info *peer, const struct gyre_slab_handle *handle,
                          size_t n_bytes, struct gyre_slab_mapping *mapping_out);
    /* The memory stays while another rank maps it. */
    void (*release)(struct gyre_slab_mapping *mapping);
    /* As gyre_transport_ops.describe. */
    const char *(*describe)(const struct gyre_peer_info *mine, const struct gyre_peer_info *peer);
};

#ifdef GYRE_WITH_CUDA
extern const struct gyre_slab_memory_ops gyre_slab_memory_cuda;

/** Over NVLink, not PCIe. False if the peer's GPU is hidden from this process. */
bool gyre_p2p_cuda_has_native_atomics(const struct gyre_peer_info *mine,
                                      const struct gyre_peer_info *peer);

/** As in transport.h, for a peer on this host. */
gyre_status gyre_share_export_cuda(bool to_processes, void *buffer,
                                   struct gyre_share_handle *handle_out);
gyre_status gyre_share_import_cuda(struct gyre_device *device, const struct gyre_peer_info *mine,
                                   const struct gyre_peer_info *peer,
                                   const struct gyre_share_handle *handle,
                                   struct gyre_share_mapping *mapping_out);

/** @state: gyre_share_mapping.state. */
void gyre_share_release_cuda(void *state);
#endif

/** What @config points to outlives the transport. */
gyre_status gyre_slab_open(const struct gyre_transport_ops *ops,
                           const struct gyre_slab_memory_ops *memory,
                           const struct gyre_transport_config *config,
                           struct gyre_transport **transport_out, void **blob_out,
                           size_t *blob_bytes_out);

/** Blobs are untrusted and checked. Does not wait. Errors: REMOTE or INVALID_USAGE naming the peer,
 * and those of import(). */
gyre_status gyre_slab_connect(struct gyre_transport *transport, const void *blobs,
                              const size_t *offsets, uint64_t deadline_ns,
                              struct gyre_connector *connectors);

const char *gyre_slab_describe(const struct gyre_transport *transport, int peer);

size_t gyre_slab_memory_bytes(const struct gyre_transport *transport);

/** No proxy serves a mapped FIFO. */
void gyre_slab_wake(struct gyre_transport *transport);

bool gyre_slab_help(struct gyre_transport *transport, bool is_last);

void gyre_slab_close(struct gyre_transport *transport);

/* Threads of one process find each other's slabs by token. An entry lives until its last user has
 * released it, so a rank that aborts never frees memory that another rank still writes. */

struct gyre_slab_entry;

/** The caller is the first user. @release: runs on the last user's thread. */
gyre_status gyre_slab_registry_add(const uint8_t token[GYRE_SLAB_TOKEN_BYTES], void *base,
                                   size_t n_bytes, void (*release)(void *base, size_t n_bytes),
                                   struct gyre_slab_entry **entry_out);

/** Errors: REMOTE (its owner has closed it, or not of n_bytes). */
gyre_status gyre_slab_registry_acquire(const uint8_t token[GYRE_SLAB_TOKEN_BYTES], size_t n_bytes,
                                       void **base_out, struct gyre_slab_entry **entry_out);

void gyre_slab_registry_release(struct gyre_slab_entry *entry);

size_t gyre_slab_registry_count(void);

#endif
