/* SPDX-License-Identifier: Apache-2.0
 *
 * The phases of a victim. Each is one round, repeated until rank 0's time is over, which all ranks
 * learn from one more all_reduce. Every element that arrives is compared with a formula.
 */
#include "tests/faults/victim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t next_random(struct victim_rank *own)
{
    own->random = own->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return own->random >> 33;
}

static int32_t value_of(int rank, uint64_t call, size_t i)
{
    return (int32_t)((i + call) % 1000 * (uint64_t)(rank + 1));
}

struct request {
    gyre_comm *comm;
    int rank; /* in comm */
    int n_ranks;
    int root;
    size_t n_elems;
    uint64_t call;
};

static void check(const struct victim_rank *own, const char *call, size_t i, int32_t got,
                  int32_t expected)
{
    if (got == expected)
        return;
    victim_say(own, "wrong %s element %zu is %d, not %d", call, i, got, expected);
    exit(3);
}

static gyre_status synchronize(const struct victim_rank *own, const char *call, gyre_comm *comm)
{
    VICTIM_TRY(own, call, comm, gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    return GYRE_SUCCESS;
}

static gyre_status all_reduce(struct victim_rank *own, const struct request *r)
{
    gyre_status status;
    const int factor = r->n_ranks * (r->n_ranks + 1) / 2 - 1; /* of rank 0's value, less one */
    VICTIM_TRY(own, "all_reduce", r->comm,
               gyre_all_reduce(own->in, own->out, r->n_elems, GYRE_INT32, GYRE_SUM, r->comm, NULL));
    if ((status = synchronize(own, "all_reduce", r->comm)) != GYRE_SUCCESS)
        return status;
    for (size_t i = 0; i < r->n_elems; i++)
        check(own, "all_reduce", i, own->out[i], value_of(factor, r->call, i));
    return GYRE_SUCCESS;
}

static gyre_status broadcast(struct victim_rank *own, const struct request *r)
{
    gyre_status status;
    VICTIM_TRY(own, "broadcast", r->comm,
               gyre_broadcast(own->in, own->out, r->n_elems, GYRE_INT32, r->root, r->comm, NULL));
    if ((status = synchronize(own, "broadcast", r->comm)) != GYRE_SUCCESS)
        return status;
    for (size_t i = 0; i < r->n_elems; i++)
        check(own, "broadcast", i, own->out[i], value_of(r->root, r->call, i));
    return GYRE_SUCCESS;
}

static gyre_status all_gather(struct victim_rank *own, const struct request *r)
{
    gyre_status status;
    VICTIM_TRY(own, "all_gather", r->comm,
               gyre_all_gather(own->in, own->out, r->n_elems, GYRE_INT32, r->comm, NULL));
    if ((status = synchronize(own, "all_gather", r->comm)) != GYRE_SUCCESS)
        return status;
    for (size_t i = 0; i < r->n_elems * (size_t)r->n_ranks; i++)
        check(own, "all_gather", i, own->out[i],
              value_of((int)(i / r->n_elems), r->call, i % r->n_elems));
    return GYRE_SUCCESS;
}

/* Or cancel it if a call in it failed with `of_calls`. */
static gyre_status end_group(gyre_status of_calls)
{
    if (of_calls == GYRE_SUCCESS)
        return gyre_group_end();
    gyre_group_cancel();
    return of_calls;
}

static gyre_status send_recv(struct victim_rank *own, const struct request *r)
{
    gyre_status status;
    const int to = (r->rank + 1) % r->n_ranks;
    const int from = (r->rank + r->n_ranks - 1) % r->n_ranks;
    VICTIM_TRY(own, "group_start", r->comm, gyre_group_start());
    status = gyre_send(own->in, r->n_elems, GYRE_INT32, to, r->comm, NULL);
    if (status == GYRE_SUCCESS)
        status = gyre_recv(own->out, r->n_elems, GYRE_INT32, from, r->comm, NULL);
    VICTIM_TRY(own, "send_recv", r->comm, end_group(status));
    if ((status = synchronize(own, "send_recv", r->comm)) != GYRE_SUCCESS)
        return status;
    for (size_t i = 0; i < r->n_elems; i++)
        check(own, "send_recv", i, own->out[i], value_of(from, r->call, i));
    return GYRE_SUCCESS;
}

gyre_status victim_call(struct victim_rank *own, gyre_comm *comm)
{
    static gyre_status (*const calls[])(struct victim_rank *, const struct request *) = {
        all_reduce, broadcast, all_gather, send_recv};
    struct request r = {.comm = comm, .call = own->n_calls++};
    r.n_elems = (size_t)1 << next_random(own) % 17;
    const uint64_t kind = next_random(own);
    const uint64_t root = next_random(own);
    VICTIM_TRY(own, "comm_count", comm, gyre_comm_count(comm, &r.n_ranks));
    VICTIM_TRY(own, "comm_rank", comm, gyre_comm_rank(comm, &r.rank));
    r.root = (int)(root % (uint64_t)r.n_ranks);
    for (size_t i = 0; i < r.n_elems; i++)
        own->in[i] = value_of(r.rank, r.call, i);
    return calls[kind % (sizeof(calls) / sizeof(calls[0]))](own, &r);
}

#define IDLE_ROUND_S 0.3

/* All ranks end after the same round. */
static gyre_status agree_on_end(struct victim_rank *own)
{
    const int32_t mine = own->rank == 0 && victim_now_s() > own->end_s;
    int32_t sum = 0;
    VICTIM_TRY(own, "all_reduce of the end", own->comm,
               gyre_all_reduce(&mine, &sum, 1, GYRE_INT32, GYRE_SUM, own->comm, NULL));
    VICTIM_TRY(own, "all_reduce of the end", own->comm,
               gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    own->is_done = sum > 0;
    return GYRE_SUCCESS;
}

static gyre_status close_second(struct victim_rank *own)
{
    gyre_comm *comm = own->second;
    own->second = NULL;
    if (comm != NULL)
        VICTIM_TRY(own, "destroy of the second", NULL, gyre_comm_destroy(comm));
    return GYRE_SUCCESS;
}

static gyre_status phase_data(struct victim_rank *own)
{
    gyre_status status = GYRE_SUCCESS;
    for (int i = 0; i < 8 && status == GYRE_SUCCESS; i++)
        status = victim_call(own, own->comm);
    return status == GYRE_SUCCESS ? agree_on_end(own) : status;
}

/* Two communicators in one group, on one stream. */
static gyre_status phase_group(struct victim_rank *own)
{
    const int32_t mine[2] = {own->rank + 1, 1};
    int32_t sums[2] = {0, 0};
    const int n = own->options->n_ranks;
    if (own->second == NULL)
        VICTIM_TRY(own, "split", own->comm,
                   gyre_comm_split(own->comm, 0, own->rank, &own->second, NULL));
    VICTIM_TRY(own, "group_start", own->comm, gyre_group_start());
    gyre_status status =
        gyre_all_reduce(&mine[0], &sums[0], 1, GYRE_INT32, GYRE_SUM, own->comm, NULL);
    if (status == GYRE_SUCCESS)
        status = gyre_all_reduce(&mine[1], &sums[1], 1, GYRE_INT32, GYRE_SUM, own->second, NULL);
    VICTIM_TRY(own, "group_end", own->comm, end_group(status));
    VICTIM_TRY(own, "group", own->comm, gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    if (sums[0] != n * (n + 1) / 2 || sums[1] != n)
        victim_say(own, "wrong group: %d and %d of %d ranks", sums[0], sums[1], n);
    return agree_on_end(own);
}

static gyre_status phase_split(struct victim_rank *own)
{
    const int color = (own->rank + (int)(own->n_calls % 2)) % 2;
    gyre_status status;
    VICTIM_TRY(own, "split", own->comm,
               gyre_comm_split(own->comm, color, own->rank, &own->second, NULL));
    if ((status = victim_call(own, own->second)) != GYRE_SUCCESS)
        return status;
    if ((status = close_second(own)) != GYRE_SUCCESS)
        return status;
    return agree_on_end(own);
}

/* Excludes no rank, so all start again over their regroup listeners. */
static gyre_status phase_shrink(struct victim_rank *own)
{
    gyre_status status;
    VICTIM_TRY(own, "shrink", own->comm,
               gyre_comm_shrink(own->comm, NULL, 0, GYRE_SHRINK_DEFAULT, &own->second, NULL));
    pthread_mutex_lock(&own->lock);
    gyre_comm *parent = own->comm;
    own->comm = own->second;
    own->second = NULL;
    pthread_mutex_unlock(&own->lock);
    VICTIM_TRY(own, "destroy of the parent", NULL, gyre_comm_destroy(parent));
    if ((status = victim_call(own, own->comm)) != GYRE_SUCCESS)
        return status;
    return agree_on_end(own);
}

/* Between processes windows of host memory are refused after all ranks were asked. */
static gyre_status phase_window(struct victim_rank *own)
{
    gyre_window window = 0;
    const double began_s = victim_now_s();
    const gyre_status status =
        gyre_window_register(own->comm, own->out, VICTIM_MAX_ELEMS * sizeof(int32_t), &window);
    if (status != GYRE_ERROR_UNSUPPORTED) {
        if (victim_ended(own, "window_register", own->comm, began_s, status) != GYRE_SUCCESS)
            return status;
        const gyre_status called = victim_call(own, own->comm);
        if (called != GYRE_SUCCESS)
            return called;
        VICTIM_TRY(own, "window_deregister", own->comm, gyre_window_deregister(own->comm, window));
    }
    return agree_on_end(own);
}

/* Looks at the communicator's health, as a framework's watchdog does. */
static gyre_status phase_idle(struct victim_rank *own)
{
    const struct timespec nap = {0, 10000000L};
    const double until_s = victim_now_s() + IDLE_ROUND_S;
    while (victim_now_s() < until_s) {
        gyre_status health = GYRE_SUCCESS;
        VICTIM_TRY(own, "async_error", own->comm, gyre_comm_async_error(own->comm, &health));
        VICTIM_TRY(own, "async_error", own->comm, health);
        nanosleep(&nap, NULL);
    }
    return agree_on_end(own);
}

static gyre_status phase_init(struct victim_rank *own)
{
    gyre_status status = victim_init(own);
    if (status == GYRE_SUCCESS)
        status = agree_on_end(own);
    return status == GYRE_SUCCESS ? victim_destroy(own) : status;
}

/* With work under way. */
static gyre_status phase_destroy(struct victim_rank *own)
{
    gyre_status status = victim_init(own);
    if (status == GYRE_SUCCESS)
        status = agree_on_end(own);
    if (status != GYRE_SUCCESS)
        return status;
    for (int i = 0; i < 4; i++)
        VICTIM_TRY(own, "all_reduce before destroy", own->comm,
                   gyre_all_reduce(own->in, own->out, VICTIM_MAX_ELEMS, GYRE_INT32, GYRE_SUM,
                                   own->comm, NULL));
    return victim_destroy(own);
}

victim_phase victim_find_phase(const char *name)
{
    static const struct {
        const char *name;
        victim_phase run;
    } phases[] = {
        {"data", phase_data},     {"group", phase_group},     {"split", phase_split},
        {"shrink", phase_shrink}, {"window", phase_window},   {"idle", phase_idle},
        {"init", phase_init},     {"destroy", phase_destroy},
    };
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++)
        if (strcmp(phases[i].name, name) == 0)
            return phases[i].run;
    return NULL;
}

bool victim_makes_comm(const char *phase)
{
    return strcmp(phase, "init") == 0 || strcmp(phase, "destroy") == 0;
}
