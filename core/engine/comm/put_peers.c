/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm/parts.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAP_NS 50000

static struct gyre_window_entry *find_window(const gyre_comm *comm, uint32_t number)
{
    struct gyre_window_entry *entry = comm->windows.newest;
    if (comm->puts.newest != NULL && comm->puts.newest->number == number)
        return comm->puts.newest;
    while (entry != NULL && entry->number != number)
        entry = entry->next;
    return entry;
}

static void take(void *context, int rank, const struct gyre_put_head *head, const void *data)
{
    gyre_comm *comm = context;
    char text[160];
    switch (head->kind) {
    case GYRE_PUT_DATA: {
        bool is_right = head->signal < GYRE_N_SIGNALS;
        if (is_right && head->n_bytes > 0) {
            pthread_mutex_lock(&comm->puts.lock);
            const struct gyre_window_entry *entry = find_window(comm, head->window);
            is_right = entry != NULL && head->offset_bytes <= entry->n_bytes &&
                       head->n_bytes <= entry->n_bytes - head->offset_bytes;
            if (is_right)
                gyre_copy(entry->base + head->offset_bytes, data, head->n_bytes);
            pthread_mutex_unlock(&comm->puts.lock);
        }
        if (!is_right) {
            char cause[240];
            snprintf(
                cause, sizeof(cause),
                "rank %d put %u bytes at offset %" PRIu64
                " into window %u, where rank %d has no such bytes; give a window back after all "
                "calls that use it are complete",
                rank, head->n_bytes, head->offset_bytes, head->window, comm->self.rank);
            gyre_fault_raise(&comm->self.fault, GYRE_ERROR_INVALID_USAGE, cause);
        } else if (head->signal >= 0) {
            gyre_fetch_add_u64(&comm->signals.counters[comm->self.rank][gyre_signal_index(
                                   comm->self.n_ranks, GYRE_SIGNALS_ARRIVED, rank, head->signal)],
                               1);
        }
        break;
    }
    case GYRE_PUT_FENCE:
        gyre_fetch_add_u32(&comm->puts.n_fences[rank], 1);
        break;
    case GYRE_PUT_BLOCKED:
        gyre_store_release_u64(&comm->puts.blocked[rank], head->offset_bytes);
        break;
    case GYRE_PUT_GOODBYE: /* all signals of the rank have been taken */
        pthread_mutex_lock(&comm->puts.lock);
        if (!comm->puts.is_detached)
            comm->executor->ops->peer_left(comm->executor, rank);
        pthread_mutex_unlock(&comm->puts.lock);
        break;
    default:
        snprintf(text, sizeof(text),
                 "rank %d sent rank %d a one-sided message of the unknown kind %" PRIu32, rank,
                 comm->self.rank, head->kind);
        gyre_fault_raise(&comm->self.fault, GYRE_ERROR_REMOTE, text);
        break;
    }
}

static bool post(void *context, const struct gyre_put *put)
{
    gyre_comm *comm = context;
    const struct gyre_put_head head = {
        .kind = GYRE_PUT_DATA,
        .window = put->window,
        .offset_bytes = put->offset_bytes,
        .n_bytes = (uint32_t)put->n_bytes,
        .signal = put->signal,
    };
    return gyre_put_links_post(comm->puts.links, put->peer, &head, put->from);
}

static void help(void *context)
{
    gyre_comm *comm = context;
    (void)gyre_put_links_help(comm->puts.links);
}

static void wake(void *context)
{
    const gyre_comm *comm = context;
    gyre_put_transports_wake(&comm->puts.transports);
}

static bool is_peer(const gyre_comm *comm, int rank)
{
    return rank != comm->self.rank && gyre_links_is_proxied_to(&comm->links, rank);
}

static gyre_status wait_fence(gyre_comm *comm, int rank, bool is_send, uint64_t deadline_ns)
{
    const struct gyre_put_head head = {.kind = GYRE_PUT_FENCE, .signal = GYRE_NO_SIGNAL};
    const struct timespec nap = {0, NAP_NS};
    while (is_send ? !gyre_put_links_post(comm->puts.links, rank, &head, NULL)
                   : !((int32_t)(gyre_load_acquire_u32(&comm->puts.n_fences[rank]) -
                                 comm->puts.n_sent) >= 0)) {
        GYRE_TRY(gyre_fault_status(&comm->self.fault));
        if (gyre_now_ns() > deadline_ns)
            return gyre_fail(GYRE_ERROR_TIMEOUT,
                             "rank %d waits for rank %d to %s the last one-sided calls "
                             "(GYRE_BOOTSTRAP_TIMEOUT)",
                             comm->self.rank, rank, is_send ? "take" : "send");
        nanosleep(&nap, NULL);
    }
    return GYRE_SUCCESS;
}

