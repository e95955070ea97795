/* SPDX-License-Identifier: Apache-2.0
 *
 * Posting requests, completions, and the payload of processes that are closed to NICs: such a
 * process copies its own payload, request by request, into `staged` of the queue pair. A channel is
 * a datagram socket with an abstract name that every process of the job can work out.
 */
#include "tests/nic/verbs_wire/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Host memory in a region. The NIC takes nothing else from `staged`: inline payload, GPU memory,
 * elements that it will refuse. */
static bool is_staged(const struct wire_pair_entry *entry, const struct wire_request *request,
                      const struct wire_sge *sge)
{
    if ((request->flags & IBV_SEND_INLINE) != 0 || request->opcode == IBV_WR_RDMA_READ)
        return false;
    const struct wire_region_entry *region = wire_local_region(wire.job.file, entry, sge, 0);
    return region != NULL && !region->is_gpu;
}

/* At most `room` bytes from `offset` on. Returns how many. */
static uint64_t put(struct wire_pair_entry *entry, const struct wire_sge *sge, uint64_t offset,
                    uint64_t room)
{
    const unsigned char *from = (const unsigned char *)(uintptr_t)sge->address + offset;
    uint64_t at = entry->bytes_staged;
    const uint64_t n_bytes = sge->n_bytes - offset < room ? sge->n_bytes - offset : room;
    for (uint64_t left = n_bytes; left > 0;) {
        const uint64_t here = WIRE_RING_BYTES - at % WIRE_RING_BYTES;
        const uint64_t n = left < here ? left : here;
        memcpy(entry->staged + at % WIRE_RING_BYTES, from, n);
        from += n;
        at += n;
        left -= n;
    }
    gyre_store_release_u64(&entry->bytes_staged, at);
    return n_bytes;
}

static bool stage_request(struct wire_pair *pair)
{
    struct wire_pair_entry *entry = pair->entry;
    const struct wire_request *request = &entry->requests[pair->n_staged % entry->max_send];
    uint64_t begin = 0; /* the element's position in the request */
    for (uint32_t i = 0; i < request->n_sges; i++) {
        const struct wire_sge *sge = &request->sges[i];
        if (!is_staged(entry, request, sge))
            continue;
        if (pair->bytes_staged < begin + sge->n_bytes) {
            const uint64_t room = WIRE_RING_BYTES - (entry->bytes_staged -
                                                     gyre_load_acquire_u64(&entry->bytes_fetched));
            pair->bytes_staged += put(entry, sge, pair->bytes_staged - begin, room);
        }
        begin += sge->n_bytes;
        if (pair->bytes_staged < begin)
            return false;
    }
    return true;
}

void wire_stage(struct wire_pair *pair)
{
    struct wire_pair_entry *entry = pair->entry;
    if (wire_load(&wire.process->is_closed) == 0 || wire_load(&entry->state) != IBV_QPS_RTS)
        return;
    /* The NIC found it closed at the first request that it has not read. */
    if (!pair->is_staging)
        pair->n_staged = gyre_load_acquire_u64(&entry->n_started);
    pair->is_staging = true;
    const uint64_t before = entry->bytes_staged;
    while (pair->n_staged < entry->n_posted && stage_request(pair)) {
        pair->n_staged++;
        pair->bytes_staged = 0;
    }
    if (entry->bytes_staged != before)
        wire_announce(wire.nic, (uint32_t)(entry - wire.job.file->pairs));
}

