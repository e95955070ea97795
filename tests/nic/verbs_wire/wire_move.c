/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests: what is checked at both ends, how bytes travel, and what waits until it can.
 */
#include "tests/nic/verbs_wire/wire.h"

#include "core/base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* Whether a peer still lives is looked at this often, with three system calls. */
#define LOOK_PERIOD_NS 5000000ULL

/* ---- the other end -------------------------------------------------------------------------- */

struct wire_pair_entry *wire_peer_entry(const struct wire_pair *pair)
{
    const uint32_t index = pair->entry->dest_number & WIRE_INDEX_MASK;
    if (index >= WIRE_MAX_QUEUE_PAIRS || pair->entry->dest_number == 0)
        return NULL;
    struct wire_pair_entry *peer = &wire.file->pairs[index];
    return gyre_load_acquire_u32(&peer->number) == pair->entry->dest_number ? peer : NULL;
}

struct wire_region_entry *wire_peer_region(const struct wire_pair_entry *peer, uint32_t key)
{
    const uint32_t index = key & WIRE_INDEX_MASK;
    if (index >= WIRE_MAX_REGIONS || key == 0)
        return NULL;
    struct wire_region_entry *region = &wire.file->regions[index];
    if (wire_load(&region->key) != key ||
        gyre_load_acquire_u64(&region->owner) != gyre_load_acquire_u64(&peer->owner) ||
        region->pd != peer->pd)
        return NULL;
    return region;
}

/* Packets to a pair that is not connected to this one, or with another's numbers, are dropped. */
static bool is_connected(const struct wire_pair *pair, const struct wire_pair_entry *peer)
{
    const struct wire_pair_entry *entry = pair->entry;
    const uint32_t state = wire_load(&peer->state);
    return (state == IBV_QPS_RTR || state == IBV_QPS_RTS) &&
           peer->dest_number == pair->ibv.qp_num && peer->rq_psn == pair->sq_psn &&
           peer->path_mtu == entry->path_mtu &&
           memcmp(peer->local_gid.raw, entry->dest_gid.raw, 16) == 0 &&
           memcmp(peer->dest_gid.raw, entry->local_gid.raw, 16) == 0;
}

static bool is_peer_alive(struct wire_pair *pair, const struct wire_pair_entry *peer,
                          uint64_t now_ns)
{
    if (now_ns - pair->peer_alive_at_ns < LOOK_PERIOD_NS)
        return true;
    if (!wire_is_alive(gyre_load_acquire_u64(&peer->owner)))
        return false;
    pair->peer_alive_at_ns = now_ns;
    return true;
}

/* Between enter and leave the owner of the peer's memory does not let go of it. */
static bool enter(const struct wire_pair *pair, struct wire_pair_entry *peer)
{
    (void)wire_exchange(&peer->busy, (uint32_t)wire_pid_of(wire.owner));
    if (is_connected(pair, peer))
        return true;
    (void)wire_exchange(&peer->busy, 0);
    return false;
}

void wire_wait_left(struct wire_pair_entry *entry)
{
    uint32_t pid;
    /* One that died inside writes no more. A pair of this process sets the mark under the lock that
     * the caller holds, so such a mark was left by a former process of that number. */
    while ((pid = wire_load(&entry->busy)) != 0 && (pid_t)pid != wire_pid_of(wire.owner) &&
           wire_is_running((pid_t)pid))
        gyre_cpu_relax();
}

/* ---- moving --------------------------------------------------------------------------------- */

struct request {
    struct wire_pair *pair;
    struct wire_pair_entry *peer;
    const struct ibv_send_wr *wr;
    const struct wire_region_entry *to_region;
    bool has_imm;
    bool is_gpu; /* at either end */
    uint64_t n_bytes;
    enum ibv_wc_status status;
};

static enum wire_verdict refuse(struct request *request, enum ibv_wc_status status)
{
    request->status = status;
    return WIRE_FAILED;
}

