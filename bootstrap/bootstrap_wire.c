/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for a peer's next bytes, queues of events, gathered results.
 */
#include "bootstrap/bootstrap_wire.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define AWAIT_MS            100
#define MAX_QUEUED_MESSAGES 1024

gyre_status gyre_wire_await(int fd, struct gyre_wire_watch *watch, uint64_t deadline_ns,
                            bool *has_word_out)
{
    char text[160];
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    *has_word_out = poll(&entry, 1, AWAIT_MS) > 0;
    if (*has_word_out)
        return GYRE_SUCCESS;
    if (gyre_now_ns() >= deadline_ns)
        return gyre_fail(GYRE_ERROR_TIMEOUT, "no word from it in time");
    if (gyre_wire_is_silent(fd, watch))
        return gyre_fail(GYRE_ERROR_REMOTE, "it %s",
                         gyre_wire_end_text(fd, ETIMEDOUT, watch, text, sizeof(text)));
    return GYRE_SUCCESS;
}

void gyre_events_push(struct gyre_event_queue *queue, enum gyre_event_kind kind, int rank,
                      const void *bytes, size_t n_bytes)
{
    if (kind == GYRE_EVENT_MESSAGE && queue->n_messages >= MAX_QUEUED_MESSAGES) {
        GYRE_INFO(BOOTSTRAP, "a message of rank %d is dropped: %d wait already", rank,
                  queue->n_messages);
        return;
    }
    struct gyre_event_node *node = calloc(1, sizeof(*node));
    if (node == NULL)
        return;
    struct gyre_event *event = &node->event;
    event->kind = kind;
    event->rank = rank;
    const size_t room = kind == GYRE_EVENT_MESSAGE ? sizeof(event->message)
                                                   : sizeof(event->text) - 1; /* with its NUL */
    event->n_bytes = (uint32_t)gyre_min_u64(n_bytes, room);
    if (event->n_bytes > 0)
        memcpy(event->message, bytes, event->n_bytes);
    queue->n_messages += kind == GYRE_EVENT_MESSAGE;
    if (queue->last != NULL)
        queue->last->next = node;
    else
        queue->first = node;
    queue->last = node;
}

bool gyre_events_pop(struct gyre_event_queue *queue, struct gyre_event *event_out)
{
    struct gyre_event_node *node = queue->first;
    if (node == NULL)
        return false;
    *event_out = node->event;
    queue->n_messages -= node->event.kind == GYRE_EVENT_MESSAGE;
    queue->first = node->next;
    if (queue->first == NULL)
        queue->last = NULL;
    free(node);
    return true;
}

void gyre_events_clear(struct gyre_event_queue *queue)
{
    struct gyre_event event;
    while (gyre_events_pop(queue, &event))
        continue;
}

gyre_status gyre_gathered_check(const void *payload, size_t n_payload, int n_ranks)
{
    const uint32_t *sizes = payload;
    uint64_t n_total = (uint64_t)n_ranks * sizeof(*sizes);
    if (n_payload >= n_total) {
        for (int rank = 0; rank < n_ranks; rank++)
            n_total += sizes[rank];
        if (n_total == n_payload)
            return GYRE_SUCCESS;
    }
    return gyre_fail(GYRE_ERROR_REMOTE, "a gathered result of %zu bytes does not fit %d ranks",
                     n_payload, n_ranks);
}

gyre_status gyre_gathered_fixed(const void *payload, int n_ranks, size_t n_bytes, void *all_out)
{
    const uint32_t *sizes = payload;
    for (int rank = 0; rank < n_ranks; rank++) {
        if (sizes[rank] != n_bytes)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "all_gather of %zu bytes here, but of %u bytes on rank %d: the ranks "
                             "are not in the same step of set-up",
                             n_bytes, sizes[rank], rank);
    }
    if (n_bytes > 0)
        memcpy(all_out, sizes + n_ranks, (size_t)n_ranks * n_bytes);
    return GYRE_SUCCESS;
}

gyre_status gyre_gathered_v(const void *payload, int n_ranks, void **all_out, size_t *offsets_out)
{
    const uint32_t *sizes = payload;
    size_t n_total = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        offsets_out[rank] = n_total;
        n_total += sizes[rank];
    }
    offsets_out[n_ranks] = n_total;
    void *all = malloc(n_total > 0 ? n_total : 1);
    if (all == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%zu bytes of a gathered result", n_total);
    memcpy(all, sizes + n_ranks, n_total);
    *all_out = all;
    return GYRE_SUCCESS;
}
