/* SPDX-License-Identifier: Apache-2.0
 *
 * Completion queues and channels. A channel is a datagram socket with an abstract name that every
 * process of the job can work out, so that a peer's message can end a sleep here.
 */
#include "tests/nic/verbs_wire/wire.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- channels ------------------------------------------------------------------------------- */

static socklen_t channel_address(pid_t pid, uint32_t number, struct sockaddr_un *address_out)
{
    memset(address_out, 0, sizeof(*address_out));
    address_out->sun_family = AF_UNIX;
    const int n = snprintf(address_out->sun_path + 1, sizeof(address_out->sun_path) - 1,
                           "verbs_wire/%s/%d/%u", wire.job, (int)pid, number);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct wire_channel *channel = calloc(1, sizeof(*channel));
    struct sockaddr_un address;
    pthread_mutex_lock(&wire_lock);
    channel->number = ++wire.n_channels;
    const socklen_t n_bytes = channel_address(getpid(), channel->number, &address);
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

void wire_notify(struct wire_queue_entry *entry)
{
    struct sockaddr_un address;
    if (wire_load(&entry->is_armed) == 0 || wire_exchange(&entry->is_armed, 0) == 0)
        return;
    const uint32_t index = (uint32_t)(entry - wire.file->queues);
    const socklen_t n_bytes = channel_address(wire_pid_of(gyre_load_acquire_u64(&entry->owner)),
                                              entry->channel, &address);
    /* Fails only if the owner is gone, or has many events that it did not take: it is awake
     * then. */
    (void)sendto(wire.event_fd, &index, sizeof(index), MSG_DONTWAIT,
                 (const struct sockaddr *)&address, n_bytes);
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

/* ---- completion queues ---------------------------------------------------------------------- */

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int n, void *cookie,
                             struct ibv_comp_channel *channel, int vector)
{
    (void)vector;
    pthread_mutex_lock(&wire_lock);
    const int index = wire_claim(wire.file->queues, sizeof(wire.file->queues[0]), WIRE_MAX_QUEUES,
                                 &wire.file->next_queue);
    struct wire_queue *queue = index >= 0 ? calloc(1, sizeof(*queue)) : NULL;
    if (queue != NULL) {
        queue->entry = &wire.file->queues[index];
        queue->entry->channel =
            channel != NULL ? ((struct wire_channel *)(void *)channel)->number : 0;
        (void)wire_exchange(&queue->entry->is_armed, 0);
        queue->ibv.context = context;
        queue->ibv.cq_context = cookie;
        queue->ibv.channel = channel;
        queue->ibv.cqe = n;
        queue->completions = calloc((size_t)n, sizeof(*queue->completions));
        wire.queues[index] = queue;
    }
    pthread_mutex_unlock(&wire_lock);
    return queue != NULL ? &queue->ibv : NULL;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct wire_queue *queue = (struct wire_queue *)(void *)cq;
    pthread_mutex_lock(&wire_lock);
    const bool is_used = queue->pairs != NULL;
    if (!is_used) {
        wire.queues[queue->entry - wire.file->queues] = NULL;
        gyre_store_release_u64(&queue->entry->owner, 0);
    }
    pthread_mutex_unlock(&wire_lock);
    if (is_used)
        return EBUSY;
    free(queue->completions);
    free(queue);
    return 0;
}

void wire_complete(struct wire_pair *pair, bool is_recv, const struct wire_completion *completion)
{
    struct wire_queue *queue =
        (struct wire_queue *)(void *)(is_recv ? pair->ibv.recv_cq : pair->ibv.send_cq);
    if (queue->tail - queue->head == (uint64_t)queue->ibv.cqe) {
        wire_say("completion queue of %d entries overrun", queue->ibv.cqe);
        abort();
    }
    struct wire_completion *entry = &queue->completions[queue->tail++ % (uint64_t)queue->ibv.cqe];
    *entry = *completion;
    entry->pair = pair;
    entry->wc.qp_num = pair->ibv.qp_num;
    wire_notify(queue->entry);
}

int wire_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs)
{
    struct wire_queue *queue = (struct wire_queue *)(void *)cq;
    int n_done = 0;
    pthread_mutex_lock(&wire_lock);
    /* Completions of requests that arrived come before those of requests that were flushed
     * later. */
    for (struct wire_pair *pair = queue->pairs; pair != NULL; pair = pair->next_of_queue)
        n_done += wire_take(pair, n - n_done, wcs + n_done);
    for (; n_done < n && queue->head < queue->tail; n_done++) {
        const struct wire_completion *entry =
            &queue->completions[queue->head++ % (uint64_t)cq->cqe];
        wcs[n_done] = entry->wc;
        if (entry->retires != 0)
            entry->pair->n_retired = entry->retires;
    }
    pthread_mutex_unlock(&wire_lock);
    return n_done;
}

int wire_req_notify_cq(struct ibv_cq *cq, int solicited)
{
    struct wire_queue *queue = (struct wire_queue *)(void *)cq;
    (void)solicited;
    /* A peer that put its message before this sees no event due: the caller polls once more. */
    (void)wire_exchange(&queue->entry->is_armed, 1);
    return 0;
}
