/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap_wire.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CANCEL_SLICE_NS (GYRE_SECOND_NS / 4)

struct shared;

struct local {
    struct gyre_bootstrap base;
    struct shared *shared;
    /* Under the shared lock. */
    struct gyre_event_queue events;
    bool is_woken;
    bool is_open;
    bool has_left;
    bool has_gathered;
    void *part;
    size_t n_part;
    gyre_status broken;
    char broken_text[GYRE_TEXT_MAX_BYTES];
};

struct shared {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t timeout_ns;
    int n_ranks;
    int n_open;
    int n_gathered;
    uint64_t n_gathers_done;
    uint8_t *result; /* freed by its last reader */
    int n_readers;
    struct local ranks[];
};

static void set_broken(struct local *local, gyre_status status, const char *text)
{
    if (local->broken != GYRE_SUCCESS)
        return;
    local->broken = status;
    snprintf(local->broken_text, sizeof(local->broken_text), "%s", text);
}

/* Under the lock. No open rank can gather any more. */
static void tell_others(struct local *local, enum gyre_event_kind kind, const char *cause,
                        const char *text)
{
    struct shared *shared = local->shared;
    for (int rank = 0; rank < shared->n_ranks; rank++) {
        struct local *peer = &shared->ranks[rank];
        if (peer == local || !peer->is_open)
            continue;
        set_broken(peer, GYRE_ERROR_REMOTE, cause);
        if (kind != GYRE_EVENT_NONE)
            gyre_events_push(&peer->events, kind, local->base.rank, text, strlen(text));
    }
    pthread_cond_broadcast(&shared->changed);
}

