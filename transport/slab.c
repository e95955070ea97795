/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/slab.h"

#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

#define SLAB_MAGIC     0x62616c7365727967ULL /* "gyreslab", little endian */
#define SLAB_MAX_BYTES (1ULL << 46)          /* below the 47-bit user address space */

/* The owner's n_peers ranks, of uint16_t, follow it. */
struct slab_blob {
    uint64_t magic;
    uint64_t n_bytes;
    uint64_t spec_hash;
    uint32_t rank;
    uint32_t n_peers;
    struct gyre_slab_handle handle;
};

GYRE_STATIC_ASSERT(sizeof(struct slab_blob) == 176, "processes send it to each other");

struct slab_transport {
    struct gyre_transport base;
    struct gyre_transport_config config;
    const struct gyre_slab_memory_ops *memory;
    struct gyre_slab_layout layout;
    struct gyre_slab_mapping own;
    struct gyre_slab_mapping *imported; /* by peer index */
};

static uint64_t spec_hash(const struct gyre_fifo_spec *spec)
{
    uint64_t hash = gyre_hash(GYRE_HASH_INIT, &spec->n_fifos, sizeof(spec->n_fifos));
    hash = gyre_hash(hash, &spec->depth, sizeof(spec->depth));
    hash = gyre_hash(hash, &spec->ring_slot_bytes, sizeof(spec->ring_slot_bytes));
    return gyre_hash(hash, spec->slot_bytes, sizeof(spec->slot_bytes));
}

/* False: more than SLAB_MAX_BYTES. */
static bool multiply_add(uint64_t a, uint64_t b, uint64_t c, uint64_t *out)
{
    uint64_t product, sum;
    if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(product, c, &sum) ||
        sum > SLAB_MAX_BYTES)
        return false;
    *out = sum;
    return true;
}

static uint64_t area_bytes(const struct gyre_fifo_spec *spec, uint32_t slot_bytes)
{
    return gyre_round_up((uint64_t)spec->depth * slot_bytes, GYRE_SLAB_PAGE_BYTES);
}

gyre_status gyre_slab_layout_make(const struct gyre_fifo_spec *spec, uint32_t n_peers,
                                  uint32_t ring_prev_peer, struct gyre_slab_layout *layout_out)
{
    if (spec->depth < 1 || spec->depth > GYRE_MAX_DEPTH)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "FIFO depth %u is not in 1..%d", spec->depth,
                         GYRE_MAX_DEPTH);
    if (spec->n_fifos == 0 || spec->slot_bytes[GYRE_PROTO_SIMPLE] == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%u FIFOs with slots of %u bytes",
                         spec->n_fifos, spec->slot_bytes[GYRE_PROTO_SIMPLE]);
    if (spec->ring_slot_bytes > 0 && spec->ring_slot_bytes < spec->slot_bytes[GYRE_PROTO_SIMPLE])
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "ring slots of %u bytes, smaller than the others of %u",
                         spec->ring_slot_bytes, spec->slot_bytes[GYRE_PROTO_SIMPLE]);

    struct gyre_slab_layout layout = {
        .n_fifos = spec->n_fifos,
        .n_peers = n_peers,
        .ring_prev_peer =
            spec->ring_slot_bytes > 0 && ring_prev_peer < n_peers ? ring_prev_peer : n_peers,
    };
    const uint64_t n_ends = (uint64_t)n_peers * spec->n_fifos;
    layout.inboxes_offset_bytes = GYRE_SLAB_PAGE_BYTES;
    bool fits = multiply_add(n_ends, sizeof(struct gyre_inbox), layout.inboxes_offset_bytes,
                             &layout.credits_offset_bytes);
    fits = fits && multiply_add(n_ends, sizeof(struct gyre_credit), layout.credits_offset_bytes,
                                &layout.n_bytes);
    layout.n_bytes = gyre_round_up(layout.n_bytes, GYRE_SLAB_PAGE_BYTES);
    for (unsigned proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++) {
        layout.area_bytes[proto] = area_bytes(spec, spec->slot_bytes[proto]);
        layout.proto_offset_bytes[proto] = layout.n_bytes;
        fits =
            fits && multiply_add(n_ends, layout.area_bytes[proto], layout.n_bytes, &layout.n_bytes);
        if (proto != GYRE_PROTO_SIMPLE || layout.ring_prev_peer == n_peers)
            continue;
        layout.ring_area_bytes = area_bytes(spec, spec->ring_slot_bytes);
        fits =
            fits && multiply_add(spec->n_fifos, layout.ring_area_bytes - layout.area_bytes[proto],
                                 layout.n_bytes, &layout.n_bytes);
    }
    if (!fits)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "slots of %u peers, %u FIFOs of %u slots each, do not fit in memory",
                         n_peers, spec->n_fifos, spec->depth);
    *layout_out = layout;
    return GYRE_SUCCESS;
}

