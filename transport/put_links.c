/* SPDX-License-Identifier: Apache-2.0
 *
 * Every slot is one message. A rank that waits for a signal takes messages too, which saves a
 * switch of threads.
 */
#include "transport/proxy.h"
#include "transport/transport.h"

#include "core/foundation/base/sync.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIGNATURE 0x73747570U /* "puts": of all messages */

GYRE_STATIC_ASSERT(sizeof(struct gyre_put_head) == 32, "ranks send it to each other");

struct link {
    struct gyre_connector send; /* inbox NULL: no link */
    struct gyre_connector recv;
    pthread_mutex_t lock; /* guards n_posted */
    uint64_t n_posted;
    uint64_t n_taken; /* this and the rest: by the thread that takes */
    bool has_said_goodbye;
};

struct gyre_put_links {
    struct gyre_put_links_config config;
    struct gyre_proxy *proxy;
    uint32_t is_leaving; /* release */
    uint32_t most_bytes;
    struct link links[];
};

uint32_t gyre_put_links_most_bytes(const struct gyre_put_links *links)
{
    return links->most_bytes;
}

bool gyre_put_links_post(struct gyre_put_links *links, int rank, const struct gyre_put_head *head,
                         const void *data)
{
    struct link *link = &links->links[rank];
    const struct gyre_connector *end = &link->send;
    pthread_mutex_lock(&link->lock);
    const uint64_t n_taken = gyre_load_acquire_u64(&end->credit->head[GYRE_PROTO_SIMPLE]);
    const bool has_room = link->n_posted - n_taken < end->depth;
    if (has_room) {
        const uint64_t index = link->n_posted % end->depth;
        unsigned char *slot = end->slots[GYRE_PROTO_SIMPLE] + index * end->slot_bytes;
        memcpy(slot, head, sizeof(*head));
        if (head->n_bytes > 0)
            memcpy(slot + sizeof(*head), data, head->n_bytes);
        gyre_store_relaxed_u64(&end->inbox->slot_info[index],
                               gyre_slot_info((uint32_t)sizeof(*head) + head->n_bytes, SIGNATURE));
        gyre_store_release_u64(&end->inbox->tail[GYRE_PROTO_SIMPLE], ++link->n_posted);
    }
    pthread_mutex_unlock(&link->lock);
    if (has_room)
        links->config.wake(links->config.context);
    return has_room;
}

static bool has_message(const struct link *link)
{
    return link->recv.inbox != NULL &&
           gyre_load_acquire_u64(&link->recv.inbox->tail[GYRE_PROTO_SIMPLE]) > link->n_taken;
}

static void take(struct gyre_put_links *links, int rank)
{
    struct link *link = &links->links[rank];
    const struct gyre_connector *end = &link->recv;
    const uint64_t index = link->n_taken % end->depth;
    const unsigned char *slot = end->slots[GYRE_PROTO_SIMPLE] + index * end->slot_bytes;
    const uint64_t info = gyre_load_relaxed_u64(&end->inbox->slot_info[index]);
    struct gyre_put_head head = {0};
    char text[160];
    if ((uint32_t)info >= sizeof(head))
        memcpy(&head, slot, sizeof(head));
    if (info != gyre_slot_info((uint32_t)sizeof(head) + head.n_bytes, SIGNATURE)) {
        snprintf(text, sizeof(text),
                 "rank %d sent a message of %u bytes that is no one-sided call's", rank,
                 (uint32_t)info);
        gyre_fault_raise(links->config.fault, GYRE_ERROR_REMOTE, text);
        return;
    }
    links->config.take(links->config.context, rank, &head, slot + sizeof(head));
    gyre_store_release_u64(&end->credit->head[GYRE_PROTO_SIMPLE], ++link->n_taken);
}

static bool poll_links(void *context)
{
    struct gyre_put_links *links = context;
    const bool is_leaving = gyre_load_acquire_u32(&links->is_leaving) != 0;
    const struct gyre_put_head goodbye = {.kind = GYRE_PUT_GOODBYE}; /* behind all messages */
    bool has_taken = false, has_moved = false;
    for (int rank = 0; rank < links->config.n_ranks; rank++) {
        struct link *link = &links->links[rank];
        if (!gyre_fault_is_raised(links->config.fault) && has_message(link)) {
            take(links, rank);
            has_taken = true;
        }
        if (is_leaving && link->send.inbox != NULL && !link->has_said_goodbye) {
            link->has_said_goodbye = gyre_put_links_post(links, rank, &goodbye, NULL);
            has_moved = has_moved || link->has_said_goodbye;
        }
    }
    if (has_taken)
        links->config.wake(links->config.context);
    return has_taken || has_moved;
}

static bool is_behind(const void *context, bool has_credit)
{
    const struct gyre_put_links *links = context;
    (void)has_credit;
    for (int rank = 0; rank < links->config.n_ranks; rank++)
        if (has_message(&links->links[rank]))
            return true;
    return false;
}

bool gyre_put_links_help(struct gyre_put_links *links)
{
    return gyre_proxy_help(links->proxy, false);
}

void gyre_put_links_leave(struct gyre_put_links *links)
{
    gyre_store_release_u32(&links->is_leaving, 1);
    gyre_proxy_wake(links->proxy);
}

static void free_links(struct gyre_put_links *links)
{
    for (int rank = 0; rank < links->config.n_ranks; rank++)
        pthread_mutex_destroy(&links->links[rank].lock);
    free(links);
}

gyre_status gyre_put_links_open(const struct gyre_put_links_config *config,
                                struct gyre_put_links **links_out)
{
    const size_t n = (size_t)config->n_ranks;
    struct gyre_put_links *links = calloc(1, sizeof(*links) + n * sizeof(links->links[0]));
    if (links == NULL)
        return gyre_fail_errno(ENOMEM, "put links of %zu ranks", n);
    const struct gyre_proxy_client client = {
        .poll = poll_links, .is_behind = is_behind, .context = links};
    links->config = *config;
    links->config.connectors = NULL;
    links->most_bytes = config->slot_bytes - (uint32_t)sizeof(struct gyre_put_head);
    for (size_t rank = 0; rank < n; rank++) {
        links->links[rank].recv = config->connectors[2 * rank];
        links->links[rank].send = config->connectors[2 * rank + 1];
        pthread_mutex_init(&links->links[rank].lock, NULL);
    }
    const gyre_status status = gyre_proxy_open(&client, config->rank, config->fault, &links->proxy);
    if (status != GYRE_SUCCESS) {
        free_links(links);
        return status;
    }
    *links_out = links;
    return GYRE_SUCCESS;
}

void gyre_put_links_close(struct gyre_put_links *links)
{
    if (links == NULL)
        return;
    gyre_proxy_close(links->proxy);
    free_links(links);
}
