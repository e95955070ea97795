/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's link to the hub. Any thread may send, under one lock. Reading follows the leader: of the
 * threads that wait for something (an event, a gathered result) one reads the socket for all and
 * sorts what comes; the others sleep until it has. So a gather works while another thread polls.
 */
#include "bootstrap/bootstrap_wire.h"

#include "core/base/log.h"
#include "core/base/util.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS        1000000000ULL
#define GRACE_NS         (2 * SECOND_NS) /* the hub's verdict names more than ours; let it come */
#define CONNECT_SLICE_NS (4 * SECOND_NS) /* refused for this long: nobody listens there */
#define POST_NS          (5 * SECOND_NS)
#define HANDSHAKE_TRIES  5
#define FRAME_MAX_BYTES  (1u << 30)

struct tcp {
    struct gyre_bootstrap base;
    int fd;
    int wake_fd;
    uint64_t timeout_ns;
    char hub_text[64];
    struct gyre_frame_joined joined; /* written before the link is handed out */
    pthread_mutex_t send_lock;
    bool is_send_broken; /* a frame was cut off; under send_lock */

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_reading; /* a thread has the reader's role; it alone touches the frame below */
    bool is_woken;
    bool is_joined;
    bool is_closed;
    bool hub_rank_left;
    gyre_status broken; /* collectives cannot succeed any more, because of: */
    char broken_text[GYRE_TEXT_MAX_BYTES];
    struct gyre_event_queue events;
    uint32_t sequence;
    void *result; /* payload of GATHERED */
    size_t n_result;

    struct gyre_frame frame;
    uint8_t *payload;
    size_t n_read;
};

static struct tcp *tcp_of(struct gyre_bootstrap *bootstrap)
{
    return (struct tcp *)bootstrap;
}

/* ---- sending ---------------------------------------------------------------------------- */

static gyre_status send_frame(struct tcp *tcp, const struct gyre_frame *frame, const void *payload,
                              uint64_t deadline_ns)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&tcp->send_lock);
    if (tcp->is_send_broken)
        status = gyre_fail(GYRE_ERROR_REMOTE, "the link to the rendezvous is broken");
    if (status == GYRE_SUCCESS)
        status = gyre_sock_send(tcp->fd, frame, sizeof(*frame), deadline_ns);
    if (status == GYRE_SUCCESS && frame->n_bytes > 0)
        status = gyre_sock_send(tcp->fd, payload, frame->n_bytes, deadline_ns);
    if (status != GYRE_SUCCESS)
        tcp->is_send_broken = true; /* what follows would be read as the rest of this frame */
    pthread_mutex_unlock(&tcp->send_lock);
    return status;
}

/* ---- receiving -------------------------------------------------------------------------- */

/* Both under the lock. */
static void set_broken(struct tcp *tcp, gyre_status status, const char *text)
{
    if (tcp->broken != GYRE_SUCCESS)
        return;
    tcp->broken = status;
    snprintf(tcp->broken_text, sizeof(tcp->broken_text), "%s", text);
}

static void on_lost(struct tcp *tcp, int rank, const char *text)
{
    char cause[GYRE_TEXT_MAX_BYTES];
    snprintf(cause, sizeof(cause), "rank %d is gone: %s", rank, text);
    set_broken(tcp, GYRE_ERROR_REMOTE, cause);
    gyre_events_push(&tcp->events, GYRE_EVENT_LOST, rank, text, strlen(text));
}

static void on_hub_closed(struct tcp *tcp, const char *how)
{
    char text[256];
    const struct gyre_frame_joined *joined = &tcp->joined;
    if (tcp->is_closed)
        return;
    tcp->is_closed = true;
    if (!tcp->is_joined) {
        snprintf(text, sizeof(text), "the rendezvous at %s %s before all ranks had joined",
                 tcp->hub_text, how);
        set_broken(tcp, GYRE_ERROR_REMOTE, text);
    } else if (!tcp->hub_rank_left) {
        snprintf(text, sizeof(text), "pid %d on %.64s, which carries the rendezvous, %s",
                 joined->hub_pid, joined->hub_host, how);
        on_lost(tcp, joined->hub_rank >= 0 ? joined->hub_rank : 0, text);
    } else {
        set_broken(tcp, GYRE_ERROR_REMOTE, "the rendezvous has ended");
    }
}