/* Local elements lie in regions of this domain, the target in one of the peer's. */
static enum ibv_wc_status check(struct request *request)
{
    const struct ibv_send_wr *wr = request->wr;
    const unsigned access =
        wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    const struct wire_pair_entry *mine = request->pair->entry;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        request->n_bytes += sge->length;
        if ((wr->send_flags & IBV_SEND_INLINE) != 0)
            continue;
        const struct wire_region_entry *region =
            (sge->lkey & WIRE_LOCAL_KEY) != 0 ? wire_peer_region(mine, sge->lkey & ~WIRE_LOCAL_KEY)
                                              : NULL;
        if (region == NULL || !vm_range_allows(&region->range, sge->addr, sge->length, 0))
            return IBV_WC_LOC_PROT_ERR;
        request->is_gpu = request->is_gpu || region->is_gpu;
    }
    if (request->n_bytes > mine->max_msg_bytes || request->n_bytes > request->peer->max_msg_bytes)
        return IBV_WC_LOC_LEN_ERR;
    request->to_region = wire_peer_region(request->peer, wr->wr.rdma.rkey);
    if ((request->peer->access & access) == 0 || request->to_region == NULL ||
        !vm_range_allows(&request->to_region->range, wr->wr.rdma.remote_addr, request->n_bytes,
                         access))
        return IBV_WC_REM_ACCESS_ERR;
    request->is_gpu = request->is_gpu || request->to_region->is_gpu;
    return IBV_WC_SUCCESS;
}

static enum wire_verdict move_gpu(struct request *request)
{
    const struct ibv_send_wr *wr = request->wr;
    struct wire_gpu_copy copy = {.to = wr->wr.rdma.remote_addr, .to_region = request->to_region};
    for (int i = 0; i < wr->num_sge; i++) {
        copy.from = (const void *)(uintptr_t)wr->sg_list[i].addr;
        copy.n_bytes = wr->sg_list[i].length;
        if (!wire_gpu_move(request->pair->pd, &copy))
            return refuse(request, IBV_WC_LOC_QP_OP_ERR);
        copy.to += copy.n_bytes;
    }
    request->pair->context->device->stats.n_gpu++;
    return WIRE_SENT;
}

/* Into the peer's memory by the kernel. WIRE_NO_ROOM: not allowed here, or not into this memory (a
 * driver's mapping may be closed to it): go by the ring. */
static enum wire_verdict move_direct(struct request *request)
{
    const struct ibv_send_wr *wr = request->wr;
    const pid_t pid = wire_pid_of(gyre_load_acquire_u64(&request->peer->owner));
    unsigned char *to = (unsigned char *)(uintptr_t)wr->wr.rdma.remote_addr;
    for (int i = 0; i < wr->num_sge; i++) {
        unsigned char *from = (unsigned char *)(uintptr_t)wr->sg_list[i].addr;
        for (size_t done = 0; done < wr->sg_list[i].length;) {
            const struct iovec local = {from + done, wr->sg_list[i].length - done};
            const struct iovec remote = {to, local.iov_len};
            const ssize_t n = process_vm_writev(pid, &local, 1, &remote, 1, 0);
            if (n < 0 && (errno == EPERM || errno == ENOSYS)) {
                wire_say("process_vm_writev(%d): %s: payloads go through the ring", (int)pid,
                         strerror(errno));
                wire.is_direct = false;
                pthread_cond_signal(&wire_work);
                return WIRE_NO_ROOM;
            }
            if (n < 0 && errno == EFAULT)
                return WIRE_NO_ROOM;
            if (n < 0)
                return errno == ESRCH ? WIRE_NO_PEER : refuse(request, IBV_WC_REM_OP_ERR);
            done += (size_t)n;
            to += n;
        }
    }
    request->pair->context->device->stats.n_direct++;
    return WIRE_SENT;
}

/* Bytes [offset, offset + n) of the request's elements, at position `at` of the ring. */
static void gather(const struct request *request, uint64_t offset, uint64_t n, uint64_t at)
{
    const struct ibv_send_wr *wr = request->wr;
    for (int i = 0; i < wr->num_sge && n > 0; i++) {
        if (offset >= wr->sg_list[i].length) {
            offset -= wr->sg_list[i].length;
            continue;
        }
        uint64_t n_here = gyre_min_u64(n, wr->sg_list[i].length - offset);
        const unsigned char *from = (const unsigned char *)(uintptr_t)wr->sg_list[i].addr + offset;
        n -= n_here;
        offset = 0;
        while (n_here > 0) {
            const uint64_t n_now = gyre_min_u64(n_here, WIRE_RING_BYTES - at % WIRE_RING_BYTES);
            memcpy(request->peer->ring + at % WIRE_RING_BYTES, from, n_now);
            from += n_now;
            at += n_now;
            n_here -= n_now;
        }
    }
}