/* Fences are sent before and awaited after an all-gather, so no rank waits for one that comes
 * late. */
gyre_status gyre_put_peers_fence(gyre_comm *comm)
{
    const uint64_t patience_ns = gyre_links_timeout_ns(&comm->self);
    uint8_t mine = 1;
    if (comm->puts.links == NULL)
        return GYRE_SUCCESS;
    uint64_t deadline_ns = gyre_now_ns() + patience_ns;
    comm->puts.n_sent++;
    for (int rank = 0; rank < comm->self.n_ranks; rank++)
        if (is_peer(comm, rank))
            GYRE_TRY(wait_fence(comm, rank, true, deadline_ns));
    GYRE_FREED uint8_t *all = malloc((size_t)comm->self.n_ranks);
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "a fence of one-sided calls");
    GYRE_TRY(gyre_comm_gather(comm, &mine, sizeof(mine), all));
    deadline_ns = gyre_now_ns() + patience_ns;
    for (int rank = 0; rank < comm->self.n_ranks; rank++)
        if (is_peer(comm, rank))
            GYRE_TRY(wait_fence(comm, rank, false, deadline_ns));
    return GYRE_SUCCESS;
}

void gyre_put_peers_expect(gyre_comm *comm, struct gyre_window_entry *entry)
{
    GYRE_LOCKED(&comm->puts.lock);
    comm->puts.newest = entry;
}

gyre_status gyre_put_peers_open(gyre_comm *comm)
{
    struct gyre_put_peers *puts = &comm->puts;
    gyre_status status;
    if (!comm->links.is_proxied || puts->links != NULL)
        return GYRE_SUCCESS;
    puts->n_fences = calloc((size_t)comm->self.n_ranks, sizeof(*puts->n_fences));
    puts->blocked = calloc((size_t)comm->self.n_ranks, sizeof(*puts->blocked));
    puts->told_blocked = calloc((size_t)comm->self.n_ranks, sizeof(*puts->told_blocked));
    if (puts->n_fences == NULL || puts->blocked == NULL || puts->told_blocked == NULL)
        GYRE_TRY_GOTO(status, gyre_fail_errno(ENOMEM, "put links of %d ranks", comm->self.n_ranks),
                      give_up);
    GYRE_TRY_GOTO(status, gyre_put_transports_open(&comm->self, &comm->links, &puts->transports),
                  give_up);
    const struct gyre_put_links_config config = {
        .rank = comm->self.rank,
        .n_ranks = comm->self.n_ranks,
        .slot_bytes = puts->transports.slot_bytes,
        .connectors = puts->transports.connectors,
        .fault = &comm->self.fault,
        .wake = wake,
        .take = take,
        .context = comm,
    };
    GYRE_TRY_GOTO(status, gyre_put_links_open(&config, &puts->links), give_up);
    puts->remote = (struct gyre_remote_puts){
        .context = comm,
        .most_bytes = gyre_put_links_most_bytes(puts->links),
        .post = post,
        .help = help,
    };
    return GYRE_SUCCESS;

give_up:
    return gyre_comm_give_up(comm, status);
}

void gyre_put_peers_tell_blocked(gyre_comm *comm, uint64_t n_ended)
{
    const struct gyre_put_head head = {.kind = GYRE_PUT_BLOCKED, .offset_bytes = n_ended};
    struct gyre_put_peers *puts = &comm->puts;
    for (int rank = 0; puts->links != NULL && rank < comm->self.n_ranks; rank++)
        if (is_peer(comm, rank) && puts->told_blocked[rank] != n_ended &&
            gyre_put_links_post(puts->links, rank, &head, NULL))
            puts->told_blocked[rank] = n_ended;
}

uint64_t gyre_put_peers_blocked_of(const gyre_comm *comm, int rank)
{
    return comm->puts.links != NULL ? gyre_load_acquire_u64(&comm->puts.blocked[rank]) : 0;
}

void gyre_put_peers_leave(gyre_comm *comm)
{
    if (comm->puts.links != NULL)
        gyre_put_links_leave(comm->puts.links);
}

void gyre_put_peers_detach(gyre_comm *comm)
{
    GYRE_LOCKED(&comm->puts.lock);
    comm->puts.is_detached = true;
}

void gyre_put_peers_close(gyre_comm *comm)
{
    struct gyre_put_peers *puts = &comm->puts;
    gyre_put_links_close(puts->links);
    gyre_put_transports_close(&puts->transports);
    free(puts->n_fences);
    free(puts->blocked);
    free(puts->told_blocked);
    pthread_mutex_destroy(&puts->lock);
}
