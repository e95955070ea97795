/* SPDX-License-Identifier: Apache-2.0
 *
 * A request is posted, seen, sent (its port has a rate), arrived (its port has a latency; bytes
 * move here), answered (the same latency back; the request is complete). A request that is copied
 * into GPU memory, or held behind such copies, is started when it is due, and arrives when the
 * round has waited for the copies.
 */
#include "tests/nic/verbs_wire/nic/nic.h"

#include <stdlib.h>
#include <unistd.h>

#define SEND_PIECE_BYTES 65536 /* then a port's next queue pair has its turn */
#define RETRY_NS         500000ULL

static uint64_t *time_of(const struct nic_pair *pair, uint64_t index)
{
    return &pair->times_ns[index % pair->entry->max_send];
}

static struct wire_request *request_of(const struct nic_pair *pair, uint64_t index)
{
    return &pair->entry->requests[index % pair->entry->max_send];
}

static void begin(struct nic_pair *pair)
{
    struct wire_pair_entry *entry = pair->entry;
    free(pair->times_ns);
    *pair = (struct nic_pair){.entry = entry, .number = entry->number, .is_active = true};
    pair->times_ns = calloc((size_t)entry->max_send + 1, sizeof(*pair->times_ns));
    if (pair->times_ns == NULL)
        abort();
}

static bool see_posted(struct nic_pair *pair, uint64_t now_ns)
{
    const uint64_t n_posted = gyre_load_acquire_u64(&pair->entry->n_posted);
    const bool is_any = pair->n_seen < n_posted;
    for (; pair->n_seen < n_posted; pair->n_seen++)
        *time_of(pair, pair->n_seen) = now_ns;
    return is_any;
}

/* Of the first request that has not left. One that was seen while the port was busy leaves when the
 * port got free, even if this process comes to it later. */
static bool send_piece(struct nic *nic, struct nic_pair *pair, uint64_t now_ns)
{
    const struct wire_pair_entry *entry = pair->entry;
    const uint64_t bytes = request_of(pair, pair->n_sent)->n_bytes;
    uint64_t *time_ns = time_of(pair, pair->n_sent);
    const uint32_t mbit_per_s = nic_faults_of(nic, entry)->mbit_per_s;
    const uint64_t ps_per_byte = mbit_per_s != 0 ? 8000000 / mbit_per_s : entry->ps_per_byte;
    if (ps_per_byte != 0) {
        struct nic_port *port = &nic->ports[entry->device];
        const uint64_t seen_ps = (*time_ns - nic->began_ns) * 1000;
        const uint64_t left = bytes - pair->bytes_sent;
        const uint64_t piece = left < SEND_PIECE_BYTES ? left : SEND_PIECE_BYTES;
        if (port->free_ps > (now_ns - nic->began_ns) * 1000)
            return false;
        if (port->free_ps < seen_ps)
            port->free_ps = seen_ps;
        port->free_ps += piece * ps_per_byte;
        pair->bytes_sent += piece;
        if (piece < left)
            return true;
        *time_ns = nic->began_ns + port->free_ps / 1000;
    }
    *time_ns += entry->latency_ns;
    pair->bytes_sent = 0;
    pair->n_sent++;
    return true;
}

/* Requests up to here are complete. */
static void answer(struct nic *nic, struct nic_pair *pair, uint64_t n)
{
    bool is_signaled = false;
    for (; pair->n_answered < n; pair->n_answered++) {
        const struct wire_request *request = request_of(pair, pair->n_answered);
        is_signaled = is_signaled || (request->flags & IBV_SEND_SIGNALED) != 0 ||
                      request->status != IBV_WC_SUCCESS;
    }
    gyre_store_release_u64(&pair->entry->n_done, n);
    if (is_signaled)
        wire_notify(&nic->job, pair->entry->send_queue);
}

