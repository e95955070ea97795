/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a client is read by process_vm_readv and written by process_vm_writev, GPU memory by
 * CUDA copies. A copy into GPU memory is only started here; a short payload for host memory behind
 * such copies is held until they are finished. Where the kernel refuses, the client is marked as
 * closed, and its own helper thread carries its bytes: into `staged` of its queue pair before they
 * are sent, out of `ring` after they have arrived.
 */
#include "tests/nic/verbs_wire/nic/nic_delivery.h"

#include "tests/nic/verbs_wire/say.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* By Yama or a seccomp filter (EPERM, ENOSYS), or for a driver's mapping (EFAULT). From now on the
 * client carries its bytes. */
static enum nic_verdict refused(struct nic_delivery *delivery, const struct wire_pair_entry *pair,
                                const char *call)
{
    const int error = errno;
    struct wire_process_entry *process = nic_process_of(delivery, pair);
    if (error == ESRCH)
        return NIC_NO_PEER;
    if (error != EPERM && error != ENOSYS && error != EFAULT) {
        wire_say("%s(%d): %s", call, (int)wire_pid_of(process->owner), strerror(error));
        delivery->status = IBV_WC_REM_OP_ERR;
        return NIC_FAILED;
    }
    if (wire_exchange(&process->is_closed, 1) == 0) {
        wire_say("%s(%d): %s: its payloads go through the shared file, which is slower (%s)", call,
                 (int)wire_pid_of(process->owner), strerror(error),
                 error == EFAULT ? "a driver's memory" : "see kernel.yama.ptrace_scope, seccomp");
        wire_futex_wake(&process->is_closed);
    }
    return NIC_NO_ROOM;
}

static void note_ring(struct nic_delivery *delivery)
{
    if (delivery->request->way == WIRE_DIRECT)
        delivery->request->way = WIRE_BY_RING;
}

static enum nic_verdict fetch_staged(struct nic_delivery *delivery, unsigned char *to,
                                     uint64_t n_bytes)
{
    struct wire_pair_entry *mine = delivery->mine;
    uint64_t at = mine->bytes_fetched;
    if (gyre_load_acquire_u64(&mine->bytes_staged) - at < n_bytes)
        return NIC_NO_ROOM;
    for (uint64_t left = n_bytes; left > 0;) {
        const uint64_t here = WIRE_RING_BYTES - at % WIRE_RING_BYTES;
        const uint64_t n = left < here ? left : here;
        memcpy(to, mine->staged + at % WIRE_RING_BYTES, n);
        to += n;
        at += n;
        left -= n;
    }
    gyre_store_release_u64(&mine->bytes_fetched, at);
    note_ring(delivery);
    return NIC_DELIVERED;
}

struct part {
    const struct nic_segment *segment;
    uint64_t offset; /* in the segment */
    uint64_t n_bytes;
};

static bool is_gpu(const struct part *part)
{
    return part->segment->inlined == NULL && part->segment->region->is_gpu;
}

static enum nic_verdict move_process(struct nic_delivery *delivery, const struct part *part,
                                     unsigned char *buffer, bool is_write)
{
    const struct nic_segment *segment = part->segment;
    const pid_t pid = wire_pid_of(gyre_load_acquire_u64(&segment->pair->owner));
    for (uint64_t done = 0; done < part->n_bytes;) {
        const struct iovec local = {buffer + done, part->n_bytes - done};
        const struct iovec remote = {(void *)(uintptr_t)(segment->address + part->offset + done),
                                     local.iov_len};
        const ssize_t n = is_write ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
                                   : process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (n < 0)
            return refused(delivery, segment->pair,
                           is_write ? "process_vm_writev" : "process_vm_readv");
        done += (uint64_t)n;
    }
    return NIC_DELIVERED;
}

static enum nic_verdict read_part(struct nic_delivery *delivery, const struct part *part,
                                  unsigned char *to)
{
    const struct nic_segment *segment = part->segment;
    if (segment->inlined != NULL) {
        memcpy(to, segment->inlined + part->offset, part->n_bytes);
        return NIC_DELIVERED;
    }
    if (is_gpu(part))
        return nic_gpu_read(segment->region, segment->address + part->offset, to, part->n_bytes)
                   ? NIC_DELIVERED
                   : NIC_FAILED;
    if (nic_is_closed(delivery, segment->pair))
        return fetch_staged(delivery, to, part->n_bytes);
    return move_process(delivery, part, to, false);
}

