/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of calls, the call log that holds them, and their comparison between ranks.
 */
#include "core/engine/call/batch.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *gyre_record_text(const struct gyre_record *record, char *text_out, size_t text_bytes)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[record->coll];
    const bool is_p2p = record->coll == GYRE_COLL_SEND_RECV;
    const char *name = !is_p2p ? traits->name : record->is_send ? "send" : "recv";
    const char *op = !traits->reduces                   ? ""
                     : record->op >= GYRE_FIRST_USER_OP ? " premul_sum"
                                                        : gyre_op_names[record->op];
    char where[32] = "";
    if (is_p2p)
        snprintf(where, sizeof(where), " %s rank %d", record->is_send ? "to" : "from",
                 record->root);
    else if (traits->has_root)
        snprintf(where, sizeof(where), " root %d", record->root);
    char window[48] = "";
    if (record->window != 0)
        snprintf(window, sizeof(window), " at window %u + %" PRIu64, record->window,
                 record->window_offset);
    char terms[32] = "";
    if (record->terms != 0)
        snprintf(terms, sizeof(terms), " on terms %08x", record->terms);
    snprintf(text_out, text_bytes, "%s(%" PRIu64 " B, %" PRIu64 " x %s%s%s%s%s%s, seq %" PRIu64 ")",
             name, record->count * gyre_dtype_bytes((gyre_dtype)record->dtype), record->count,
             gyre_dtype_names[record->dtype], traits->reduces && op[0] != ' ' ? " " : "", op, where,
             window, terms, record->sequence);
    return text_out;
}

uint32_t gyre_record_signature(const struct gyre_record *record, int rank)
{
    struct gyre_record common = *record;
    if (record->coll == GYRE_COLL_SEND_RECV) { /* both ends must compute the same signature */
        const int sender = record->is_send ? rank : record->root;
        const int receiver = record->is_send ? record->root : rank;
        common.is_send = 0;
        common.root = sender * 65536 + receiver;
    }
    /* Multilinear hashing, as in plan_table.c: every call waits for this, and the products do not
     * wait for each other. The sum's top half depends on all bits of the record. */
    static const uint64_t factors[] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb,
                                       0xd6e8feb86659fd93, 0xff51afd7ed558ccd};
    uint64_t words[GYRE_ARRAY_LENGTH(factors)], hash = 0;
    _Static_assert(sizeof(words) == sizeof(common), "a factor for each word");
    memcpy(words, &common, sizeof(words));
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(words); i++)
        hash += words[i] * factors[i];
    return (uint32_t)(hash >> 32);
}

bool gyre_record_same_place(const struct gyre_record *a, int rank_a, const struct gyre_record *b,
                            int rank_b)
{
    const bool a_is_p2p = a->coll == GYRE_COLL_SEND_RECV;
    const bool b_is_p2p = b->coll == GYRE_COLL_SEND_RECV;
    if (a_is_p2p != b_is_p2p || a->sequence != b->sequence)
        return false;
    if (!a_is_p2p)
        return true;
    return a->is_send != b->is_send && a->root == rank_b && b->root == rank_a;
}

bool gyre_record_fits(const struct gyre_record *a, const struct gyre_record *b)
{
    return a->coll == b->coll && a->count == b->count && a->dtype == b->dtype && a->op == b->op &&
           (a->coll == GYRE_COLL_SEND_RECV || a->root == b->root) && a->window == b->window &&
           a->window_offset == b->window_offset && a->terms == b->terms;
}

void gyre_call_log_init(struct gyre_call_log *call_log)
{
    memset(call_log, 0, sizeof(*call_log));
    pthread_mutex_init(&call_log->lock, NULL);
}

void gyre_call_log_fini(struct gyre_call_log *call_log)
{
    pthread_mutex_destroy(&call_log->lock);
}

uint64_t gyre_call_log_post(struct gyre_call_log *call_log, struct gyre_record *record)
{
    pthread_mutex_lock(&call_log->lock);
    if (record->coll != GYRE_COLL_SEND_RECV)
        record->sequence = ++call_log->n_collectives;
    const uint64_t index = call_log->n_posted++;
    call_log->records[index % GYRE_CALL_LOG_RECORDS] = *record;
    pthread_mutex_unlock(&call_log->lock);
    return index;
}

bool gyre_call_log_get(struct gyre_call_log *call_log, uint64_t index,
                       struct gyre_record *record_out)
{
    pthread_mutex_lock(&call_log->lock);
    const bool is_kept =
        index < call_log->n_posted && index + GYRE_CALL_LOG_RECORDS >= call_log->n_posted;
    if (is_kept)
        *record_out = call_log->records[index % GYRE_CALL_LOG_RECORDS];
    pthread_mutex_unlock(&call_log->lock);
    return is_kept;
}