static uint64_t end_index(const struct gyre_slab_layout *layout, uint32_t peer_index, uint32_t fifo)
{
    return (uint64_t)peer_index * layout->n_fifos + fifo;
}

uint64_t gyre_slab_inbox_offset(const struct gyre_slab_layout *layout, uint32_t peer_index,
                                uint32_t fifo)
{
    return layout->inboxes_offset_bytes +
           end_index(layout, peer_index, fifo) * sizeof(struct gyre_inbox);
}

uint64_t gyre_slab_credit_offset(const struct gyre_slab_layout *layout, uint32_t peer_index,
                                 uint32_t fifo)
{
    return layout->credits_offset_bytes +
           end_index(layout, peer_index, fifo) * sizeof(struct gyre_credit);
}

uint64_t gyre_slab_slots_offset(const struct gyre_slab_layout *layout, uint32_t peer_index,
                                uint32_t fifo, unsigned proto)
{
    const uint64_t offset_bytes = layout->proto_offset_bytes[proto] +
                                  end_index(layout, peer_index, fifo) * layout->area_bytes[proto];
    if (proto != GYRE_PROTO_SIMPLE || peer_index < layout->ring_prev_peer)
        return offset_bytes;
    const uint64_t n_large = peer_index == layout->ring_prev_peer ? fifo : layout->n_fifos;
    return offset_bytes + n_large * (layout->ring_area_bytes - layout->area_bytes[proto]);
}

/* @peers: uint16_t, of any alignment. */
static uint32_t find_ring_prev(const struct gyre_transport_config *config, int rank,
                               const void *peers, uint32_t n_peers)
{
    for (uint32_t i = 0; i < n_peers && config->spec.ring_slot_bytes > 0; i++) {
        uint16_t peer;
        memcpy(&peer, (const unsigned char *)peers + i * sizeof(peer), sizeof(peer));
        if (peer == config->ring_prev[rank])
            return i;
    }
    return GYRE_SLAB_NO_RING_PREV;
}

gyre_status gyre_slab_open(const struct gyre_transport_ops *ops,
                           const struct gyre_slab_memory_ops *memory,
                           const struct gyre_transport_config *config,
                           struct gyre_transport **transport_out, void **blob_out,
                           size_t *blob_bytes_out)
{
    gyre_status status;
    struct gyre_slab_handle handle;
    memset(&handle, 0, sizeof(handle));
    struct slab_transport *slab = calloc(1, sizeof(*slab));
    if (slab == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "slab of rank %d", config->rank);
    slab->base.ops = ops;
    slab->config = *config;
    slab->memory = memory;
    slab->imported = calloc((size_t)config->n_peers + 1, sizeof(*slab->imported));
    if (slab->imported == NULL) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "slabs of %d peers", config->n_peers);
        goto close_slab;
    }
    GYRE_TRY_GOTO(status,
                  gyre_slab_layout_make(&config->spec, (uint32_t)config->n_peers,
                                        find_ring_prev(config, config->rank, config->peers,
                                                       (uint32_t)config->n_peers),
                                        &slab->layout),
                  close_slab);
    GYRE_TRY_GOTO(status, gyre_random_bytes(handle.token, sizeof(handle.token)), close_slab);
    GYRE_TRY_GOTO(status, memory->alloc(config, slab->layout.n_bytes, &handle, &slab->own),
                  close_slab);
    const size_t list_bytes = (size_t)config->n_peers * sizeof(uint16_t);
    const struct slab_blob head = {
        .magic = SLAB_MAGIC,
        .n_bytes = slab->layout.n_bytes,
        .spec_hash = spec_hash(&config->spec),
        .rank = (uint32_t)config->rank,
        .n_peers = (uint32_t)config->n_peers,
        .handle = handle,
    };
    unsigned char *blob = malloc(sizeof(head) + list_bytes);
    if (blob == NULL) {
        status =
            gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "blob of %zu bytes", sizeof(head) + list_bytes);
        goto close_slab;
    }
    memcpy(blob, &head, sizeof(head));
    memcpy(blob + sizeof(head), config->peers, list_bytes);
    *blob_out = blob;
    *blob_bytes_out = sizeof(head) + list_bytes;
    *transport_out = &slab->base;
    return GYRE_SUCCESS;

close_slab:
    gyre_slab_close(&slab->base);
    return status;
}