static void on_frame(struct tcp *tcp)
{
    const struct gyre_frame *frame = &tcp->frame;
    const char *text = (const char *)tcp->payload; /* ended by read_target() */
    char cause[GYRE_TEXT_MAX_BYTES];
    switch (frame->type) {
    case GYRE_FRAME_JOINED:
        if (frame->n_bytes == sizeof(tcp->joined)) {
            memcpy(&tcp->joined, tcp->payload, sizeof(tcp->joined));
            tcp->joined.hub_host[sizeof(tcp->joined.hub_host) - 1] = '\0';
            tcp->is_joined = true;
        }
        break;
    case GYRE_FRAME_GATHERED:
        if (frame->sequence == tcp->sequence && tcp->result == NULL) {
            tcp->result = tcp->payload;
            tcp->n_result = frame->n_bytes;
            tcp->payload = NULL;
        }
        break;
    case GYRE_FRAME_POST:
        gyre_events_push(&tcp->events, GYRE_EVENT_MESSAGE, frame->rank, tcp->payload,
                         frame->n_bytes);
        break;
    case GYRE_FRAME_FAIL:
        snprintf(cause, sizeof(cause), "rank %d gave up: %s", frame->rank, text);
        set_broken(tcp, GYRE_ERROR_REMOTE, cause);
        break;
    case GYRE_FRAME_LEFT:
        tcp->hub_rank_left |= frame->rank == tcp->joined.hub_rank;
        snprintf(cause, sizeof(cause), "rank %d has left the communicator", frame->rank);
        set_broken(tcp, GYRE_ERROR_REMOTE, cause);
        gyre_events_push(&tcp->events, GYRE_EVENT_LEFT, frame->rank, "", 0);
        break;
    case GYRE_FRAME_LOST:
        on_lost(tcp, frame->rank, text);
        break;
    case GYRE_FRAME_ERROR:
        set_broken(tcp,
                   frame->sequence > 0 && frame->sequence < GYRE_IN_PROGRESS
                       ? (gyre_status)frame->sequence
                       : GYRE_ERROR_REMOTE,
                   text);
        /* The hub closes after this; that is no loss of a rank. */
        tcp->is_closed = true;
        break;
    default:
        on_hub_closed(tcp, "sent a frame of unknown type");
        break;
    }
}

/* The reader's: where the next bytes go. False: the link is unusable. */
static bool read_target(struct tcp *tcp, uint8_t **target_out, size_t *n_wanted_out)
{
    if (tcp->n_read < sizeof(tcp->frame)) {
        *target_out = (uint8_t *)&tcp->frame + tcp->n_read;
        *n_wanted_out = sizeof(tcp->frame) - tcp->n_read;
        return true;
    }
    if (tcp->payload == NULL) {
        if (tcp->frame.n_bytes > FRAME_MAX_BYTES)
            return false;
        tcp->payload = malloc((size_t)tcp->frame.n_bytes + 1);
        if (tcp->payload == NULL)
            return false;
        tcp->payload[tcp->frame.n_bytes] = '\0';
    }
    *target_out = tcp->payload + (tcp->n_read - sizeof(tcp->frame));
    *n_wanted_out = sizeof(tcp->frame) + tcp->frame.n_bytes - tcp->n_read;
    return true;
}