/* Under the lock. After success the caller is one of shared->n_readers. */
static gyre_status gather_locked(struct local *local, const void *mine, size_t n_bytes)
{
    struct shared *shared = local->shared;
    const uint64_t deadline_ns = gyre_now_ns() + shared->timeout_ns;
    const uint64_t number = shared->n_gathers_done;
    if (local->broken == GYRE_SUCCESS) {
        GYRE_TRY(gyre_gather_check(shared->n_ranks, n_bytes, false));
        local->part = malloc(n_bytes > 0 ? n_bytes : 1);
        if (local->part == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%zu bytes to gather", n_bytes);
        if (n_bytes > 0)
            memcpy(local->part, mine, n_bytes);
        local->n_part = n_bytes;
        local->has_gathered = true;
    }
    if (local->broken == GYRE_SUCCESS && ++shared->n_gathered == shared->n_ranks) {
        size_t n_total = (size_t)shared->n_ranks * sizeof(uint32_t);
        for (int rank = 0; rank < shared->n_ranks; rank++)
            n_total += shared->ranks[rank].n_part;
        shared->result = malloc(n_total);
        if (shared->result == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%zu bytes of a gathered result", n_total);
        uint8_t *at = shared->result + (size_t)shared->n_ranks * sizeof(uint32_t);
        for (int rank = 0; rank < shared->n_ranks; rank++) {
            struct local *peer = &shared->ranks[rank];
            const uint32_t n_part = (uint32_t)peer->n_part;
            memcpy(shared->result + (size_t)rank * sizeof(n_part), &n_part, sizeof(n_part));
            memcpy(at, peer->part, n_part);
            at += n_part;
            free(peer->part);
            peer->part = NULL;
            peer->has_gathered = false;
        }
        shared->n_gathered = 0;
        shared->n_readers = shared->n_ranks;
        shared->n_gathers_done++;
        pthread_cond_broadcast(&shared->changed);
    }
    while (shared->n_gathers_done == number) {
        if (local->broken != GYRE_SUCCESS)
            return gyre_fail(local->broken, "%s", local->broken_text);
        if (gyre_bootstrap_is_cancelled(&local->base)) {
            const gyre_status status =
                gyre_fail(GYRE_ERROR_ABORTED, "the all-gather was given up on this rank");
            set_broken(local, status, gyre_cause());
            return status;
        }
        gyre_cond_wait_until(&shared->changed, &shared->lock,
                             gyre_min_u64(deadline_ns, gyre_now_ns() + CANCEL_SLICE_NS));
        if (gyre_now_ns() >= deadline_ns && shared->n_gathers_done == number &&
            local->broken == GYRE_SUCCESS) {
            char missing[256] = "";
            for (int rank = 0; rank < shared->n_ranks && strlen(missing) < sizeof(missing) - 16;
                 rank++)
                if (!shared->ranks[rank].has_gathered)
                    gyre_text_append(missing, sizeof(missing), "%s%d",
                                     missing[0] == '\0' ? "" : ", ", rank);
            gyre_fail(GYRE_ERROR_TIMEOUT,
                      "init: after %llu s an all-gather still waits for ranks: %s",
                      (unsigned long long)(shared->timeout_ns / GYRE_SECOND_NS), missing);
            set_broken(local, GYRE_ERROR_TIMEOUT, gyre_cause());
            tell_others(local, GYRE_EVENT_NONE, gyre_cause(), "");
            return GYRE_ERROR_TIMEOUT;
        }
    }
    return GYRE_SUCCESS;
}

/* @offsets_out: of all_gather_v; NULL = *all_out is the caller's memory, for n_bytes a rank. */
static gyre_status gather(struct gyre_bootstrap *bootstrap, const void *mine, size_t n_bytes,
                          void **all_out, size_t *offsets_out)
{
    struct shared *shared = ((struct local *)bootstrap)->shared;
    GYRE_LOCKED(&shared->lock);
    GYRE_TRY(gather_locked((struct local *)bootstrap, mine, n_bytes));
    const gyre_status status =
        offsets_out != NULL
            ? gyre_gathered_v(shared->result, shared->n_ranks, all_out, offsets_out)
            : gyre_gathered_fixed(shared->result, shared->n_ranks, n_bytes, *all_out);
    if (--shared->n_readers == 0) {
        free(shared->result);
        shared->result = NULL;
    }
    return status;
}

static gyre_status local_all_gather(struct gyre_bootstrap *bootstrap, const void *mine,
                                    size_t n_bytes, void *all_out)
{
    GYRE_TRY(gyre_gather_check(bootstrap->n_ranks, n_bytes, true));
    return gather(bootstrap, mine, n_bytes, &all_out, NULL);
}

static gyre_status local_check(struct gyre_bootstrap *bootstrap)
{
    struct local *local = (struct local *)bootstrap;
    GYRE_LOCKED(&local->shared->lock);
    if (local->broken != GYRE_SUCCESS)
        return gyre_fail(local->broken, "%s", local->broken_text);
    if (gyre_bootstrap_is_cancelled(bootstrap))
        return gyre_fail(GYRE_ERROR_ABORTED, "init was given up on rank %d", bootstrap->rank);
    return GYRE_SUCCESS;
}

static void local_fail(struct gyre_bootstrap *bootstrap, const char *text)
{
    struct local *local = (struct local *)bootstrap;
    char cause[GYRE_TEXT_MAX_BYTES];
    snprintf(cause, sizeof(cause), "rank %d gave up: %s", bootstrap->rank, text);
    GYRE_LOCKED(&local->shared->lock);
    set_broken(local, GYRE_ERROR_INVALID_USAGE, "this rank gave up before");
    tell_others(local, GYRE_EVENT_NONE, cause, "");
}

static gyre_status local_post(struct gyre_bootstrap *bootstrap, int rank, const void *message,
                              size_t n_bytes)
{
    struct local *local = (struct local *)bootstrap;
    struct shared *shared = local->shared;
    GYRE_TRY(gyre_post_check(bootstrap->n_ranks, rank, n_bytes));
    GYRE_LOCKED(&shared->lock);
    for (int to = 0; to < shared->n_ranks; to++) {
        const bool is_meant = rank == -1 ? to != bootstrap->rank : to == rank;
        if (is_meant && shared->ranks[to].is_open)
            gyre_events_push(&shared->ranks[to].events, GYRE_EVENT_MESSAGE, bootstrap->rank,
                             message, n_bytes);
    }
    pthread_cond_broadcast(&shared->changed);
    return GYRE_SUCCESS;
}

static gyre_status local_poll(struct gyre_bootstrap *bootstrap, int timeout_ms,
                              struct gyre_event *event_out)
{
    struct local *local = (struct local *)bootstrap;
    const uint64_t deadline_ns =
        gyre_now_ns() + (timeout_ms > 0 ? (uint64_t)timeout_ms * 1000000U : 0U);
    memset(event_out, 0, sizeof(*event_out));
    GYRE_LOCKED(&local->shared->lock);
    while (!gyre_events_pop(&local->events, event_out)) {
        if (local->is_woken || gyre_now_ns() >= deadline_ns) {
            local->is_woken = false;
            break;
        }
        gyre_cond_wait_until(&local->shared->changed, &local->shared->lock, deadline_ns);
    }
    return GYRE_SUCCESS;
}

static void local_wake(struct gyre_bootstrap *bootstrap)
{
    struct local *local = (struct local *)bootstrap;
    GYRE_LOCKED(&local->shared->lock);
    local->is_woken = true;
    pthread_cond_broadcast(&local->shared->changed);
}

static void local_leave(struct gyre_bootstrap *bootstrap)
{
    struct local *local = (struct local *)bootstrap;
    char cause[96];
    snprintf(cause, sizeof(cause), "rank %d has left the communicator", bootstrap->rank);
    GYRE_LOCKED(&local->shared->lock);
    if (!local->has_left)
        tell_others(local, GYRE_EVENT_LEFT, cause, "");
    local->has_left = true;
}

static void local_close(struct gyre_bootstrap *bootstrap)
{
    struct local *local = (struct local *)bootstrap;
    struct shared *shared = local->shared;
    char cause[160];
    pthread_mutex_lock(&shared->lock);
    local->is_open = false;
    if (!local->has_left) {
        const char *text = "it closed its connection (a thread of this process)";
        snprintf(cause, sizeof(cause), "rank %d is gone: %s", bootstrap->rank, text);
        tell_others(local, GYRE_EVENT_LOST, cause, text);
    }
    const bool is_last = --shared->n_open == 0;
    pthread_mutex_unlock(&shared->lock);
    if (is_last) {
        free(shared->result);
        for (int rank = 0; rank < shared->n_ranks; rank++) {
            gyre_events_clear(&shared->ranks[rank].events);
            free(shared->ranks[rank].part);
        }
        pthread_cond_destroy(&shared->changed);
        pthread_mutex_destroy(&shared->lock);
        explicit_bzero(shared->ranks[0].base.secret, GYRE_SECRET_BYTES);
        free(shared);
    }
}

static const struct gyre_bootstrap_ops local_ops = {
    .name = "local",
    .all_gather = local_all_gather,
    .all_gather_v = gather,
    .check = local_check,
    .fail = local_fail,
    .post = local_post,
    .poll = local_poll,
    .wake = local_wake,
    .leave = local_leave,
    .close = local_close,
};

gyre_status gyre_bootstrap_local_open(const struct gyre_params *params, int n_ranks,
                                      struct gyre_bootstrap **bootstraps_out)
{
    uint8_t secret[GYRE_SECRET_BYTES];
    if (n_ranks < 1 || n_ranks > GYRE_WIRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%d ranks: 1..%d are legal", n_ranks,
                         GYRE_WIRE_MAX_RANKS);
    GYRE_TRY(gyre_random_bytes(secret, sizeof(secret)));
    struct shared *shared = calloc(1, sizeof(*shared) + (size_t)n_ranks * sizeof(shared->ranks[0]));
    if (shared == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "the bootstrap of %d ranks", n_ranks);
    shared->timeout_ns =
        (uint64_t)gyre_param_number(params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * GYRE_SECOND_NS;
    shared->n_ranks = n_ranks;
    shared->n_open = n_ranks;
    pthread_mutex_init(&shared->lock, NULL);
    gyre_cond_init(&shared->changed);
    for (int rank = 0; rank < n_ranks; rank++) {
        struct local *local = &shared->ranks[rank];
        local->base = (struct gyre_bootstrap){
            .ops = &local_ops, .rank = rank, .n_ranks = n_ranks, .server_rank = -1};
        memcpy(local->base.secret, secret, sizeof(secret));
        local->shared = shared;
        local->is_open = true;
        bootstraps_out[rank] = &local->base;
    }
    explicit_bzero(secret, sizeof(secret));
    return GYRE_SUCCESS;
}