/* For n bytes, their message, and the last one, besides what is held? */
static bool has_ring_room(const struct nic_delivery *delivery, uint64_t n_bytes)
{
    const struct wire_pair_entry *peer = delivery->peer;
    const uint64_t in_ring = peer->bytes_put - gyre_load_acquire_u64(&peer->bytes_taken);
    return nic_count_room(delivery) >= 2 &&
           WIRE_RING_BYTES - in_ring >= n_bytes + delivery->pair->copies.held_bytes;
}

static void put_payload(struct nic_delivery *delivery, const struct part *to,
                        const unsigned char *from)
{
    struct wire_pair_entry *peer = delivery->peer;
    for (uint64_t left = to->n_bytes; left > 0;) {
        const uint64_t here = WIRE_RING_BYTES - peer->bytes_put % WIRE_RING_BYTES;
        const uint64_t n = left < here ? left : here;
        memcpy(peer->ring + peer->bytes_put % WIRE_RING_BYTES, from, n);
        peer->bytes_put += n;
        from += n;
        left -= n;
    }
    nic_put_message(delivery, &(struct wire_message){.address = to->segment->address + to->offset,
                                                     .n_bytes = (uint32_t)to->n_bytes});
    note_ring(delivery);
}

/* Does host memory go through `staged` of the sender, or `ring` of the receiver? */
static bool is_by_ring(const struct nic_delivery *delivery, const struct part *part)
{
    return part->segment->inlined == NULL && !is_gpu(part) &&
           nic_is_closed(delivery, part->segment->pair);
}

struct nic_held {
    struct nic_held *next;
    const struct wire_request *request;
    struct nic_segment target; /* of the peer, whose mark is_entered stays */
    unsigned char bytes[];
};

/* Whole payloads only, so that each held request is a started one. The peer's ring must have room
 * even if the peer is not closed: it can be found closed when they are put in place. GPU memory is
 * not read ahead, since that takes a wait of its own. */
static bool can_hold(const struct nic_delivery *delivery, const struct part *from)
{
    return !is_gpu(from) && from->n_bytes == delivery->request->n_bytes &&
           has_ring_room(delivery, from->n_bytes);
}

static void hold(struct nic_delivery *delivery, const struct part *to, const unsigned char *from)
{
    struct nic_copies *copies = &delivery->pair->copies;
    struct nic_held *held = malloc(sizeof(*held) + to->n_bytes);
    if (held == NULL)
        abort();
    *held = (struct nic_held){.request = delivery->request, .target = *to->segment};
    held->target.address += to->offset;
    held->target.n_bytes = to->n_bytes;
    memcpy(held->bytes, from, to->n_bytes);
    if (copies->first_held == NULL)
        copies->first_held = held;
    else
        copies->last_held->next = held;
    copies->last_held = held;
    copies->n_held++;
    copies->held_bytes += to->n_bytes;
}

static void drop_first(struct nic_copies *copies)
{
    struct nic_held *held = copies->first_held;
    copies->first_held = held->next;
    free(held);
}

void nic_drop_held(struct nic_copies *copies)
{
    while (copies->first_held != NULL)
        drop_first(copies);
}

enum nic_verdict nic_put_held(struct nic_delivery *delivery)
{
    struct nic_copies *copies = &delivery->pair->copies;
    struct nic_held *held = copies->first_held;
    enum nic_verdict verdict = NIC_NO_ROOM;
    if (held == NULL || held->request != delivery->request)
        return NIC_DELIVERED;
    const struct part to = {&held->target, 0, held->target.n_bytes};
    if (!is_by_ring(delivery, &to))
        verdict = move_process(delivery, &to, held->bytes, true);
    if (verdict == NIC_NO_ROOM) { /* closed; can_hold has kept the room */
        put_payload(delivery, &to, held->bytes);
        verdict = NIC_DELIVERED;
    }
    drop_first(copies);
    return verdict;
}