/* The reader's: take in what is there until it would block. */
static void read_some(struct tcp *tcp)
{
    for (;;) {
        uint8_t *target = NULL;
        size_t n_wanted = 0;
        const bool is_usable = read_target(tcp, &target, &n_wanted);
        const ssize_t n_got = is_usable && n_wanted > 0 ? recv(tcp->fd, target, n_wanted, 0) : 0;
        if (n_got < 0 && errno == EINTR)
            continue;
        if (n_got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        const char *how = n_got < 0 && errno == ETIMEDOUT
                              ? "stopped answering: its host or network is gone"
                              : "exited or closed its connection";
        pthread_mutex_lock(&tcp->lock);
        if (!is_usable)
            on_hub_closed(tcp, "sent a frame that is too large");
        else if (n_got <= 0 && n_wanted > 0)
            on_hub_closed(tcp, how);
        const bool is_closed = tcp->is_closed;
        if (!is_closed) {
            tcp->n_read += (size_t)n_got;
            if (tcp->n_read >= sizeof(tcp->frame) &&
                tcp->n_read == sizeof(tcp->frame) + tcp->frame.n_bytes && tcp->payload != NULL) {
                on_frame(tcp);
                free(tcp->payload);
                tcp->payload = NULL;
                tcp->n_read = 0;
            }
        }
        pthread_mutex_unlock(&tcp->lock);
        if (is_closed)
            return;
    }
}

static void wait_cond(struct tcp *tcp, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / SECOND_NS),
                                   .tv_nsec = (long)(deadline_ns % SECOND_NS)};
    pthread_cond_timedwait(&tcp->changed, &tcp->lock, &until);
}

/* With the lock held: read, or wait for the reader, until something may have changed. */
static void wait_change(struct tcp *tcp, uint64_t deadline_ns)
{
    if (tcp->is_reading || tcp->is_closed) {
        wait_cond(tcp, deadline_ns);
        return;
    }
    tcp->is_reading = true;
    pthread_mutex_unlock(&tcp->lock);
    const uint64_t now_ns = gyre_now_ns();
    const uint64_t left_ms =
        now_ns >= deadline_ns ? 0 : gyre_div_round_up(deadline_ns - now_ns, 1000000);
    struct pollfd entries[2] = {{.fd = tcp->fd, .events = POLLIN},
                                {.fd = tcp->wake_fd, .events = POLLIN}};
    uint64_t n_wakes = 0;
    const int n_ready = poll(entries, 2, (int)gyre_min_u64(left_ms, 1000));
    if (n_ready > 0 && entries[1].revents != 0 && read(tcp->wake_fd, &n_wakes, sizeof(n_wakes)) < 0)
        n_wakes = 0; /* another wake may follow; nothing is lost */
    if (n_ready > 0 && entries[0].revents != 0)
        read_some(tcp);
    const bool has_vanished = n_ready == 0 && gyre_wire_peer_vanished(tcp->fd);
    pthread_mutex_lock(&tcp->lock);
    if (has_vanished)
        on_hub_closed(tcp, "stopped answering: its host or network is gone");
    tcp->is_reading = false;
    pthread_cond_broadcast(&tcp->changed);
}

/* ---- the slots -------------------------------------------------------------------------- */

static gyre_status gather(struct tcp *tcp, const void *mine, size_t n_bytes, void **result_out)
{
    const uint64_t deadline_ns = gyre_now_ns() + tcp->timeout_ns + GRACE_NS;
    const size_t cap = gyre_gather_cap(tcp->base.n_ranks);
    if (n_bytes > cap)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "gather of %zu bytes a rank; at most %zu with %d ranks", n_bytes, cap,
                         tcp->base.n_ranks);
    const struct gyre_frame frame = {.type = GYRE_FRAME_GATHER,
                                     .rank = tcp->base.rank,
                                     .sequence = tcp->sequence,
                                     .n_bytes = (uint32_t)n_bytes};
    pthread_mutex_lock(&tcp->lock);
    gyre_status status = tcp->broken;
    pthread_mutex_unlock(&tcp->lock);
    if (status == GYRE_SUCCESS)
        status = send_frame(tcp, &frame, mine, deadline_ns);
    const bool is_sent = status == GYRE_SUCCESS;
    pthread_mutex_lock(&tcp->lock);
    /* Even when sending failed: the reason may be on its way to us. */
    while (tcp->result == NULL && tcp->broken == GYRE_SUCCESS && gyre_now_ns() < deadline_ns)
        wait_change(tcp, deadline_ns);
    if (tcp->result != NULL) {
        *result_out = tcp->result;
        tcp->result = NULL;
        tcp->sequence++;
        status = gyre_gathered_check(*result_out, tcp->n_result, tcp->base.n_ranks);
    } else if (tcp->broken != GYRE_SUCCESS) {
        status = gyre_fail(tcp->broken, "%s", tcp->broken_text);
    } else if (is_sent) {
        status =
            gyre_fail(GYRE_ERROR_TIMEOUT, "the rendezvous at %s does not answer", tcp->hub_text);
        set_broken(tcp, status, gyre_cause());
    }
    pthread_mutex_unlock(&tcp->lock);
    return status;
}

