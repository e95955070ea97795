/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/call/batch.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdlib.h>

bool gyre_compares_calls(const gyre_comm *comm)
{
    return gyre_param_has(&comm->self.params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS);
}

gyre_status gyre_compare_call(gyre_comm *comm, const struct gyre_record *record)
{
    const size_t n = (size_t)comm->self.n_ranks;
    GYRE_FREED struct gyre_record *all = malloc(n * sizeof(*all));
    if (all == NULL)
        return gyre_comm_give_up(comm, gyre_fail_errno(ENOMEM, "GYRE_CHECK=calls"));
    gyre_comm_wait_ready(comm); /* a split of the same group also uses the bootstrap */
    gyre_status status = gyre_rank_gather(&comm->self, record, sizeof(*record), all);
    if (status != GYRE_SUCCESS && gyre_fault_is_raised(&comm->self.fault))
        return gyre_fault_status(&comm->self.fault); /* it says more than the gather */
    GYRE_TRY(status);
    for (int rank = 1; rank < comm->self.n_ranks; rank++) {
        if (gyre_record_fits(&all[0], &all[rank]) && all[0].sequence == all[rank].sequence)
            continue;
        char first[160];
        char other[160];
        status = gyre_fail(
            GYRE_ERROR_INVALID_USAGE,
            "calls do not fit: rank 0 (%s) called %s, rank %d (%s) called %s; no data "
            "was moved",
            comm->links.infos[0].host_name, gyre_record_text(&all[0], first, sizeof(first)), rank,
            comm->links.infos[rank].host_name, gyre_record_text(&all[rank], other, sizeof(other)));
        /* all ranks compare the same records */
        gyre_store_release_u32(&comm->self.fault.is_told, 1);
        gyre_fault_raise(&comm->self.fault, status, gyre_cause());
        return status;
    }
    return GYRE_SUCCESS;
}

struct gyre_comparer {
    gyre_comm *comm;
    struct gyre_item *const *items;
    size_t n_items;
    uint64_t n_before; /* of the communicator */
    size_t n_taken;    /* by the launching thread */
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    size_t n_compared;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static void *run_comparer(void *argument)
{
    struct gyre_comparer *comparer = argument;
    uint64_t sequence = comparer->n_before;
    gyre_status status = GYRE_SUCCESS;
    for (size_t i = 0; i < comparer->n_items && status == GYRE_SUCCESS; i++) {
        struct gyre_record record = gyre_batch_record(&comparer->items[i]->call);
        record.sequence = ++sequence;
        status = gyre_compare_call(comparer->comm, &record);
        pthread_mutex_lock(&comparer->lock);
        comparer->n_compared += status == GYRE_SUCCESS;
        comparer->status = status;
        if (status != GYRE_SUCCESS)
            snprintf(comparer->cause, sizeof(comparer->cause), "%s", gyre_cause());
        pthread_cond_signal(&comparer->changed);
        pthread_mutex_unlock(&comparer->lock);
    }
    return NULL;
}

gyre_status gyre_comparer_start(gyre_comm *comm, struct gyre_item *const *items, size_t n_items,
                                struct gyre_comparer **comparer_out)
{
    struct gyre_comparer *comparer = calloc(1, sizeof(*comparer));
    if (comparer == NULL)
        return gyre_comm_give_up(comm, gyre_fail_errno(ENOMEM, "GYRE_CHECK=calls"));
    comparer->comm = comm;
    comparer->items = items;
    comparer->n_items = n_items;
    pthread_mutex_lock(&comm->call_log.lock);
    comparer->n_before = comm->call_log.n_collectives;
    pthread_mutex_unlock(&comm->call_log.lock);
    pthread_mutex_init(&comparer->lock, NULL);
    pthread_cond_init(&comparer->changed, NULL);
    const gyre_status status =
        gyre_thread_start(&comparer->thread, 0, run_comparer, comparer, "comparing calls");
    if (status == GYRE_SUCCESS) {
        *comparer_out = comparer;
        return GYRE_SUCCESS;
    }
    pthread_cond_destroy(&comparer->changed);
    pthread_mutex_destroy(&comparer->lock);
    free(comparer);
    return gyre_comm_give_up(comm, status);
}

gyre_status gyre_comparer_take(struct gyre_comparer *comparer)
{
    GYRE_LOCKED(&comparer->lock);
    /* The comparer's all-gather has a deadline. */
    while (comparer->n_compared == comparer->n_taken && comparer->status == GYRE_SUCCESS)
        pthread_cond_wait(&comparer->changed, &comparer->lock);
    if (comparer->n_compared == comparer->n_taken) {
        gyre_set_cause(comparer->cause);
        return comparer->status;
    }
    comparer->n_taken++;
    return GYRE_SUCCESS;
}

void gyre_comparer_finish(struct gyre_comparer *comparer)
{
    if (comparer == NULL)
        return;
    pthread_join(comparer->thread, NULL);
    pthread_cond_destroy(&comparer->changed);
    pthread_mutex_destroy(&comparer->lock);
    free(comparer);
}