static bool is_known(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
           opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

/* False: more inline bytes than fit. */
static bool fill_request(const struct wire_pair *pair, const struct ibv_send_wr *wr,
                         struct wire_request *request)
{
    request->wr_id = wr->wr_id;
    request->remote_address = wr->wr.rdma.remote_addr;
    request->rkey = wr->wr.rdma.rkey;
    request->imm = wr->imm_data;
    request->opcode = wr->opcode;
    request->flags = wr->send_flags | (pair->is_signaling_all ? IBV_SEND_SIGNALED : 0);
    request->n_sges = (uint32_t)wr->num_sge;
    request->status = IBV_WC_SUCCESS;
    request->way = WIRE_DIRECT;
    request->n_bytes = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        request->sges[i] = (struct wire_sge){sge->addr, sge->length, sge->lkey};
        if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
            if (request->n_bytes + sge->length > VM_INLINE_BYTES)
                return false;
            memcpy(request->inlined + request->n_bytes, (const void *)(uintptr_t)sge->addr,
                   sge->length);
        }
        request->n_bytes += sge->length;
    }
    return true;
}

int wire_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    struct wire_pair_entry *entry = pair->entry;
    int error = 0;
    pthread_mutex_lock(&wire_lock);
    const enum ibv_qp_state state = wire_state_of(pair);
    uint64_t n_posted = entry->n_posted;
    for (; wr != NULL; wr = wr->next) {
        if (state != IBV_QPS_RTS && state != IBV_QPS_ERR)
            error = EINVAL;
        else if (wr->num_sge < 0 || wr->num_sge > WIRE_MAX_SGE || !is_known(wr->opcode))
            error = EOPNOTSUPP;
        else if (n_posted - pair->n_retired >= entry->max_send)
            error = ENOMEM;
        else if (!fill_request(pair, wr, &entry->requests[n_posted % entry->max_send]))
            error = EINVAL;
        if (error != 0) {
            *bad = wr;
            break;
        }
        n_posted++;
    }
    if (n_posted != entry->n_posted) {
        gyre_store_release_u64(&entry->n_posted, n_posted);
        wire_stage(pair);
        /* A pair in ERR completes what was posted at the next poll, until which somebody may sleep.
         */
        if (wire_state_of(pair) == IBV_QPS_ERR)
            wire_notify(&wire.job, entry->send_queue);
        else
            wire_announce(wire.nic, (uint32_t)(pair->entry - wire.job.file->pairs));
    }
    pthread_mutex_unlock(&wire_lock);
    return error;
}

/* Its NIC lacked a receive, or room in a ring. */
static void tell_peer(struct wire_pair *pair)
{
    struct wire_file *file = wire.job.file;
    const uint32_t peer = pair->entry->dest_number & WIRE_INDEX_MASK;
    if (wire_load(&pair->entry->peer_waits) == 0 || wire_exchange(&pair->entry->peer_waits, 0) == 0)
        return;
    if (peer < WIRE_MAX_QUEUE_PAIRS)
        wire_announce(&file->nics[file->processes[file->pairs[peer].process].nic], peer);
}

int wire_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct wire_pair *pair = (struct wire_pair *)(void *)ibv;
    struct wire_pair_entry *entry = pair->entry;
    int error = 0;
    pthread_mutex_lock(&wire_lock);
    uint64_t n_receives = entry->n_receives;
    for (; wr != NULL; wr = wr->next) {
        if (wire_state_of(pair) == IBV_QPS_RESET || wr->num_sge < 0 || wr->num_sge > WIRE_MAX_SGE)
            error = EINVAL;
        else if (n_receives - pair->recv_head >= entry->max_recv)
            error = ENOMEM;
        if (error != 0) {
            *bad = wr;
            break;
        }
        struct wire_receive *receive = &entry->receives[n_receives++ % entry->max_recv];
        receive->wr_id = wr->wr_id;
        receive->n_sges = (uint64_t)wr->num_sge;
        for (int i = 0; i < wr->num_sge; i++)
            receive->sges[i] =
                (struct wire_sge){wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey};
    }
    gyre_store_release_u64(&entry->n_receives, n_receives);
    tell_peer(pair);
    if (wire_state_of(pair) == IBV_QPS_ERR)
        wire_notify(&wire.job, entry->recv_queue);
    pthread_mutex_unlock(&wire_lock);
    return error;
}

