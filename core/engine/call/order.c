/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/call/batch.h"

#include <stdlib.h>

static bool is_self(const struct gyre_item *item, int rank)
{
    return item->call.root == rank;
}

gyre_status gyre_order_join_copies(int rank, struct gyre_item **messages, size_t *n_messages)
{
    const size_t n = *n_messages;
    size_t at = 0, n_left = 0; /* no receive from this rank itself is left before `at` */
    for (size_t i = 0; i < n; i++) {
        struct gyre_call *send = &messages[i]->call;
        if (!is_self(messages[i], rank) || !send->is_send)
            continue;
        while (at < n && (!is_self(messages[at], rank) || messages[at]->call.is_send))
            at++;
        if (at == n || messages[at]->call.count != send->count ||
            messages[at]->call.dtype != send->dtype)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "rank %d sends %zu x %s to itself: the same group needs a recv from "
                             "itself of as many elements of that type",
                             rank, (size_t)send->count, gyre_dtype_names[send->dtype]);
        send->recv = messages[at++]->call.recv;
    }
    for (; at < n; at++)
        if (is_self(messages[at], rank) && !messages[at]->call.is_send)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "rank %d receives from itself without a send to itself in the group",
                             rank);
    for (size_t i = 0; i < n; i++)
        if (!is_self(messages[i], rank) || messages[i]->call.is_send)
            messages[n_left++] = messages[i];
    *n_messages = n_left;
    return GYRE_SUCCESS;
}

/* Distances in one launch, with a send and a receive for each and room for the copy. */
static uint32_t width_of(const struct gyre_order_place *place)
{
    if (place->most_calls == 0)
        return place->n_ranks > 1 ? (uint32_t)place->n_ranks - 1 : 1;
    const uint32_t most = (place->most_calls - 1) / 2;
    return most > 0 ? most : 1;
}

/* From rank r to rank r + 1 it is 0, as is a copy to the own rank. */
static uint32_t distance_of(const struct gyre_call *call, const struct gyre_order_place *place)
{
    const int ahead = call->is_send ? call->root - place->rank : place->rank - call->root;
    return ahead == 0 ? 0 : (uint32_t)((ahead + place->n_ranks - 1) % place->n_ranks);
}

static enum gyre_proto proto_of(const struct gyre_item *item)
{
    return item->plan != NULL ? item->plan->choice.proto : GYRE_PROTO_SIMPLE;
}

/* Does a copy run in one launch with its wave? Only if all go by one protocol, whose kernels are
 * faster, but not with two ranks: a send and a receive by lines are faster without it. */
static bool joins(const struct gyre_item *copy, const struct gyre_order_place *place,
                  struct gyre_item *const *messages, int n_messages)
{
    int n_wave = 0;
    for (int i = 0; i < n_messages; i++) {
        if (messages[i]->wave != copy->wave)
            continue;
        if (proto_of(messages[i]) != proto_of(copy))
            return false;
        n_wave++;
    }
    return n_wave == 1 || place->n_ranks > 2 || proto_of(copy) == GYRE_PROTO_SIMPLE;
}

static int compare_messages(const void *left, const void *right)
{
    const struct gyre_item *a = *(struct gyre_item *const *)left;
    const struct gyre_item *b = *(struct gyre_item *const *)right;
    if (a->wave != b->wave)
        return a->wave < b->wave ? -1 : 1;
    if (a->launch != b->launch)
        return a->launch < b->launch ? -1 : 1;
    if (a->call.is_send != b->call.is_send)
        return a->call.is_send ? -1 : 1;
    return a < b ? -1 : 1; /* in the order of the calls */
}

void gyre_order_messages(const struct gyre_order_place *place, uint32_t *latest,
                         struct gyre_item **messages, int n_messages)
{
    for (int i = 0; i < n_messages; i++) {
        struct gyre_item *item = messages[i];
        uint32_t *before = &latest[item->call.root * 2 + item->call.is_send];
        item->follows = *before;
        item->wave = *before > 0 ? messages[*before - 1]->wave + 1 : 0;
        item->launch = 0;
        *before = (uint32_t)i + 1;
    }
    for (int i = 0; i < n_messages; i++)
        latest[messages[i]->call.root * 2 + messages[i]->call.is_send] = 0;
    if (!place->queues) {
        uint32_t n_launches = 0, last = 0; /* in its wave, of the launch before */
        for (int i = 0; i < n_messages; i++) {
            struct gyre_item *item = messages[i];
            const bool is_alone =
                is_self(item, place->rank) && !joins(item, place, messages, n_messages);
            item->launch =
                is_alone ? UINT32_MAX : distance_of(&item->call, place) / width_of(place);
        }
        qsort(messages, (size_t)n_messages, sizeof(struct gyre_item *), compare_messages);
        for (int i = 0; i < n_messages; i++) {
            const uint32_t own = messages[i]->launch;
            n_launches += i > 0 && (messages[i]->wave != messages[i - 1]->wave || own != last);
            last = own;
            messages[i]->launch = n_launches;
            messages[i]->follows = 0;
        }
    }
}
