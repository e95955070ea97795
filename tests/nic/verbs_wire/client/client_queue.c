/* SPDX-License-Identifier: Apache-2.0
 *
 * A channel is a datagram socket with an abstract name that every process of the job can work out.
 */
#include "tests/nic/verbs_wire/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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
            n += wire_count_completions(pair, side == 1);
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
            if (wire_has_news(pair))
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
        n_done += wire_take_sends(pair, n - n_done, wcs + n_done);
    }
    /* The failed request precedes the receives that it flushed. */
    for (struct wire_pair *pair = queue->pairs[1]; pair != NULL; pair = pair->next_of_queue[1])
        n_done += wire_flush_receives(pair, n - n_done, wcs + n_done);
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