/* May no NIC do anything more to this pair? Then the rest is flushed. */
static bool is_at_rest(struct wire_pair *pair)
{
    return wire_state_of(pair) == IBV_QPS_ERR && !wire_has_fault(pair->context, WIRE_NO_FLUSHES) &&
           wire_load(&pair->entry->is_executing) == 0 && wire_load(&pair->entry->is_entered) == 0;
}

static void store_payload(struct wire_pair_entry *entry, const struct wire_message *message)
{
    unsigned char *to = (unsigned char *)(uintptr_t)message->address;
    uint64_t left = message->n_bytes;
    while (left > 0) {
        const uint64_t at = entry->bytes_taken % WIRE_RING_BYTES;
        const uint64_t n = left < WIRE_RING_BYTES - at ? left : WIRE_RING_BYTES - at;
        memcpy(to, entry->ring + at, n);
        to += n;
        left -= n;
        gyre_store_release_u64(&entry->bytes_taken, entry->bytes_taken + n);
    }
}

static struct ibv_wc describe_arrival(struct wire_pair *pair, const struct wire_message *message)
{
    const bool has_imm = message->kind != WIRE_SEND_PLAIN;
    return (struct ibv_wc){
        .wr_id = pair->entry->receives[pair->recv_head++ % pair->entry->max_recv].wr_id,
        .status = IBV_WC_SUCCESS,
        .opcode = message->kind == WIRE_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
        .byte_len = message->total_bytes,
        .imm_data = has_imm ? message->imm : 0,
        .wc_flags = has_imm ? IBV_WC_WITH_IMM : 0,
        .qp_num = pair->ibv.qp_num,
    };
}

int wire_take(struct wire_pair *pair, int n, struct ibv_wc *wcs)
{
    struct wire_pair_entry *entry = pair->entry;
    int n_done = 0;
    while (entry->n_taken != gyre_load_acquire_u64(&entry->n_messages)) {
        const struct wire_message *message = &entry->messages[entry->n_taken % WIRE_MESSAGES];
        if (message->kind != WIRE_PAYLOAD && n_done == n)
            return n_done;
        store_payload(entry, message);
        if (message->kind != WIRE_PAYLOAD)
            wcs[n_done++] = describe_arrival(pair, message);
        gyre_store_release_u64(&entry->n_taken, entry->n_taken + 1);
        tell_peer(pair);
    }
    return n_done;
}

/* In state ERR, at most n. */
static int flush_receives(struct wire_pair *pair, int n, struct ibv_wc *wcs)
{
    struct wire_pair_entry *entry = pair->entry;
    int n_done = 0;
    if (!is_at_rest(pair) || entry->n_taken != gyre_load_acquire_u64(&entry->n_messages))
        return 0;
    for (; n_done < n && pair->recv_head < entry->n_receives; n_done++)
        wcs[n_done] =
            (struct ibv_wc){.wr_id = entry->receives[pair->recv_head++ % entry->max_recv].wr_id,
                            .status = IBV_WC_WR_FLUSH_ERR,
                            .qp_num = pair->ibv.qp_num};
    return n_done;
}

/* A NIC that died leaves requests without an end. */
static void check_nic(struct wire_pair *pair)
{
    struct wire_pair_entry *entry = pair->entry;
    if (entry->n_posted == pair->n_polled || wire_is_nic_alive() ||
        wire_state_of(pair) != IBV_QPS_RTS)
        return;
    wire_say("the NIC process is gone");
    (void)wire_exchange(&entry->state, IBV_QPS_ERR);
    (void)wire_exchange(&entry->is_executing, 0);
    entry->requests[pair->n_polled % entry->max_send].status = IBV_WC_FATAL_ERR;
    gyre_store_release_u64(&entry->n_done, pair->n_polled + 1);
}

static enum ibv_wc_opcode opcode_of(uint32_t opcode)
{
    return opcode == IBV_WR_RDMA_READ                                ? IBV_WC_RDMA_READ
           : opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_SEND
                                                                     : IBV_WC_RDMA_WRITE;
}