bool gyre_call_log_find(struct gyre_call_log *call_log, int rank, const struct gyre_record *other,
                        int other_rank, struct gyre_record *record_out)
{
    bool found = false;
    pthread_mutex_lock(&call_log->lock);
    for (int i = 0; i < GYRE_CALL_LOG_RECORDS && !found; i++) {
        const struct gyre_record *mine = &call_log->records[i];
        if (mine->sequence == 0 || !gyre_record_same_place(mine, rank, other, other_rank))
            continue;
        *record_out = *mine;
        found = true;
    }
    pthread_mutex_unlock(&call_log->lock);
    return found;
}

void gyre_call_log_launched(struct gyre_call_log *call_log, uint64_t work, uint64_t record)
{
    gyre_store_release_u64(&call_log->record_of_work[work % GYRE_CALL_LOG_WORKS], record);
}

uint64_t gyre_call_log_record_of(const struct gyre_call_log *call_log, uint64_t work)
{
    return gyre_load_acquire_u64(&call_log->record_of_work[work % GYRE_CALL_LOG_WORKS]);
}

/* ---- comparison ---------------------------------------------------------------------------- */

bool gyre_compares_calls(const gyre_comm *comm)
{
    return gyre_param_has(&comm->member.params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS);
}

gyre_status gyre_compare_call(gyre_comm *comm, const struct gyre_record *record)
{
    const size_t n = (size_t)comm->member.n_ranks;
    struct gyre_record *all = malloc(n * sizeof(*all));
    if (all == NULL)
        return gyre_comm_give_up(comm, gyre_fail_errno(ENOMEM, "GYRE_CHECK=calls"));
    gyre_comm_wait_ready(comm); /* a split in the same group also uses the bootstrap */
    gyre_status status = comm->member.bootstrap->ops->all_gather(comm->member.bootstrap, record,
                                                                 sizeof(*record), all);
    if (status != GYRE_SUCCESS && gyre_fault_is_raised(&comm->member.fault))
        status = gyre_fault_status(&comm->member.fault); /* it says more than the gather */
    for (int rank = 1; rank < comm->member.n_ranks && status == GYRE_SUCCESS; rank++) {
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
        gyre_store_release_u32(&comm->member.fault.is_told,
                               1); /* all ranks compare the same records */
        gyre_fault_raise(&comm->member.fault, status, gyre_cause());
    }
    free(all);
    return status;
}

/* ---- the collectives of a batch ------------------------------------------------------------ */

struct gyre_comparer {
    gyre_comm *comm;
    struct gyre_item *const *items;
    size_t n_items;
    uint64_t n_before; /* collectives of the communicator before the batch */
    size_t n_taken;    /* how many the launching thread has taken */
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    size_t n_compared;
    gyre_status status; /* other than SUCCESS: comparing has ended */
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static void report(struct gyre_comparer *comparer, gyre_status status)
{
    pthread_mutex_lock(&comparer->lock);
    comparer->n_compared += status == GYRE_SUCCESS;
    comparer->status = status;
    if (status != GYRE_SUCCESS)
        snprintf(comparer->cause, sizeof(comparer->cause), "%s", gyre_cause());
    pthread_cond_signal(&comparer->changed);
    pthread_mutex_unlock(&comparer->lock);
}

static void *run_comparer(void *argument)
{
    struct gyre_comparer *comparer = argument;
    uint64_t sequence = comparer->n_before;
    gyre_status status = GYRE_SUCCESS;
    for (size_t i = 0; i < comparer->n_items && status == GYRE_SUCCESS; i++) {
        struct gyre_record record = gyre_batch_record(&comparer->items[i]->call);
        record.sequence = ++sequence; /* the call log gives the same number at the launch */
        status = gyre_compare_call(comparer->comm, &record);
        report(comparer, status);
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
    pthread_mutex_lock(&comparer->lock);
    /* This wait ends, because the comparer's all-gather has a deadline. */
    while (comparer->n_compared == comparer->n_taken && comparer->status == GYRE_SUCCESS)
        pthread_cond_wait(&comparer->changed, &comparer->lock);
    const bool is_compared = comparer->n_compared > comparer->n_taken;
    const gyre_status status = is_compared ? GYRE_SUCCESS : comparer->status;
    pthread_mutex_unlock(&comparer->lock);
    comparer->n_taken += is_compared;
    if (!is_compared)
        gyre_set_cause(comparer->cause);
    return status;
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