static gyre_status tcp_all_gather(struct gyre_bootstrap *bootstrap, const void *mine,
                                  size_t n_bytes, void *all_out)
{
    void *result = NULL;
    gyre_status status = GYRE_SUCCESS;
    const size_t cap = GYRE_GATHER_MAX_BYTES / (size_t)bootstrap->n_ranks;
    if (n_bytes > cap)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "all_gather of %zu bytes; at most %zu with %d ranks", n_bytes, cap,
                         bootstrap->n_ranks);
    status = gather(tcp_of(bootstrap), mine, n_bytes, &result);
    if (status == GYRE_SUCCESS)
        status = gyre_gathered_fixed(result, bootstrap->n_ranks, n_bytes, all_out);
    free(result);
    return status;
}

static gyre_status tcp_all_gather_v(struct gyre_bootstrap *bootstrap, const void *mine,
                                    size_t n_bytes, void **all_out, size_t *offsets_out)
{
    void *result = NULL;
    gyre_status status = gather(tcp_of(bootstrap), mine, n_bytes, &result);
    if (status == GYRE_SUCCESS)
        status = gyre_gathered_v(result, bootstrap->n_ranks, all_out, offsets_out);
    free(result);
    return status;
}

static void tcp_fail(struct gyre_bootstrap *bootstrap, const char *text)
{
    struct tcp *tcp = tcp_of(bootstrap);
    char before[GYRE_CAUSE_MAX_BYTES];
    const struct gyre_frame frame = {
        .type = GYRE_FRAME_FAIL,
        .rank = bootstrap->rank,
        .n_bytes = (uint32_t)gyre_min_u64(strlen(text), GYRE_TEXT_MAX_BYTES - 1)};
    /* Giving up is reported by whoever gives up; a broken link must not replace that cause. */
    snprintf(before, sizeof(before), "%s", gyre_cause());
    if (send_frame(tcp, &frame, text, gyre_now_ns() + POST_NS) != GYRE_SUCCESS)
        gyre_set_cause(before);
    pthread_mutex_lock(&tcp->lock);
    set_broken(tcp, GYRE_ERROR_INVALID_USAGE, "this rank gave up before");
    pthread_mutex_unlock(&tcp->lock);
}

static gyre_status tcp_post(struct gyre_bootstrap *bootstrap, int rank, const void *message,
                            size_t n_bytes)
{
    const struct gyre_frame frame = {
        .type = GYRE_FRAME_POST, .rank = rank, .n_bytes = (uint32_t)n_bytes};
    if (n_bytes > GYRE_MESSAGE_MAX_BYTES || rank < -1 || rank >= bootstrap->n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "post of %zu bytes to rank %d: at most %d bytes, ranks -1..%d", n_bytes,
                         rank, GYRE_MESSAGE_MAX_BYTES, bootstrap->n_ranks - 1);
    return send_frame(tcp_of(bootstrap), &frame, message, gyre_now_ns() + POST_NS);
}

