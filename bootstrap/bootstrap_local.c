/* SPDX-License-Identifier: Apache-2.0
 *
 * The bootstrap of ranks that are threads of one process: one shared object, a lock and condition
 * variables. Same semantics as over TCP, without a network.
 */
#include "bootstrap/bootstrap.h"

#include "core/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct queued_event {
    struct gyre_event event;
    struct queued_event *next;
};

struct local_rank {
    struct gyre_bootstrap base; /* first: what callers hold */
    struct local_shared *shared;
    const void *mine; /* this round's contribution */
    size_t n_bytes;
    bool has_come;     /* to this round */
    uint64_t n_rounds; /* finished by this rank */
    bool has_left;
    bool is_woken;
    struct queued_event *first;
    struct queued_event **last;
};

struct local_shared {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_ranks;
    int n_open;
    uint64_t timeout_ns;
    uint64_t round;
    int n_come;
    int n_reading; /* ranks that still copy this round's contributions */
    bool has_failed;
    char failure[GYRE_CAUSE_MAX_BYTES];
    struct local_rank ranks[];
};

static struct local_rank *rank_of(struct gyre_bootstrap *bootstrap)
{
    return (struct local_rank *)bootstrap;
}

/* Wait for a change, at most until the deadline (CLOCK_MONOTONIC); under the lock. */
static bool wait_change(struct local_shared *shared, uint64_t deadline_ns)
{
    const struct timespec until = {(time_t)(deadline_ns / 1000000000),
                                   (long)(deadline_ns % 1000000000)};
    return pthread_cond_timedwait(&shared->changed, &shared->lock, &until) != ETIMEDOUT;
}

static gyre_status missing_ranks(const struct local_shared *shared)
{
    char list[256] = "";
    for (int rank = 0; rank < shared->n_ranks; rank++) {
        const size_t used = strlen(list);
        if (!shared->ranks[rank].has_come && used < sizeof(list) - 16)
            snprintf(list + used, sizeof(list) - used, "%s%d", used > 0 ? ", " : "", rank);
    }
    return gyre_fail(GYRE_ERROR_TIMEOUT, "set-up: waited %" PRIu64 " s for ranks %s",
                     (uint64_t)(shared->timeout_ns / 1000000000), list);
}

/* Come to the round and wait until all ranks have; under the lock. */
static gyre_status meet(struct local_rank *rank, const void *mine, size_t n_bytes)
{
    struct local_shared *shared = rank->shared;
    const uint64_t deadline_ns = gyre_now_ns() + shared->timeout_ns;
    while (shared->n_reading > 0 && rank->n_rounds == shared->round && !shared->has_failed)
        wait_change(shared, deadline_ns); /* others still read the round before */
    const uint64_t round = shared->round;
    rank->mine = mine;
    rank->n_bytes = n_bytes;
    rank->has_come = true;
    if (++shared->n_come == shared->n_ranks) {
        shared->round++;
        shared->n_reading = shared->n_ranks;
        pthread_cond_broadcast(&shared->changed);
    }
    while (shared->round == round && !shared->has_failed) {
        if (!wait_change(shared, deadline_ns) && shared->round == round)
            return missing_ranks(shared);
    }
    if (shared->has_failed)
        return gyre_fail(GYRE_ERROR_REMOTE, "%s", shared->failure);
    return GYRE_SUCCESS;
}

/* The last reader lets the next round begin; a rank's memory is in use until then. */
static void part(struct local_rank *rank)
{
    struct local_shared *shared = rank->shared;
    rank->n_rounds = shared->round;
    if (--shared->n_reading == 0) {
        shared->n_come = 0;
        for (int i = 0; i < shared->n_ranks; i++)
            shared->ranks[i].has_come = false;
        pthread_cond_broadcast(&shared->changed);
    }
    const uint64_t round = shared->round;
    while (shared->n_reading > 0 && shared->round == round && !shared->has_failed)
        pthread_cond_wait(&shared->changed, &shared->lock);
}

static gyre_status local_all_gather_v(struct gyre_bootstrap *bootstrap, const void *mine,
                                      size_t n_bytes, void **all_out, size_t *offsets_out)
{
    struct local_rank *rank = rank_of(bootstrap);
    struct local_shared *shared = rank->shared;
    pthread_mutex_lock(&shared->lock);
    gyre_status status = meet(rank, mine, n_bytes);
    if (status == GYRE_SUCCESS) {
        size_t total = 0;
        for (int i = 0; i < shared->n_ranks; i++) {
            offsets_out[i] = total;
            total += shared->ranks[i].n_bytes;
        }
        offsets_out[shared->n_ranks] = total;
        unsigned char *all = malloc(total > 0 ? total : 1);
        if (all == NULL)
            status = gyre_fail_errno(ENOMEM, "set-up: %zu bytes", total);
        for (int i = 0; i < shared->n_ranks && all != NULL; i++)
            if (shared->ranks[i].n_bytes > 0)
                memcpy(all + offsets_out[i], shared->ranks[i].mine, shared->ranks[i].n_bytes);
        *all_out = all;
        part(rank);
    }
    pthread_mutex_unlock(&shared->lock);
    return status;
}

static gyre_status local_all_gather(struct gyre_bootstrap *bootstrap, const void *mine,
                                    size_t n_bytes, void *all_out)
{
    void *all;
    size_t *offsets = malloc(((size_t)bootstrap->n_ranks + 1) * sizeof(*offsets));
    if (offsets == NULL)
        return gyre_fail_errno(ENOMEM, "set-up");
    gyre_status status = local_all_gather_v(bootstrap, mine, n_bytes, &all, offsets);
    if (status == GYRE_SUCCESS) {
        if (offsets[bootstrap->n_ranks] == n_bytes * (size_t)bootstrap->n_ranks)
            memcpy(all_out, all, offsets[bootstrap->n_ranks]);
        else
            status = gyre_fail(GYRE_ERROR_INTERNAL, "set-up: ranks exchange different sizes");
        free(all);
    }
    free(offsets);
    return status;
}

