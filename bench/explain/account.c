/* SPDX-License-Identifier: Apache-2.0
 *
 * If one thread runs all workers of a rank, its steps are one sequence. Else each worker is a
 * sequence, and the result is their mean. Each moment of a sequence counts once.
 */
#include "bench/explain/trace_reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const bench_spent_names[BENCH_N_SPENT] = {
#define BENCH_SPENT_NAME(id, name, meaning) #name,
    BENCH_SPENT_TABLE(BENCH_SPENT_NAME)
#undef BENCH_SPENT_NAME
};

const char *const bench_spent_meanings[BENCH_N_SPENT] = {
#define BENCH_SPENT_MEANING(id, name, meaning) meaning,
    BENCH_SPENT_TABLE(BENCH_SPENT_MEANING)
#undef BENCH_SPENT_MEANING
};

struct sent_slot {
    uint64_t id;
    double sent_us;
};

struct sent_slots {
    struct sent_slot *slots; /* sorted by id */
    uint32_t n;
    uint32_t n_unpaired;
};

static int compare_sent(const void *left, const void *right)
{
    const struct sent_slot *a = left, *b = right;
    return a->id < b->id ? -1 : a->id > b->id;
}

static bool collect_sent(const struct bench_trace *trace, struct sent_slots *sent)
{
    sent->slots = malloc(((size_t)trace->n_ids + 1) * sizeof(*sent->slots));
    if (sent->slots == NULL)
        return false;
    for (uint32_t i = 0; i < trace->n_steps; i++)
        for (uint32_t k = 0; k < trace->steps[i].n_outs; k++)
            sent->slots[sent->n++] = (struct sent_slot){trace->ids[trace->steps[i].first_out + k],
                                                        trace->steps[i].end_us};
    qsort(sent->slots, sent->n, sizeof(*sent->slots), compare_sent);
    return true;
}

static double clamp(double value, double low, double high)
{
    return fmin(fmax(value, low), high);
}

/* Sorted by lane if workers have threads. */
static void add_steps(const struct bench_trace *trace, const struct bench_trace_step *steps,
                      uint32_t n_steps, struct sent_slots *sent, struct bench_account *account)
{
    const struct bench_trace_call *call = account->call;
    uint32_t n_lanes = n_steps > 0;
    for (uint32_t i = 1; i < n_steps; i++)
        n_lanes += steps[i].lane != steps[i - 1].lane;
    double now_us = call->begin_us;
    for (uint32_t i = 0; i < n_steps; i++) {
        const struct bench_trace_step *step = &steps[i];
        double sent_us = -INFINITY; /* INFINITY = unknown for some slot */
        for (uint32_t k = 0; k < step->n_ins; k++) {
            const struct sent_slot wanted = {.id = trace->ids[step->first_in + k]};
            const struct sent_slot *found =
                bsearch(&wanted, sent->slots, sent->n, sizeof(wanted), compare_sent);
            sent->n_unpaired += found == NULL;
            sent_us = fmax(sent_us, found == NULL ? INFINITY : found->sent_us);
        }
        const double weight = 1.0 / n_lanes;
        double *spent_us = account->spent_us;
        const double from_us = now_us;
        const double ready_us = fmax(step->ready_us, from_us);
        const double begin_us = clamp(step->begin_us, from_us, ready_us);
        const double data_us = clamp(step->data_us, begin_us, ready_us);
        const double peer_us = clamp(sent_us, begin_us, data_us);
        const double end_us = fmax(step->end_us, ready_us);
        spent_us[BENCH_SPENT_OTHER] += weight * (begin_us - from_us);
        spent_us[BENCH_SPENT_PEER] += weight * (peer_us - begin_us);
        spent_us[BENCH_SPENT_WIRE] += weight * (data_us - peer_us);
        spent_us[BENCH_SPENT_CREDIT] += weight * (ready_us - data_us);
        spent_us[step->reduces ? BENCH_SPENT_REDUCE : BENCH_SPENT_COPY] +=
            weight * (end_us - ready_us);
        now_us = end_us;
        if (i + 1 < n_steps && steps[i + 1].lane == steps[i].lane)
            continue;
        account->spent_us[BENCH_SPENT_OTHER] += fmax(call->end_us - now_us, 0) / n_lanes;
        now_us = call->begin_us;
    }
    if (n_steps == 0)
        account->spent_us[BENCH_SPENT_OTHER] += call->end_us - call->begin_us;
}

