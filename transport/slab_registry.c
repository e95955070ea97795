/* SPDX-License-Identifier: Apache-2.0
 *
 * The slabs of this process, by token. The registry belongs to the process, because the ranks that
 * are its threads have nothing else in common that could keep one rank's memory alive for another.
 */
#include "transport/slab.h"

#include "core/foundation/base/thread.h"

#include <stdlib.h>
#include <string.h>

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

static struct gyre_slab_entry *find(const uint8_t *token)
{
    struct gyre_slab_entry *entry = registry;
    while (entry != NULL && memcmp(entry->token, token, GYRE_SLAB_TOKEN_BYTES) != 0)
        entry = entry->next;
    return entry;
}

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
    struct gyre_slab_entry *entry = find(token);
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
