/* SPDX-License-Identifier: Apache-2.0
 *
 * Each function is one round, repeated until rank 0's time is over, which all ranks learn from one
 * more all_reduce.
 */
#include "tests/faults/victim.h"

#include <string.h>
#include <time.h>

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
    VICTIM_TRY(own, "group_end", own->comm, victim_end_group(status));
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