/* One message: n bytes of payload from n_moved on, the immediate value if it is the last. */
static enum wire_verdict put_message(const struct request *request, uint64_t n_bytes, bool is_last)
{
    struct wire_pair_entry *peer = request->peer;
    struct wire_pair *pair = request->pair;
    if (peer->n_messages - gyre_load_acquire_u64(&peer->n_taken) == WIRE_MESSAGES ||
        WIRE_RING_BYTES - (peer->bytes_put - gyre_load_acquire_u64(&peer->bytes_taken)) < n_bytes)
        return WIRE_NO_ROOM;
    gather(request, pair->n_moved, n_bytes, peer->bytes_put);
    struct wire_message *message = &peer->messages[peer->n_messages % WIRE_MESSAGES];
    message->address = request->wr->wr.rdma.remote_addr + pair->n_moved;
    message->n_bytes = (uint32_t)n_bytes;
    message->total_bytes = (uint32_t)request->n_bytes;
    message->imm = request->wr->imm_data;
    message->has_imm = is_last && request->has_imm;
    pair->n_moved += n_bytes;
    peer->bytes_put += n_bytes;
    peer->n_imms += message->has_imm;
    gyre_store_release_u64(&peer->n_messages, peer->n_messages + 1);
    if (message->has_imm)
        wire_notify(&wire.file->queues[peer->recv_queue]);
    return WIRE_SENT;
}

static enum wire_verdict move_by_ring(const struct request *request)
{
    do {
        const uint64_t left = request->n_bytes - request->pair->n_moved;
        const uint64_t n_bytes = gyre_min_u64(left, WIRE_PIECE_BYTES);
        const enum wire_verdict verdict = put_message(request, n_bytes, n_bytes == left);
        if (verdict != WIRE_SENT)
            return verdict;
    } while (request->pair->n_moved < request->n_bytes);
    request->pair->context->device->stats.n_ring++;
    return WIRE_SENT;
}

static enum wire_verdict move(struct request *request)
{
    struct wire_pair *pair = request->pair;
    struct wire_pair_entry *peer = request->peer;
    if (request->has_imm && gyre_load_acquire_u64(&peer->n_receives) == peer->n_imms)
        return WIRE_NO_RECEIVE;
    const enum ibv_wc_status status = check(request);
    if (status != IBV_WC_SUCCESS)
        return refuse(request, status);
    /* RDMA reads are used as fences only. Written bytes are in place as soon as a write completes,
     * and no program uses the bytes that a fence reads, so no bytes move. */
    if (request->wr->opcode == IBV_WR_RDMA_READ)
        return WIRE_SENT;
    if (!request->is_gpu && (request->n_bytes <= WIRE_SMALL_BYTES || !wire.is_direct))
        return move_by_ring(request);
    /* The immediate value needs a place in the ring: before the bytes move, so that they move
     * once. */
    if (peer->n_messages - gyre_load_acquire_u64(&peer->n_taken) == WIRE_MESSAGES)
        return WIRE_NO_ROOM;
    const enum wire_verdict verdict = request->is_gpu ? move_gpu(request) : move_direct(request);
    if (verdict == WIRE_NO_ROOM)
        return move_by_ring(request);
    if (verdict == WIRE_SENT && request->has_imm) {
        pair->n_moved = request->n_bytes;
        return put_message(request, 0, true);
    }
    return verdict;
}

/* ---- one request ---------------------------------------------------------------------------- */

