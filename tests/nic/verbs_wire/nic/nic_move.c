/* SPDX-License-Identifier: Apache-2.0
 *
 * How the bytes of a request travel: from a list of segments to another one. Memory of a client is
 * read by process_vm_readv and written by process_vm_writev, GPU memory by CUDA copies. Where the
 * kernel refuses that, the client is marked as closed, and its own helper thread carries its bytes:
 * into `staged` of its queue pair before they are sent, out of `ring` after they have arrived.
 */
#include "tests/nic/verbs_wire/nic/nic_delivery.h"

#include "tests/nic/verbs_wire/say.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* The kernel refused: by Yama or a seccomp filter (EPERM, ENOSYS), or since this is a driver's
 * mapping (EFAULT). From now on the client carries its bytes. */
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
    delivery->pair->is_by_ring = true;
    return NIC_DELIVERED;
}

static enum nic_verdict move_process(struct nic_delivery *delivery,
                                     const struct nic_segment *segment, uint64_t offset,
                                     uint64_t n_bytes, bool is_write)
{
    const pid_t pid = wire_pid_of(gyre_load_acquire_u64(&segment->pair->owner));
    for (uint64_t done = 0; done < n_bytes;) {
        const struct iovec local = {delivery->nic->bounce + done, n_bytes - done};
        const struct iovec remote = {(void *)(uintptr_t)(segment->address + offset + done),
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

/* Into the bounce buffer. */
static enum nic_verdict read_piece(struct nic_delivery *delivery, const struct nic_segment *segment,
                                   uint64_t offset, uint64_t n_bytes)
{
    unsigned char *bounce = delivery->nic->bounce;
    if (segment->inlined != NULL) {
        memcpy(bounce, segment->inlined + offset, n_bytes);
        return NIC_DELIVERED;
    }
    if (segment->region->is_gpu)
        return nic_gpu_read(segment->region, segment->address + offset, bounce, n_bytes)
                   ? NIC_DELIVERED
                   : NIC_FAILED;
    if (nic_is_closed(delivery, segment->pair))
        return fetch_staged(delivery, bounce, n_bytes);
    return move_process(delivery, segment, offset, n_bytes, false);
}

/* Is there room in the peer's ring for n bytes, their message, and the last one? */
static bool has_ring_room(const struct nic_delivery *delivery, uint64_t n_bytes)
{
    const struct wire_pair_entry *peer = delivery->peer;
    return nic_count_room(delivery) >= 2 &&
           WIRE_RING_BYTES - (peer->bytes_put - gyre_load_acquire_u64(&peer->bytes_taken)) >=
               n_bytes;
}

static void put_payload(const struct nic_delivery *delivery, uint64_t address, uint64_t n_bytes)
{
    struct wire_pair_entry *peer = delivery->peer;
    const unsigned char *from = delivery->nic->bounce;
    for (uint64_t left = n_bytes; left > 0;) {
        const uint64_t here = WIRE_RING_BYTES - peer->bytes_put % WIRE_RING_BYTES;
        const uint64_t n = left < here ? left : here;
        memcpy(peer->ring + peer->bytes_put % WIRE_RING_BYTES, from, n);
        peer->bytes_put += n;
        from += n;
        left -= n;
    }
    nic_put_message(delivery,
                    &(struct wire_message){.address = address, .n_bytes = (uint32_t)n_bytes});
    delivery->pair->is_by_ring = true;
}

/* Does this segment's payload go through the ring of the peer? */
static bool is_by_ring(const struct nic_delivery *delivery, const struct nic_segment *segment)
{
    return !segment->region->is_gpu && nic_is_closed(delivery, segment->pair);
}

/* Out of the bounce buffer. */
static enum nic_verdict write_piece(struct nic_delivery *delivery,
                                    const struct nic_segment *segment, uint64_t offset,
                                    uint64_t n_bytes)
{
    if (segment->region->is_gpu)
        return nic_gpu_write(segment->region, segment->address + offset, delivery->nic->bounce,
                             n_bytes)
                   ? NIC_DELIVERED
                   : NIC_FAILED;
    if (!is_by_ring(delivery, segment))
        return move_process(delivery, segment, offset, n_bytes, true);
    put_payload(delivery, segment->address + offset, n_bytes);
    return NIC_DELIVERED;
}

/* The segment that has this position of the list, and the offset in it. */
static const struct nic_segment *find(const struct nic_segments *segments, uint64_t position,
                                      uint64_t *offset_out)
{
    const struct nic_segment *segment = segments->list;
    for (; position >= segment->n_bytes; segment++)
        position -= segment->n_bytes;
    *offset_out = position;
    return segment;
}

enum nic_verdict nic_move_piece(struct nic_delivery *delivery)
{
    uint64_t from_at;
    uint64_t to_at;
    uint64_t n = delivery->request->n_bytes - delivery->pair->bytes_arrived;
    const struct nic_segment *from = find(&delivery->from, delivery->pair->bytes_arrived, &from_at);
    const struct nic_segment *to = find(&delivery->to, delivery->pair->bytes_arrived, &to_at);
    n = n < from->n_bytes - from_at ? n : from->n_bytes - from_at;
    n = n < to->n_bytes - to_at ? n : to->n_bytes - to_at;
    enum nic_verdict verdict = NIC_DELIVERED;
    if (from->region != NULL && from->region->is_gpu && to->region->is_gpu) {
        if (!nic_gpu_copy(to->region, to->address + to_at, from->region, from->address + from_at,
                          n))
            verdict = NIC_FAILED;
    } else {
        const bool by_ring = is_by_ring(delivery, to);
        const bool is_staged = from->inlined == NULL && is_by_ring(delivery, from);
        const uint64_t most = by_ring || is_staged ? WIRE_PIECE_BYTES : NIC_BOUNCE_BYTES;
        n = n < most ? n : most;
        if (by_ring && !has_ring_room(delivery, n))
            return nic_ask_peer(delivery, NIC_NO_ROOM);
        verdict = read_piece(delivery, from, from_at, n);
        if (verdict == NIC_DELIVERED)
            verdict = write_piece(delivery, to, to_at, n);
    }
    if (verdict == NIC_DELIVERED)
        delivery->pair->bytes_arrived += n;
    else if (verdict == NIC_FAILED && delivery->status == IBV_WC_SUCCESS)
        delivery->status = IBV_WC_LOC_QP_OP_ERR;
    return verdict;
}