static gyre_status parse_blob(const struct slab_transport *slab, int peer,
                              const unsigned char *bytes, size_t n_bytes,
                              struct slab_blob *blob_out, struct gyre_slab_layout *layout_out,
                              uint32_t *my_index_out)
{
    const struct gyre_transport_config *config = &slab->config;
    struct slab_blob blob;
    if (n_bytes < sizeof(blob))
        return gyre_fail(GYRE_ERROR_REMOTE, "announced its slab in %zu bytes, expected %zu",
                         n_bytes, sizeof(blob));
    memcpy(&blob, bytes, sizeof(blob));
    if (blob.magic != SLAB_MAGIC || blob.rank != (uint32_t)peer ||
        blob.n_peers >= (uint32_t)config->n_ranks ||
        n_bytes != sizeof(blob) + blob.n_peers * sizeof(uint16_t))
        return gyre_fail(GYRE_ERROR_REMOTE, "announced a slab that is not one");
    if (blob.spec_hash != spec_hash(&config->spec))
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "has FIFOs of other dimensions");
    GYRE_TRY(gyre_slab_layout_make(&config->spec, blob.n_peers,
                                   find_ring_prev(config, peer, bytes + sizeof(blob), blob.n_peers),
                                   layout_out));
    if (layout_out->n_bytes != blob.n_bytes)
        return gyre_fail(GYRE_ERROR_REMOTE, "has a slab of %llu bytes, expected %llu",
                         (unsigned long long)blob.n_bytes, (unsigned long long)layout_out->n_bytes);
    for (uint32_t i = 0; i < blob.n_peers; i++) {
        uint16_t rank;
        memcpy(&rank, bytes + sizeof(blob) + i * sizeof(rank), sizeof(rank));
        if (rank == config->rank) {
            *my_index_out = i;
            *blob_out = blob;
            return GYRE_SUCCESS;
        }
    }
    return gyre_fail(GYRE_ERROR_REMOTE, "did not choose this transport for rank %d", config->rank);
}

static unsigned char *at(const struct gyre_slab_mapping *mapping, uint64_t offset_bytes)
{
    return (unsigned char *)mapping->base + offset_bytes;
}

struct slab_side {
    const struct gyre_slab_mapping *mapping;
    const struct gyre_slab_layout *layout;
    uint32_t peer_index;
};

static struct gyre_connector make_connector(const struct gyre_fifo_spec *spec,
                                            const struct slab_side *slots_in,
                                            const struct slab_side *credit_in, uint32_t fifo)
{
    const bool is_ring_prev = slots_in->peer_index == slots_in->layout->ring_prev_peer;
    struct gyre_connector connector = {
        .depth = (uint16_t)spec->depth,
        .is_proxied = 0,
        .slot_bytes = is_ring_prev ? spec->ring_slot_bytes : spec->slot_bytes[GYRE_PROTO_SIMPLE],
    };
    for (unsigned proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++)
        if (slots_in->layout->area_bytes[proto] > 0)
            connector.slots[proto] =
                at(slots_in->mapping,
                   gyre_slab_slots_offset(slots_in->layout, slots_in->peer_index, fifo, proto));
    connector.inbox = (void *)at(
        slots_in->mapping, gyre_slab_inbox_offset(slots_in->layout, slots_in->peer_index, fifo));
    connector.credit =
        (void *)at(credit_in->mapping,
                   gyre_slab_credit_offset(credit_in->layout, credit_in->peer_index, fifo));
    return connector;
}

gyre_status gyre_slab_connect(struct gyre_transport *transport, const void *blobs,
                              const size_t *offsets, uint64_t deadline_ns,
                              struct gyre_connector *connectors)
{
    (void)deadline_ns;
    struct slab_transport *slab = (struct slab_transport *)transport;
    const struct gyre_transport_config *config = &slab->config;
    const struct gyre_fifo_spec *spec = &config->spec;
    for (int i = 0; i < config->n_peers; i++) {
        const int peer = config->peers[i];
        struct slab_blob blob;
        struct gyre_slab_layout layout;
        uint32_t my_index = 0;
        gyre_status status =
            parse_blob(slab, peer, (const unsigned char *)blobs + offsets[peer],
                       offsets[peer + 1] - offsets[peer], &blob, &layout, &my_index);
        if (status == GYRE_SUCCESS)
            status = slab->memory->import(config, &config->infos[peer], &blob.handle,
                                          layout.n_bytes, &slab->imported[i]);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "rank %d (%s) over %s", peer,
                                     config->infos[peer].host_name, transport->ops->name);
        const struct slab_side mine = {&slab->own, &slab->layout, (uint32_t)i};
        const struct slab_side theirs = {&slab->imported[i], &layout, my_index};
        for (uint32_t fifo = 0; fifo < spec->n_fifos; fifo++) {
            connectors[gyre_connector_index(spec, (uint32_t)peer, fifo, true)] =
                make_connector(spec, &theirs, &mine, fifo);
            connectors[gyre_connector_index(spec, (uint32_t)peer, fifo, false)] =
                make_connector(spec, &mine, &theirs, fifo);
        }
    }
    return GYRE_SUCCESS;
}