/* Through the bounce buffer. */
static enum nic_verdict move_to_host(struct nic_delivery *delivery, const struct part *from,
                                     const struct part *to)
{
    unsigned char *bounce = delivery->nic->bounce;
    const bool is_behind = delivery->pair->copies.peer != NULL;
    const bool by_ring = is_by_ring(delivery, to);
    if (is_behind && !can_hold(delivery, from))
        return NIC_BEHIND_COPIES;
    if (by_ring && !has_ring_room(delivery, to->n_bytes))
        return nic_ask_peer(delivery, NIC_NO_ROOM);
    const enum nic_verdict verdict = read_part(delivery, from, bounce);
    if (verdict != NIC_DELIVERED)
        return verdict;
    if (is_behind)
        hold(delivery, to, bounce);
    else if (by_ring)
        put_payload(delivery, to, bounce);
    else
        return move_process(delivery, to, bounce, true);
    return NIC_DELIVERED;
}

/* A pair's copies under way are all on the stream of one GPU, the target, which does them in order.
 */
static enum nic_verdict start_to_gpu(struct nic_delivery *delivery, const struct part *from,
                                     const struct part *to)
{
    struct nic_copies *copies = &delivery->pair->copies;
    const uint64_t to_address = to->segment->address + to->offset;
    const int gpu = nic_gpu_of(to->segment->region);
    bool is_started = false;
    if (gpu < 0)
        return NIC_FAILED;
    if (copies->peer != NULL && copies->gpu != gpu)
        return NIC_BEHIND_COPIES;
    if (is_gpu(from)) {
        is_started = nic_gpu_start_copy(to->segment->region, to_address, from->segment->region,
                                        from->segment->address + from->offset, to->n_bytes);
    } else {
        unsigned char *buffer = nic_gpu_take_buffer(from->n_bytes);
        const enum nic_verdict verdict = read_part(delivery, from, buffer);
        if (verdict != NIC_DELIVERED)
            return verdict;
        is_started = nic_gpu_start_write(to->segment->region, to_address, buffer, to->n_bytes);
    }
    if (!is_started)
        return NIC_FAILED;
    copies->peer = delivery->peer;
    copies->gpu = gpu;
    return NIC_DELIVERED;
}

static struct part find(const struct nic_segments *segments, uint64_t position)
{
    const struct nic_segment *segment = segments->list;
    for (; position >= segment->n_bytes; segment++)
        position -= segment->n_bytes;
    return (struct part){segment, position, segment->n_bytes - position};
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

enum nic_verdict nic_move_piece(struct nic_delivery *delivery)
{
    uint64_t *bytes_moved = &delivery->pair->bytes_moved;
    struct part from = find(&delivery->from, *bytes_moved);
    struct part to = find(&delivery->to, *bytes_moved);
    uint64_t n =
        smaller(delivery->request->n_bytes - *bytes_moved, smaller(from.n_bytes, to.n_bytes));
    if (is_by_ring(delivery, &from) || is_by_ring(delivery, &to))
        n = smaller(n, WIRE_PIECE_BYTES);
    else if (!is_gpu(&from) || !is_gpu(&to))
        n = smaller(n, NIC_BOUNCE_BYTES);
    from.n_bytes = to.n_bytes = n;
    const enum nic_verdict verdict =
        is_gpu(&to) ? start_to_gpu(delivery, &from, &to) : move_to_host(delivery, &from, &to);
    if (verdict == NIC_DELIVERED)
        *bytes_moved += n;
    else if (verdict == NIC_FAILED && delivery->status == IBV_WC_SUCCESS)
        delivery->status = IBV_WC_LOC_QP_OP_ERR;
    return verdict;
}

enum nic_verdict nic_read_all(struct nic_delivery *delivery, unsigned char *bytes_out)
{
    enum nic_verdict verdict = NIC_DELIVERED;
    for (uint64_t i = 0; i < delivery->from.n && verdict == NIC_DELIVERED; i++) {
        const struct part part = {&delivery->from.list[i], 0, delivery->from.list[i].n_bytes};
        verdict = read_part(delivery, &part, bytes_out);
        bytes_out += part.n_bytes;
    }
    return verdict;
}

enum nic_verdict nic_write_all(struct nic_delivery *delivery, const unsigned char *bytes)
{
    const struct part part = {&delivery->to.list[0], 0, delivery->request->n_bytes};
    if (part.n_bytes == 0)
        return NIC_DELIVERED;
    if (is_gpu(&part))
        return nic_gpu_write(part.segment->region, part.segment->address, bytes, part.n_bytes)
                   ? NIC_DELIVERED
                   : NIC_FAILED;
    return move_process(delivery, &part, (unsigned char *)(uintptr_t)bytes, true);
}