/* The owner flushes the rest when it polls. */
static void fail_unanswered(struct nic *nic, struct nic_pair *pair, enum ibv_wc_status status)
{
    uint32_t state = IBV_QPS_RTS;
    request_of(pair, pair->n_answered)->status = status;
    answer(nic, pair, pair->n_answered + 1);
    (void)__atomic_compare_exchange_n(&pair->entry->state, &state, IBV_QPS_ERR, false,
                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    wire_notify(&nic->job, pair->entry->send_queue);
    wire_notify(&nic->job, pair->entry->recv_queue);
}

/* Request n_arrived; those before it have succeeded. */
static void fail(struct nic *nic, struct nic_pair *pair, enum ibv_wc_status status)
{
    answer(nic, pair, pair->n_arrived++);
    pair->n_started = pair->n_arrived;
    fail_unanswered(nic, pair, status);
}

/* A dead peer posts no receives, but its death says more. */
static bool is_gone(struct nic *nic, const struct nic_pair *pair)
{
    const struct wire_pair_entry *peer = nic_peer_of(nic, pair->entry);
    return peer == NULL || !wire_is_alive(gyre_load_acquire_u64(&peer->owner));
}

/* Gives a request up when it has waited for as long as the queue pair was told to wait. */
static void stall(struct nic *nic, struct nic_pair *pair, enum nic_verdict verdict, uint64_t now_ns)
{
    if (pair->stalled_since_ns == 0 || pair->stalled_by != verdict) {
        pair->stalled_since_ns = now_ns;
        pair->stalled_by = verdict;
    }
    const uint64_t window_ns = verdict == NIC_NO_PEER      ? pair->entry->retry_window_ns
                               : verdict == NIC_NO_RECEIVE ? pair->entry->rnr_window_ns
                                                           : 0;
    pair->retry_at_ns = now_ns + RETRY_NS;
    if (window_ns == 0 || now_ns - pair->stalled_since_ns < window_ns)
        return;
    if (verdict == NIC_NO_PEER)
        fail(nic, pair, IBV_WC_RETRY_EXC_ERR);
    else if (!is_gone(nic, pair))
        fail(nic, pair, IBV_WC_RNR_RETRY_EXC_ERR);
}

static void count_arrived(struct nic_pair *pair, uint64_t now_ns)
{
    uint64_t *time_ns = time_of(pair, pair->n_arrived++);
    /* Late because this process was: its answer comes as early as it can. */
    const bool was_stalled = pair->stalled_since_ns != 0;
    *time_ns = (was_stalled ? now_ns : *time_ns) + pair->entry->latency_ns;
    pair->stalled_since_ns = pair->retry_at_ns = 0;
}

/* Returns whether anything changed. */
static bool arrive(struct nic *nic, struct nic_pair *pair, uint64_t now_ns)
{
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    if (*time_of(pair, pair->n_started) > now_ns || pair->retry_at_ns > now_ns)
        return false;
    const struct wire_pair_entry *peer = nic_peer_of(nic, pair->entry);
    const enum nic_verdict verdict =
        peer != NULL && nic_loses(nic, pair->entry, peer)
            ? NIC_NO_PEER
            : nic_deliver(nic, pair, request_of(pair, pair->n_started), &status);
    if (verdict != NIC_DELIVERED && verdict != NIC_STARTED) {
        /* Request n_started is tried again behind copies under way; only a failure is final, since
         * what it did must not be done twice. */
        if (pair->copies.peer != NULL)
            pair->copies.status = status;
        else if (verdict == NIC_FAILED)
            fail(nic, pair, status);
        else
            stall(nic, pair, verdict, now_ns);
        return false;
    }
    pair->bytes_moved = 0;
    gyre_store_release_u64(&pair->entry->n_started, ++pair->n_started);
    if (verdict == NIC_DELIVERED)
        count_arrived(pair, now_ns);
    return true;
}

static bool is_answer_lost(struct nic *nic, const struct nic_pair *pair)
{
    const struct wire_pair_entry *peer = nic_peer_of(nic, pair->entry);
    return (nic_faults_of(nic, pair->entry)->kinds & WIRE_LOSE_ANSWERS) != 0 ||
           (peer != NULL && nic_loses(nic, peer, pair->entry));
}

/* Returns whether there are any. */
static bool answer_due(struct nic *nic, struct nic_pair *pair, uint64_t now_ns)
{
    uint64_t n = pair->n_answered;
    while (n < pair->n_arrived && *time_of(pair, n) <= now_ns)
        n++;
    if (n == pair->n_answered)
        return false;
    if (is_answer_lost(nic, pair)) {
        const uint64_t now = wire_now_ns(), window_ns = pair->entry->retry_window_ns;
        if (pair->unanswered_since_ns == 0)
            pair->unanswered_since_ns = now;
        if (window_ns != 0 && now - pair->unanswered_since_ns >= window_ns &&
            pair->copies.peer == NULL)
            fail_unanswered(nic, pair, IBV_WC_RETRY_EXC_ERR);
        return false;
    }
    pair->unanswered_since_ns = 0;
    answer(nic, pair, n);
    return true;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

static uint64_t next_of(const struct nic *nic, const struct nic_pair *pair)
{
    uint64_t next_ns = NIC_FOREVER;
    if (pair->n_sent < pair->n_seen)
        next_ns = nic->began_ns + nic->ports[pair->entry->device].free_ps / 1000;
    if (pair->n_arrived < pair->n_sent) {
        const uint64_t due_ns = *time_of(pair, pair->n_arrived);
        next_ns = earlier(next_ns, pair->retry_at_ns > due_ns ? pair->retry_at_ns : due_ns);
    }
    if (pair->n_answered < pair->n_arrived)
        next_ns = earlier(next_ns, *time_of(pair, pair->n_answered));
    return next_ns;
}

static bool go_on(struct nic *nic, struct nic_pair *pair)
{
    uint64_t now_ns = wire_now_ns();
    bool is_any = see_posted(pair, now_ns);
    while (pair->n_sent < pair->n_seen && send_piece(nic, pair, now_ns)) {
        is_any = true;
        if (pair->entry->ps_per_byte != 0 || nic_faults_of(nic, pair->entry)->mbit_per_s != 0)
            break; /* the port's other queue pairs have their turns */
    }
    while (pair->copies.status == IBV_WC_SUCCESS && pair->n_started < pair->n_sent &&
           arrive(nic, pair, now_ns)) {
        is_any = true;
        now_ns = wire_now_ns();
    }
    return answer_due(nic, pair, now_ns) || is_any;
}

/* An entry that is used again may belong to a program of another host. */
static bool is_of_this_host(const struct nic *nic, const struct wire_pair_entry *entry)
{
    const struct wire_file *file = nic->job.file;
    return &file->nics[file->processes[entry->process].nic] == nic->entry;
}

bool nic_pair_progress(struct nic *nic, struct nic_pair *pair, uint64_t *next_ns_out)
{
    struct wire_pair_entry *entry = pair->entry;
    const bool is_in_batch = pair->copies.peer != NULL;
    bool is_any = false;
    *next_ns_out = NIC_FOREVER;
    if (!is_of_this_host(nic, entry))
        return false;
    /* The owner changes the state, then waits for the end of this mark. */
    (void)wire_exchange(&entry->is_executing, (uint32_t)wire_pid_of(nic->job.owner));
    const uint32_t number = gyre_load_acquire_u32(&entry->number);
    if (number != 0 && number != pair->number && wire_load(&entry->state) == IBV_QPS_RTS)
        begin(pair);
    if (number != 0 && number == pair->number && wire_load(&entry->state) == IBV_QPS_RTS) {
        is_any = go_on(nic, pair);
        if (wire_load(&entry->state) == IBV_QPS_RTS)
            *next_ns_out = next_of(nic, pair);
    }
    if (pair->copies.peer != NULL) {
        if (!is_in_batch)
            nic->copying[nic->n_copying++] = pair;
        *next_ns_out = 0;
        return is_any || !is_in_batch;
    }
    (void)wire_exchange(&entry->is_executing, 0);
    return is_any;
}

/* The peer's process died while a request was held. This request and those behind it wait for the
 * peer until the retry time has ended. */
static void go_back(struct nic *nic, struct nic_pair *pair, uint64_t now_ns)
{
    pair->n_started = pair->n_arrived;
    pair->bytes_moved = 0;
    stall(nic, pair, NIC_NO_PEER, now_ns);
}

void nic_pair_finish(struct nic *nic, struct nic_pair *pair, bool has_failed)
{
    struct wire_pair_entry *peer = pair->copies.peer;
    enum nic_verdict verdict = has_failed ? NIC_FAILED : NIC_DELIVERED;
    enum ibv_wc_status status = has_failed ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS;
    const uint64_t now_ns = wire_now_ns();
    while (verdict == NIC_DELIVERED && pair->n_arrived < pair->n_started) {
        verdict = nic_deliver_copied(nic, pair, request_of(pair, pair->n_arrived), &status);
        if (verdict == NIC_DELIVERED)
            count_arrived(pair, now_ns);
    }
    if (verdict == NIC_DELIVERED)
        status = pair->copies.status;
    nic_drop_held(&pair->copies);
    pair->copies = (struct nic_copies){.peer = NULL};
    (void)wire_exchange(&peer->is_entered, 0);
    if (status != IBV_WC_SUCCESS)
        fail(nic, pair, status);
    else if (verdict == NIC_NO_PEER)
        go_back(nic, pair, now_ns);
    (void)answer_due(nic, pair, now_ns);
    (void)wire_exchange(&pair->entry->is_executing, 0);
}