static int take_sends(struct wire_pair *pair, int n, struct ibv_wc *wcs)
{
    struct wire_pair_entry *entry = pair->entry;
    const bool is_resting = is_at_rest(pair);
    const uint64_t n_posted = entry->n_posted;
    int n_done = 0;
    check_nic(pair);
    const uint64_t n_ended = gyre_load_acquire_u64(&entry->n_done);
    while (n_done < n && pair->n_polled < (is_resting ? n_posted : n_ended)) {
        const struct wire_request *request = &entry->requests[pair->n_polled % entry->max_send];
        const uint32_t status =
            pair->n_polled >= n_ended ? (uint32_t)IBV_WC_WR_FLUSH_ERR : request->status;
        pair->n_polled++;
        if (status == IBV_WC_SUCCESS && (request->flags & IBV_SEND_SIGNALED) == 0)
            continue;
        pair->n_retired = pair->n_polled;
        wcs[n_done++] = (struct ibv_wc){.wr_id = request->wr_id,
                                        .status = (enum ibv_wc_status)status,
                                        .opcode = opcode_of(request->opcode),
                                        .byte_len = (uint32_t)request->n_bytes,
                                        .vendor_err = status != IBV_WC_SUCCESS ? 0x52 : 0,
                                        .qp_num = pair->ibv.qp_num};
    }
    return n_done;
}

static bool pair_has_news(const struct wire_pair *pair)
{
    const struct wire_pair_entry *entry = pair->entry;
    return entry->n_taken != gyre_load_acquire_u64(&entry->n_messages) ||
           pair->n_polled != gyre_load_acquire_u64(&entry->n_done) ||
           gyre_load_acquire_u32(&entry->state) == IBV_QPS_ERR;
}

/* Not yet polled, of one side. */
static uint64_t count_completions(const struct wire_pair *pair, bool is_recv)
{
    const struct wire_pair_entry *entry = pair->entry;
    uint64_t n = 0;
    if (is_recv) {
        for (uint64_t i = entry->n_taken; i < gyre_load_acquire_u64(&entry->n_messages); i++)
            n += entry->messages[i % WIRE_MESSAGES].kind != WIRE_PAYLOAD;
        return n;
    }
    for (uint64_t i = pair->n_polled; i < gyre_load_acquire_u64(&entry->n_done); i++)
        n += (entry->requests[i % entry->max_send].flags & IBV_SEND_SIGNALED) != 0;
    return n;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct wire_channel *channel = calloc(1, sizeof(*channel));
    struct sockaddr_un address;
    pthread_mutex_lock(&wire_lock);
    channel->number = ++wire.n_channels;
    const socklen_t n_bytes = wire_channel_address(&wire.job, getpid(), channel->number, &address);
    pthread_mutex_unlock(&wire_lock);
    channel->ibv.context = context;
    channel->ibv.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (channel->ibv.fd < 0 ||
        bind(channel->ibv.fd, (const struct sockaddr *)&address, n_bytes) != 0) {
        const int error = errno;
        if (channel->ibv.fd >= 0)
            close(channel->ibv.fd);
        free(channel);
        errno = error;
        return NULL;
    }
    return &channel->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    close(channel->fd);
    free(channel);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cookie)
{
    uint32_t index;
    if (recv(channel->fd, &index, sizeof(index), 0) != (ssize_t)sizeof(index))
        return -1;
    pthread_mutex_lock(&wire_lock);
    struct wire_queue *queue = index < WIRE_MAX_QUEUES ? wire.queues[index] : NULL;
    pthread_mutex_unlock(&wire_lock);
    if (queue == NULL || queue->ibv.channel != channel)
        return -1;
    *cq = &queue->ibv;
    *cookie = queue->ibv.cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    (void)cq;
    (void)n;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int n, void *cookie,
                             struct ibv_comp_channel *channel, int vector)
{
    struct wire_file *file = wire.job.file;
    (void)vector;
    pthread_mutex_lock(&wire_lock);
    const int index = wire_claim(&wire.job, file->queues, sizeof(file->queues[0]), WIRE_MAX_QUEUES,
                                 &file->next_queue);
    struct wire_queue *queue = index >= 0 ? calloc(1, sizeof(*queue)) : NULL;
    if (queue != NULL) {
        queue->entry = &file->queues[index];
        queue->entry->channel =
            channel != NULL ? ((struct wire_channel *)(void *)channel)->number : 0;
        (void)wire_exchange(&queue->entry->is_armed, 0);
        queue->ibv.context = context;
        queue->ibv.cq_context = cookie;
        queue->ibv.channel = channel;
        queue->ibv.cqe = n;
        wire.queues[index] = queue;
    }
    pthread_mutex_unlock(&wire_lock);
    return queue != NULL ? &queue->ibv : NULL;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct wire_queue *queue = (struct wire_queue *)(void *)cq;
    pthread_mutex_lock(&wire_lock);
    const bool is_used = queue->pairs[0] != NULL || queue->pairs[1] != NULL;
    if (!is_used) {
        wire.queues[queue->entry - wire.job.file->queues] = NULL;
        gyre_store_release_u64(&queue->entry->owner, 0);
    }
    pthread_mutex_unlock(&wire_lock);
    if (is_used)
        return EBUSY;
    free(queue);
    return 0;
}