static gyre_status tcp_poll(struct gyre_bootstrap *bootstrap, int timeout_ms,
                            struct gyre_event *event_out)
{
    struct tcp *tcp = tcp_of(bootstrap);
    const uint64_t deadline_ns =
        gyre_now_ns() + (timeout_ms > 0 ? (uint64_t)timeout_ms * 1000000U : 0U);
    memset(event_out, 0, sizeof(*event_out));
    pthread_mutex_lock(&tcp->lock);
    for (bool is_first = true;; is_first = false) {
        if (gyre_events_pop(&tcp->events, event_out) || tcp->is_woken ||
            (!is_first && gyre_now_ns() >= deadline_ns))
            break;
        wait_change(tcp, deadline_ns);
    }
    if (event_out->kind == GYRE_EVENT_NONE)
        tcp->is_woken = false;
    pthread_mutex_unlock(&tcp->lock);
    return GYRE_SUCCESS;
}

static void tcp_wake(struct gyre_bootstrap *bootstrap)
{
    struct tcp *tcp = tcp_of(bootstrap);
    const uint64_t one = 1;
    pthread_mutex_lock(&tcp->lock);
    tcp->is_woken = true;
    pthread_cond_broadcast(&tcp->changed);
    pthread_mutex_unlock(&tcp->lock);
    /* Fails only when the counter is full, and then the reader is awake. */
    if (write(tcp->wake_fd, &one, sizeof(one)) < 0)
        return;
}

static void tcp_leave(struct gyre_bootstrap *bootstrap)
{
    char before[GYRE_CAUSE_MAX_BYTES];
    const struct gyre_frame frame = {.type = GYRE_FRAME_LEAVE, .rank = bootstrap->rank};
    snprintf(before, sizeof(before), "%s", gyre_cause());
    /* Without a link there is nobody to say goodbye to. */
    if (send_frame(tcp_of(bootstrap), &frame, NULL, gyre_now_ns() + POST_NS) != GYRE_SUCCESS)
        gyre_set_cause(before);
}

static void tcp_close(struct gyre_bootstrap *bootstrap)
{
    struct tcp *tcp = tcp_of(bootstrap);
    if (tcp->fd >= 0)
        close(tcp->fd);
    if (tcp->wake_fd >= 0)
        close(tcp->wake_fd);
    gyre_events_clear(&tcp->events);
    free(tcp->payload);
    free(tcp->result);
    pthread_cond_destroy(&tcp->changed);
    pthread_mutex_destroy(&tcp->lock);
    pthread_mutex_destroy(&tcp->send_lock);
    explicit_bzero(tcp->base.secret, sizeof(tcp->base.secret));
    free(tcp);
}

static const struct gyre_bootstrap_ops tcp_ops = {
    .name = "tcp",
    .all_gather = tcp_all_gather,
    .all_gather_v = tcp_all_gather_v,
    .fail = tcp_fail,
    .post = tcp_post,
    .poll = tcp_poll,
    .wake = tcp_wake,
    .leave = tcp_leave,
    .close = tcp_close,
};

/* ---- opening ---------------------------------------------------------------------------- */

static gyre_status connect_hub(struct tcp *tcp, const struct gyre_id_layout *layout,
                               uint64_t deadline_ns)
{
    for (int try_number = 1;; try_number++) {
        const uint64_t slice_ns = gyre_min_u64(deadline_ns, gyre_now_ns() + CONNECT_SLICE_NS);
        gyre_status status = gyre_sock_connect(&layout->address, slice_ns, &tcp->fd);
        if (status == GYRE_ERROR_TIMEOUT && gyre_now_ns() < deadline_ns)
            continue; /* a busy listener drops connection requests */
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "init: rank %d cannot reach the rendezvous of %s",
                                     tcp->base.rank, tcp->hub_text);
        status = gyre_authenticate(tcp->fd, layout->secret, false, deadline_ns);
        if (status == GYRE_SUCCESS)
            return status;
        close(tcp->fd);
        tcp->fd = -1;
        /* Also a crowd of strangers can push a rank out; it just comes again. */
        if (status != GYRE_ERROR_REMOTE || try_number == HANDSHAKE_TRIES)
            return gyre_fail_context(
                status,
                "init: the rendezvous at %s does not take this unique id (made %lld s ago; "
                "is it another job's?)",
                tcp->hub_text, (long long)time(NULL) - (long long)layout->created_unix_s);
        poll(NULL, 0, 50 * try_number);
    }
}