static void local_fail(struct gyre_bootstrap *bootstrap, const char *text)
{
    struct local_shared *shared = rank_of(bootstrap)->shared;
    pthread_mutex_lock(&shared->lock);
    if (!shared->has_failed)
        snprintf(shared->failure, sizeof(shared->failure), "%s", text);
    shared->has_failed = true;
    pthread_cond_broadcast(&shared->changed);
    pthread_mutex_unlock(&shared->lock);
}

/* Under the lock. */
static gyre_status push_event(struct local_rank *to, const struct gyre_event *event)
{
    struct queued_event *queued = malloc(sizeof(*queued));
    if (queued == NULL)
        return gyre_fail_errno(ENOMEM, "bootstrap event");
    queued->event = *event;
    queued->next = NULL;
    *to->last = queued;
    to->last = &queued->next;
    pthread_cond_broadcast(&to->shared->changed);
    return GYRE_SUCCESS;
}

/* To one rank, or to all others with -1. */
static gyre_status send_event(struct local_rank *from, int rank, const struct gyre_event *event)
{
    struct local_shared *shared = from->shared;
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&shared->lock);
    for (int i = 0; i < shared->n_ranks && status == GYRE_SUCCESS; i++)
        if (i != from->base.rank && (rank < 0 || rank == i) && !shared->ranks[i].has_left)
            status = push_event(&shared->ranks[i], event);
    pthread_mutex_unlock(&shared->lock);
    return status;
}

static gyre_status local_post(struct gyre_bootstrap *bootstrap, int rank, const void *message,
                              size_t n_bytes)
{
    if (n_bytes > GYRE_MESSAGE_MAX_BYTES)
        return gyre_fail(GYRE_ERROR_INTERNAL, "message of %zu bytes", n_bytes);
    struct gyre_event event = {
        .kind = GYRE_EVENT_MESSAGE, .rank = bootstrap->rank, .n_bytes = (uint32_t)n_bytes};
    memcpy(event.message, message, n_bytes);
    return send_event(rank_of(bootstrap), rank, &event);
}

static gyre_status local_poll(struct gyre_bootstrap *bootstrap, int timeout_ms,
                              struct gyre_event *event_out)
{
    struct local_rank *rank = rank_of(bootstrap);
    struct local_shared *shared = rank->shared;
    const uint64_t deadline_ns = gyre_now_ns() + (uint64_t)timeout_ms * 1000000;
    event_out->kind = GYRE_EVENT_NONE;
    pthread_mutex_lock(&shared->lock);
    while (rank->first == NULL && !rank->is_woken)
        if (!wait_change(shared, deadline_ns))
            break;
    rank->is_woken = false;
    if (rank->first != NULL) {
        struct queued_event *queued = rank->first;
        *event_out = queued->event;
        rank->first = queued->next;
        if (rank->first == NULL)
            rank->last = &rank->first;
        free(queued);
    }
    pthread_mutex_unlock(&shared->lock);
    return GYRE_SUCCESS;
}

static void local_wake(struct gyre_bootstrap *bootstrap)
{
    struct local_rank *rank = rank_of(bootstrap);
    pthread_mutex_lock(&rank->shared->lock);
    rank->is_woken = true;
    pthread_cond_broadcast(&rank->shared->changed);
    pthread_mutex_unlock(&rank->shared->lock);
}

static void local_leave(struct gyre_bootstrap *bootstrap)
{
    struct gyre_event event = {.kind = GYRE_EVENT_LEFT, .rank = bootstrap->rank};
    send_event(rank_of(bootstrap), -1, &event);
}

static void local_close(struct gyre_bootstrap *bootstrap)
{
    struct local_rank *rank = rank_of(bootstrap);
    struct local_shared *shared = rank->shared;
    pthread_mutex_lock(&shared->lock);
    rank->has_left = true;
    while (rank->first != NULL) {
        struct queued_event *queued = rank->first;
        rank->first = queued->next;
        free(queued);
    }
    rank->last = &rank->first;
    const bool is_last = --shared->n_open == 0;
    pthread_mutex_unlock(&shared->lock);
    if (!is_last)
        return;
    pthread_cond_destroy(&shared->changed);
    pthread_mutex_destroy(&shared->lock);
    free(shared);
}

static const struct gyre_bootstrap_ops local_ops = {
    .name = "local",
    .all_gather = local_all_gather,
    .all_gather_v = local_all_gather_v,
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
    GYRE_TRY(gyre_random_bytes(secret, sizeof(secret)));
    struct local_shared *shared =
        calloc(1, sizeof(*shared) + (size_t)n_ranks * sizeof(shared->ranks[0]));
    if (shared == NULL)
        return gyre_fail_errno(ENOMEM, "bootstrap of %d ranks", n_ranks);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&shared->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&shared->lock, NULL);
    shared->n_ranks = n_ranks;
    shared->n_open = n_ranks;
    shared->timeout_ns =
        (uint64_t)gyre_param_number(params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * 1000000000ULL;
    for (int i = 0; i < n_ranks; i++) {
        struct local_rank *rank = &shared->ranks[i];
        rank->base.ops = &local_ops;
        rank->base.rank = i;
        rank->base.n_ranks = n_ranks;
        memcpy(rank->base.secret, secret, sizeof(secret));
        rank->shared = shared;
        rank->last = &rank->first;
        bootstraps_out[i] = &rank->base;
    }
    return GYRE_SUCCESS;
}