/* @status_out: set when it failed. */
static enum wire_verdict try_send(struct wire_pair *pair, const struct ibv_send_wr *wr,
                                  uint64_t position, enum ibv_wc_status *status_out)
{
    struct wire_pair_entry *peer = wire_peer_entry(pair);
    if (peer == NULL || !is_peer_alive(pair, peer, wire_now_ns()) || !enter(pair, peer))
        return WIRE_NO_PEER;
    struct request request = {
        .pair = pair, .peer = peer, .wr = wr, .has_imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM};
    const enum wire_verdict verdict = move(&request);
    (void)wire_exchange(&peer->busy, 0);
    *status_out = request.status;
    if (verdict != WIRE_SENT)
        return verdict;
    pair->n_moved = 0;
    struct wire_stats *stats = &pair->context->device->stats;
    stats->n_writes += wr->opcode == IBV_WR_RDMA_WRITE;
    stats->n_imms += request.has_imm;
    stats->n_bytes += request.n_bytes;
    if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) {
        const struct wire_completion completion = {
            .wc = {.status = IBV_WC_SUCCESS, .opcode = IBV_WC_RDMA_WRITE, .wr_id = wr->wr_id},
            .retires = position};
        wire_complete(pair, false, &completion);
    }
    return verdict;
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void keep(struct wire_pair *pair, const struct ibv_send_wr *wr, uint64_t position)
{
    struct wire_waiting *waiting = calloc(1, sizeof(*waiting));
    size_t n_used = 0;
    waiting->wr = *wr;
    waiting->wr.sg_list = waiting->sges;
    waiting->wr.next = NULL;
    waiting->position = position;
    for (int i = 0; i < wr->num_sge; i++) {
        waiting->sges[i] = wr->sg_list[i];
        if ((wr->send_flags & IBV_SEND_INLINE) == 0)
            continue;
        memcpy(waiting->inlined + n_used, (const void *)(uintptr_t)wr->sg_list[i].addr,
               wr->sg_list[i].length);
        waiting->sges[i].addr = (uintptr_t)(waiting->inlined + n_used);
        n_used += wr->sg_list[i].length;
    }
    if (pair->waiting == NULL && wire.n_stalled++ == 0)
        pthread_cond_signal(&wire_work);
    *pair->waiting_end = waiting;
    pair->waiting_end = &waiting->next;
}

static void drop_first(struct wire_pair *pair)
{
    struct wire_waiting *first = pair->waiting;
    pair->waiting = first->next;
    if (pair->waiting == NULL) {
        pair->waiting_end = &pair->waiting;
        wire.n_stalled--;
    }
    pair->stalled_since_ns = 0;
    free(first);
}

void wire_drop_waiting(struct wire_pair *pair,
                       void (*each)(struct wire_pair *pair, const struct wire_waiting *waiting))
{
    while (pair->waiting != NULL) {
        if (each != NULL)
            each(pair, pair->waiting);
        drop_first(pair);
    }
    pair->n_moved = 0;
}

/* Since when it waits for this, and whether that is as long as the pair was told to wait. */
static bool is_over(struct wire_pair *pair, enum wire_verdict verdict)
{
    const uint64_t now_ns = wire_now_ns();
    if (pair->stalled_since_ns == 0 || pair->stalled_by != verdict) {
        pair->stalled_since_ns = now_ns;
        pair->stalled_by = verdict;
    }
    const uint64_t window_ns = verdict == WIRE_NO_PEER      ? pair->retry_window_ns
                               : verdict == WIRE_NO_RECEIVE ? pair->rnr_window_ns
                                                            : 0;
    return window_ns != 0 && now_ns - pair->stalled_since_ns >= window_ns;
}

void wire_send(struct wire_pair *pair, const struct ibv_send_wr *wr, uint64_t position)
{
    if (pair->waiting != NULL) {
        keep(pair, wr, position);
        return;
    }
    enum ibv_wc_status status;
    const enum wire_verdict verdict = try_send(pair, wr, position, &status);
    if (verdict == WIRE_FAILED)
        wire_fail(pair, wr, position, status);
    if (verdict == WIRE_SENT || verdict == WIRE_FAILED)
        return;
    keep(pair, wr, position);
    (void)is_over(pair, verdict);
}

/* A peer that died posts no receives either, and its death is the truer word. */
static bool is_gone(struct wire_pair *pair)
{
    const struct wire_pair_entry *peer = wire_peer_entry(pair);
    pair->peer_alive_at_ns = 0;
    return peer == NULL || !is_peer_alive(pair, peer, wire_now_ns());
}

void wire_go_on(struct wire_pair *pair)
{
    while (pair->waiting != NULL && pair->ibv.state == IBV_QPS_RTS) {
        const struct ibv_send_wr wr = pair->waiting->wr;
        const uint64_t position = pair->waiting->position;
        enum ibv_wc_status status;
        const enum wire_verdict verdict = try_send(pair, &wr, position, &status);
        if (verdict == WIRE_NO_PEER)
            status = IBV_WC_RETRY_EXC_ERR;
        else if (verdict == WIRE_NO_RECEIVE)
            status = IBV_WC_RNR_RETRY_EXC_ERR;
        const bool is_last_try =
            verdict == WIRE_FAILED || (verdict != WIRE_SENT && is_over(pair, verdict) &&
                                       !(verdict == WIRE_NO_RECEIVE && is_gone(pair)));
        if (verdict != WIRE_SENT && !is_last_try)
            return;
        drop_first(pair);
        if (is_last_try)
            wire_fail(pair, &wr, position, status);
    }
}