size_t gyre_slab_memory_bytes(const struct gyre_transport *transport)
{
    return ((const struct slab_transport *)transport)->own.n_bytes;
}

const char *gyre_slab_describe(const struct gyre_transport *transport, int peer)
{
    const struct slab_transport *slab = (const struct slab_transport *)transport;
    const struct gyre_peer_info *infos = slab->config.infos;
    return slab->memory->describe(&infos[slab->config.rank], &infos[peer]);
}

void gyre_slab_wake(struct gyre_transport *transport)
{
    (void)transport;
}

bool gyre_slab_help(struct gyre_transport *transport, bool is_last)
{
    (void)transport;
    (void)is_last;
    return false;
}

void gyre_slab_close(struct gyre_transport *transport)
{
    struct slab_transport *slab = (struct slab_transport *)transport;
    for (int i = 0; slab->imported != NULL && i < slab->config.n_peers; i++)
        if (slab->imported[i].base != NULL)
            slab->memory->release(&slab->imported[i]);
    if (slab->own.base != NULL)
        slab->memory->release(&slab->own);
    free(slab->imported);
    free(slab);
}

struct gyre_slab_entry {
    struct gyre_slab_entry *next;
    uint8_t token[GYRE_SLAB_TOKEN_BYTES];
    void *base;
    size_t n_bytes;
    size_t n_users;
    void (*release)(void *base, size_t n_bytes);
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gyre_slab_entry *registry; /* under registry_lock */

GYRE_WATCH_FORKS(&registry_lock, NULL)

gyre_status gyre_slab_registry_add(const uint8_t token[GYRE_SLAB_TOKEN_BYTES], void *base,
                                   size_t n_bytes, void (*release)(void *base, size_t n_bytes),
                                   struct gyre_slab_entry **entry_out)
{
    struct gyre_slab_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "entry of a slab (%zu bytes)", sizeof(*entry));
    memcpy(entry->token, token, GYRE_SLAB_TOKEN_BYTES);
    entry->base = base;
    entry->n_bytes = n_bytes;
    entry->n_users = 1;
    entry->release = release;
    pthread_mutex_lock(&registry_lock);
    entry->next = registry;
    registry = entry;
    pthread_mutex_unlock(&registry_lock);
    *entry_out = entry;
    return GYRE_SUCCESS;
}

gyre_status gyre_slab_registry_acquire(const uint8_t token[GYRE_SLAB_TOKEN_BYTES], size_t n_bytes,
                                       void **base_out, struct gyre_slab_entry **entry_out)
{
    pthread_mutex_lock(&registry_lock);
    struct gyre_slab_entry *entry = registry;
    while (entry != NULL && memcmp(entry->token, token, GYRE_SLAB_TOKEN_BYTES) != 0)
        entry = entry->next;
    const size_t found_bytes = entry != NULL ? entry->n_bytes : 0;
    if (entry != NULL && found_bytes == n_bytes) {
        entry->n_users++;
        *base_out = entry->base;
        *entry_out = entry;
    }
    pthread_mutex_unlock(&registry_lock);
    if (entry == NULL)
        return gyre_fail(GYRE_ERROR_REMOTE, "its slab is gone: the rank has closed or aborted");
    if (found_bytes != n_bytes)
        return gyre_fail(GYRE_ERROR_REMOTE, "its slab has %zu bytes, expected %zu", found_bytes,
                         n_bytes);
    return GYRE_SUCCESS;
}

void gyre_slab_registry_release(struct gyre_slab_entry *entry)
{
    pthread_mutex_lock(&registry_lock);
    const bool is_last = --entry->n_users == 0;
    if (is_last) {
        struct gyre_slab_entry **link = &registry;
        while (*link != entry)
            link = &(*link)->next;
        *link = entry->next;
    }
    pthread_mutex_unlock(&registry_lock);
    if (!is_last)
        return;
    entry->release(entry->base, entry->n_bytes);
    free(entry);
}

size_t gyre_slab_registry_count(void)
{
    pthread_mutex_lock(&registry_lock);
    size_t n_entries = 0;
    for (const struct gyre_slab_entry *entry = registry; entry != NULL; entry = entry->next)
        n_entries++;
    pthread_mutex_unlock(&registry_lock);
    return n_entries;
}