static gyre_status join(struct tcp *tcp, uint64_t deadline_ns)
{
    struct gyre_frame_join who = {.wire_version = GYRE_WIRE_VERSION,
                                  .library_version = GYRE_VERSION,
                                  .n_ranks = tcp->base.n_ranks,
                                  .rank = tcp->base.rank,
                                  .pid = getpid(),
                                  .host_hash = gyre_host_hash(NULL)};
    const struct gyre_frame frame = {
        .type = GYRE_FRAME_JOIN, .rank = tcp->base.rank, .n_bytes = sizeof(who)};
    gyre_status status = GYRE_SUCCESS;
    gethostname(who.host, sizeof(who.host) - 1);
    GYRE_TRY(send_frame(tcp, &frame, &who, deadline_ns));
    pthread_mutex_lock(&tcp->lock);
    while (!tcp->is_joined && tcp->broken == GYRE_SUCCESS && gyre_now_ns() < deadline_ns)
        wait_change(tcp, deadline_ns);
    if (tcp->is_joined)
        status = GYRE_SUCCESS; /* a loss that came right behind is the first poll's */
    else if (tcp->broken != GYRE_SUCCESS)
        status = gyre_fail(tcp->broken, "%s", tcp->broken_text);
    else
        status = gyre_fail(GYRE_ERROR_TIMEOUT, "init: the rendezvous at %s does not answer",
                           tcp->hub_text);
    pthread_mutex_unlock(&tcp->lock);
    return status;
}

static gyre_status make_tcp(const struct gyre_id_layout *layout, int n_ranks, int rank,
                            struct tcp **tcp_out)
{
    pthread_condattr_t attributes;
    struct tcp *tcp = calloc(1, sizeof(*tcp));
    if (tcp == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "the link to the rendezvous");
    tcp->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (tcp->wake_fd < 0) {
        free(tcp);
        return gyre_fail_errno(errno, "eventfd");
    }
    tcp->base = (struct gyre_bootstrap){.ops = &tcp_ops, .rank = rank, .n_ranks = n_ranks};
    memcpy(tcp->base.secret, layout->secret, sizeof(tcp->base.secret));
    tcp->fd = -1;
    tcp->joined.hub_rank = -1;
    gyre_sock_to_text(&layout->address, tcp->hub_text, sizeof(tcp->hub_text));
    pthread_mutex_init(&tcp->send_lock, NULL);
    pthread_mutex_init(&tcp->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&tcp->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    *tcp_out = tcp;
    return GYRE_SUCCESS;
}

gyre_status gyre_bootstrap_tcp_open(const struct gyre_params *params, const gyre_unique_id *id,
                                    int n_ranks, int rank, struct gyre_bootstrap **bootstrap_out)
{
    struct gyre_id_layout layout;
    struct tcp *tcp = NULL;
    gyre_status status = GYRE_SUCCESS;
    if (n_ranks < 1 || n_ranks > GYRE_MAX_RANKS || rank < 0 || rank >= n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "rank %d of %d ranks is out of range", rank,
                         n_ranks);
    GYRE_TRY(gyre_id_read(id, &layout));
    GYRE_TRY(make_tcp(&layout, n_ranks, rank, &tcp));
    tcp->timeout_ns = (uint64_t)gyre_param_number(params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * SECOND_NS;
    const uint64_t deadline_ns = gyre_now_ns() + tcp->timeout_ns + GRACE_NS;
    GYRE_TRY_GOTO(status, connect_hub(tcp, &layout, deadline_ns), close_tcp);
    GYRE_TRY_GOTO(status, join(tcp, deadline_ns), close_tcp);
    *bootstrap_out = &tcp->base;
    return GYRE_SUCCESS;

close_tcp:
    tcp_close(&tcp->base);
    return status;
}
