/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash table without chains. If several calls have the same place in the table, the latest one is
 * kept. So a search takes one comparison, and the table never grows.
 */
#include "core/engine/plan/recent.h"

#include <string.h>

static unsigned place_of(const struct gyre_call *call)
{
    /* Multiplicative hashing (Knuth, TAOCP 3, 6.4): the top bits depend on all bits of the word. */
    const uint64_t word = (uint64_t)(uintptr_t)call->send ^ (uint64_t)(uintptr_t)call->recv << 7 ^
                          call->count << 13 ^ (uint64_t)call->coll << 56 ^
                          (uint64_t)(unsigned)call->root << 40;
    return (unsigned)(word * 0x9e3779b97f4a7c15ULL >> 58);
}

_Static_assert(GYRE_RECENT_WORKS == 1 << (64 - 58), "as many as place_of() tells apart");

static bool is_same(const struct gyre_call *a, const struct gyre_call *b)
{
    return a->send == b->send && a->recv == b->recv && a->count == b->count && a->coll == b->coll &&
           a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->is_send == b->is_send && a->scalar == b->scalar &&
           memcmp(&a->terms, &b->terms, sizeof(a->terms)) == 0;
}

const struct gyre_recent_work *gyre_recent_find(const struct gyre_recent *recent,
                                                const struct gyre_call *call)
{
    const struct gyre_recent_work *at = &recent->works[place_of(call)];
    return at->call.count > 0 && is_same(&at->call, call) ? at : NULL;
}

void gyre_recent_keep(struct gyre_recent *recent, const struct gyre_call *call,
                      const struct gyre_work *work, enum gyre_proto proto)
{
    struct gyre_recent_work *at = &recent->works[place_of(call)];
    at->call = *call;
    at->work = *work;
    at->proto = proto;
}

void gyre_recent_forget(struct gyre_recent *recent)
{
    for (unsigned i = 0; i < GYRE_RECENT_WORKS; i++)
        recent->works[i].call.count = 0;
}