static int compare_steps(const void *left, const void *right)
{
    const struct bench_trace_step *a = left, *b = right;
    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    if (a->call != b->call)
        return a->call < b->call ? -1 : 1;
    if (a->lane != b->lane)
        return a->lane < b->lane ? -1 : 1;
    return a->ready_us < b->ready_us ? -1 : a->ready_us > b->ready_us;
}

static int compare_calls(const void *left, const void *right)
{
    const struct bench_trace_call *a = left, *b = right;
    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    if (a->call != b->call)
        return a->call < b->call ? -1 : 1;
    return (a->launch_us < 0) - (b->launch_us < 0); /* launches before runs */
}

static const struct bench_trace_rank *rank_of(const struct bench_trace *trace, int64_t pid)
{
    for (uint32_t i = 0; i < trace->n_ranks; i++)
        if (trace->ranks[i].pid == pid)
            return &trace->ranks[i];
    return NULL;
}

/* @before: on the same rank, or NULL. */
static void open_account(const struct bench_trace_call *call, const struct bench_trace_call *before,
                         int rank, struct bench_account *account)
{
    double start_us = call->launch_us < 0 ? call->begin_us : call->launch_us;
    if (before != NULL && before->pid == call->pid)
        start_us = fmax(start_us, before->end_us);
    start_us = fmin(start_us, call->begin_us);
    *account =
        (struct bench_account){.call = call, .rank = rank, .measured_us = call->end_us - start_us};
    account->spent_us[BENCH_SPENT_LAUNCH] = call->begin_us - start_us;
}

gyre_status bench_account_all(struct bench_trace *trace, struct bench_accounts *accounts_out)
{
    struct bench_accounts accounts = {0};
    struct sent_slots sent = {0};
    uint32_t n = 0;
    if (trace->n_calls > 0)
        qsort(trace->calls, trace->n_calls, sizeof(*trace->calls), compare_calls);
    for (uint32_t i = 0; i < trace->n_calls; i++) {
        struct bench_trace_call run = trace->calls[i];
        if (run.launch_us >= 0)
            continue;
        const struct bench_trace_call *before = i > 0 ? &trace->calls[i - 1] : NULL;
        if (before != NULL && before->pid == run.pid && before->call == run.call)
            run.launch_us = before->launch_us;
        trace->calls[n++] = run;
    }
    trace->n_calls = n;
    for (uint32_t i = 0; i < trace->n_steps; i++) {
        const struct bench_trace_rank *rank = rank_of(trace, trace->steps[i].pid);
        if (rank != NULL && rank->shares_a_thread)
            trace->steps[i].lane = 0;
    }
    if (trace->n_steps > 0)
        qsort(trace->steps, trace->n_steps, sizeof(*trace->steps), compare_steps);
    accounts.accounts = calloc((size_t)trace->n_calls + 1, sizeof(*accounts.accounts));
    if (accounts.accounts == NULL || !collect_sent(trace, &sent)) {
        free(accounts.accounts);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %u calls", trace->n_calls);
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < trace->n_calls; i++) {
        const struct bench_trace_call *call = &trace->calls[i];
        const struct bench_trace_rank *rank = rank_of(trace, call->pid);
        while (at < trace->n_steps &&
               (trace->steps[at].pid < call->pid ||
                (trace->steps[at].pid == call->pid && trace->steps[at].call < call->call)))
            at++;
        const uint32_t first = at;
        while (at < trace->n_steps && trace->steps[at].pid == call->pid &&
               trace->steps[at].call == call->call)
            at++;
        if (rank != NULL && call->begin_us < rank->complete_from_us) {
            accounts.n_left_out++;
            continue;
        }
        struct bench_account *account = &accounts.accounts[accounts.n++];
        open_account(call, i > 0 ? call - 1 : NULL, rank != NULL ? rank->rank : (int)call->pid,
                     account);
        add_steps(trace, trace->steps + first, at - first, &sent, account);
    }
    for (uint32_t i = 0; i < trace->n_ranks; i++)
        accounts.n_unrecorded += trace->ranks[i].n_left_out > 0 ? trace->ranks[i].n_left_out : 0;
    accounts.n_unpaired = sent.n_unpaired;
    free(sent.slots);
    *accounts_out = accounts;
    return GYRE_SUCCESS;
}
