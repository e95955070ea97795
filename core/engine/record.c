/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <inttypes.h>
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
    char options[32] = "";
    if (record->options != 0)
        snprintf(options, sizeof(options), " with options %08x", record->options);
    snprintf(text_out, text_bytes, "%s(%" PRIu64 " B, %" PRIu64 " x %s%s%s%s%s%s, seq %" PRIu64 ")",
             name, record->count * gyre_dtype_bytes((gyre_dtype)record->dtype), record->count,
             gyre_dtype_names[record->dtype], traits->reduces && op[0] != ' ' ? " " : "", op, where,
             window, options, record->sequence);
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
    /* Multilinear hashing, as in plan_cache.c. */
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
           a->window_offset == b->window_offset && a->options == b->options;
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
    GYRE_LOCKED(&call_log->lock);
    if (record->coll != GYRE_COLL_SEND_RECV)
        record->sequence = ++call_log->n_collectives;
    const uint64_t index = call_log->n_posted++;
    call_log->records[index % GYRE_CALL_LOG_RECORDS] = *record;
    return index;
}

bool gyre_call_log_get(struct gyre_call_log *call_log, uint64_t index,
                       struct gyre_record *record_out)
{
    GYRE_LOCKED(&call_log->lock);
    const bool is_kept =
        index < call_log->n_posted && index + GYRE_CALL_LOG_RECORDS >= call_log->n_posted;
    if (is_kept)
        *record_out = call_log->records[index % GYRE_CALL_LOG_RECORDS];
    return is_kept;
}

bool gyre_call_log_find(struct gyre_call_log *call_log, int rank, const struct gyre_record *other,
                        int other_rank, struct gyre_record *record_out)
{
    bool found = false;
    GYRE_LOCKED(&call_log->lock);
    for (int i = 0; i < GYRE_CALL_LOG_RECORDS && !found; i++) {
        const struct gyre_record *mine = &call_log->records[i];
        if (mine->sequence == 0 || !gyre_record_same_place(mine, rank, other, other_rank))
            continue;
        *record_out = *mine;
        found = true;
    }
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