/* Programs that count have room for all that may complete. */
static void check_overrun(const struct wire_queue *queue)
{
    uint64_t n = 0;
    for (int side = 0; side < 2; side++)
        for (const struct wire_pair *pair = queue->pairs[side]; pair != NULL;
             pair = pair->next_of_queue[side])
            n += count_completions(pair, side == 1);
    if (n > (uint64_t)queue->ibv.cqe) {
        wire_say("completion queue of %d entries overrun by %llu completions", queue->ibv.cqe,
                 (unsigned long long)n);
        abort();
    }
}

static bool has_news(const struct wire_queue *queue)
{
    if (wire_load(&wire.process->is_closed) != 0 || !wire_is_nic_alive())
        return true;
    for (int side = 0; side < 2; side++)
        for (const struct wire_pair *pair = queue->pairs[side]; pair != NULL;
             pair = pair->next_of_queue[side])
            if (pair_has_news(pair))
                return true;
    return false;
}

static int poll_all(struct wire_queue *queue, int n, struct ibv_wc *wcs)
{
    int n_done = 0;
    check_overrun(queue);
    for (struct wire_pair *pair = queue->pairs[1]; pair != NULL; pair = pair->next_of_queue[1])
        n_done += wire_take(pair, n - n_done, wcs + n_done);
    for (struct wire_pair *pair = queue->pairs[0]; pair != NULL; pair = pair->next_of_queue[0]) {
        wire_stage(pair);
        n_done += take_sends(pair, n - n_done, wcs + n_done);
    }
    /* The failed request precedes the receives that it flushed. */
    for (struct wire_pair *pair = queue->pairs[1]; pair != NULL; pair = pair->next_of_queue[1])
        n_done += flush_receives(pair, n - n_done, wcs + n_done);
    for (int i = 0; i < n_done; i++)
        if (wcs[i].status != IBV_WC_SUCCESS)
            wire_print_lines();
    return n_done;
}

int wire_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs)
{
    struct wire_queue *queue = wire_queue_of(cq);
    pthread_mutex_lock(&wire_lock);
    const int n_done = has_news(queue) ? poll_all(queue, n, wcs) : 0;
    pthread_mutex_unlock(&wire_lock);
    return n_done;
}

int wire_req_notify_cq(struct ibv_cq *cq, int solicited)
{
    struct wire_queue *queue = (struct wire_queue *)(void *)cq;
    (void)solicited;
    /* A peer whose message came earlier sees no event due: the caller polls once more. */
    (void)wire_exchange(&queue->entry->is_armed, 1);
    return 0;
}
