/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap_wire.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_SLICE_NS (1 * GYRE_SECOND_NS)
#define HASTY_NS         (GYRE_SECOND_NS * 3 / 10) /* first round over several addresses */
#define WORD_NS          (2 * GYRE_SECOND_NS)      /* first word at one of several addresses */
#define PROOF_NS         (5 * GYRE_SECOND_NS)      /* the server's limit for a stranger */
#define HANDSHAKE_TRIES  5

struct attempts {
    int n_late;
    int n_refused;
    bool is_limited;
    gyre_status status;
    char texts[GYRE_TEXT_MAX_BYTES];
};

static gyre_status check_cancelled(const struct gyre_bootstrap *bootstrap)
{
    return gyre_bootstrap_is_cancelled(bootstrap)
               ? gyre_fail(GYRE_ERROR_ABORTED, "init was given up on rank %d", bootstrap->rank)
               : GYRE_SUCCESS;
}

static gyre_status try_address(struct gyre_tcp *tcp, const struct gyre_id_layout *layout,
                               const struct gyre_sock_address *address, uint64_t connect_ns,
                               uint64_t deadline_ns, struct attempts *attempts)
{
    const uint64_t try_ns = gyre_min_u64(deadline_ns, gyre_now_ns() + connect_ns);
    gyre_status status = gyre_sock_connect(address, try_ns, &tcp->fd);
    if (status == GYRE_SUCCESS) {
        /* A stopped server may be at the only address. */
        const uint64_t word_ns = gyre_min_u64(
            deadline_ns, tcp->n_addresses == 1 ? deadline_ns : gyre_now_ns() + WORD_NS);
        /* The server speaks first, because the kernel takes connections for a stopped process, too.
         */
        bool has_word = false;
        gyre_wire_watch_start(tcp->fd, &tcp->watch);
        while (status == GYRE_SUCCESS && !has_word) {
            status = gyre_wire_await(tcp->fd, &tcp->watch, word_ns, &has_word);
            if (status == GYRE_SUCCESS)
                GYRE_TRY(check_cancelled(&tcp->base));
        }
        if (status == GYRE_SUCCESS)
            status = gyre_authenticate(tcp->fd, layout->secret, false,
                                       gyre_min_u64(deadline_ns, gyre_now_ns() + PROOF_NS));
        if (status == GYRE_SUCCESS || status == GYRE_ERROR_ABORTED)
            return status;
        gyre_sock_close(tcp->fd);
        tcp->fd = -1;
        attempts->n_refused += status != GYRE_ERROR_TIMEOUT;
    }
    attempts->is_limited = gyre_cause_is_limit(status);
    attempts->n_late += status == GYRE_ERROR_TIMEOUT;
    attempts->status = status;
    gyre_text_append(attempts->texts, sizeof(attempts->texts), "%s%s",
                     attempts->texts[0] != '\0' ? "; " : "", gyre_cause());
    return status;
}

static gyre_status fail_attempts(const struct gyre_tcp *tcp, const struct gyre_id_layout *layout,
                                 const struct attempts *attempts)
{
    if (attempts->n_refused > 0 && !attempts->is_limited)
        return gyre_fail(attempts->n_late > 0 ? GYRE_ERROR_TIMEOUT : attempts->status,
                         "init: the rendezvous at %s does not take this unique id (made %lld s "
                         "ago; is it another job's?): %s",
                         tcp->server_text,
                         (long long)time(NULL) - (long long)layout->created_unix_s,
                         attempts->texts);
    if (attempts->n_late > 0 && !attempts->is_limited)
        return gyre_fail(GYRE_ERROR_TIMEOUT,
                         "init: rank %d: the rendezvous at %s does not answer: %s", tcp->base.rank,
                         tcp->server_text, attempts->texts);
    return gyre_fail(attempts->status, "init: rank %d cannot reach the rendezvous of %s: %s",
                     tcp->base.rank, tcp->server_text, attempts->texts);
}

/* All addresses in turn, with a short bound each that grows. */
static gyre_status connect_server(struct gyre_tcp *tcp, const struct gyre_id_layout *layout,
                                  uint64_t deadline_ns)
{
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
    gyre_status status = gyre_sock_list_targets(&layout->list, addresses, &tcp->n_addresses);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "init: rank %d cannot reach the rendezvous of %s",
                                 tcp->base.rank, tcp->server_text);
    bool was_answered = false;
    for (int round = 1, n_refusals = 0;; round++) {
        struct attempts attempts = {.status = GYRE_SUCCESS};
        const bool is_hasty = round == 1 && tcp->n_addresses > 1;
        /* A rendezvous listens before its id is made: all addresses refuse if it has ended. */
        const uint64_t connect_ns = is_hasty       ? HASTY_NS
                                    : was_answered ? CONNECT_SLICE_NS / (unsigned)tcp->n_addresses
                                                   : CONNECT_SLICE_NS;
        for (int i = 0; i < tcp->n_addresses; i++) {
            GYRE_TRY(check_cancelled(&tcp->base));
            status = try_address(tcp, layout, &addresses[i], connect_ns, deadline_ns, &attempts);
            if (status == GYRE_SUCCESS || status == GYRE_ERROR_ABORTED)
                return status;
            if (attempts.is_limited)
                return fail_attempts(tcp, layout, &attempts);
        }
        was_answered = attempts.n_late == 0;
        n_refusals += attempts.n_refused > 0;
        const bool may_go_on =
            attempts.n_refused > 0 ? n_refusals < HANDSHAKE_TRIES : attempts.n_late > 0 || is_hasty;
        if (!may_go_on || gyre_now_ns() >= deadline_ns)
            return fail_attempts(tcp, layout, &attempts);
        if (attempts.n_refused > 0)
            poll(NULL, 0, 50 * n_refusals);
    }
}

#define GRACE_NS   (2 * GYRE_SECOND_NS) /* the server's verdict names more */
#define GIVE_UP_NS (2 * GYRE_SECOND_NS)
#define RETRY_NS   (GYRE_SECOND_NS * 3 / 10)
#define POST_NS    (5 * GYRE_SECOND_NS)

static gyre_status gather(struct gyre_tcp *tcp, const void *mine, size_t n_bytes, void **result_out)
{
    const uint64_t deadline_ns = gyre_now_ns() + tcp->timeout_ns + GRACE_NS;
    GYRE_TRY(gyre_gather_check(tcp->base.n_ranks, n_bytes, false));
    const struct gyre_frame frame = {.type = GYRE_FRAME_GATHER,
                                     .rank = tcp->base.rank,
                                     .sequence = tcp->sequence,
                                     .n_bytes = (uint32_t)n_bytes};
    pthread_mutex_lock(&tcp->lock);
    gyre_status status = tcp->broken;
    pthread_mutex_unlock(&tcp->lock);
    if (status == GYRE_SUCCESS)
        status = gyre_tcp_send(tcp, &frame, mine, deadline_ns);
    const bool is_sent = status == GYRE_SUCCESS;
    GYRE_LOCKED(&tcp->lock);
    /* The reason may have arrived although a send failed. */
    while (tcp->result == NULL && tcp->broken == GYRE_SUCCESS && gyre_now_ns() < deadline_ns &&
           !gyre_bootstrap_is_cancelled(&tcp->base))
        gyre_tcp_wait(tcp, deadline_ns);
    if (tcp->result != NULL) {
        *result_out = tcp->result;
        tcp->result = NULL;
        tcp->sequence++;
        return gyre_gathered_check(*result_out, tcp->n_result, tcp->base.n_ranks);
    }
    if (tcp->broken != GYRE_SUCCESS)
        return gyre_fail(tcp->broken, "%s", tcp->broken_text);
    if (gyre_bootstrap_is_cancelled(&tcp->base))
        status = gyre_fail(GYRE_ERROR_ABORTED, "the all-gather was given up on this rank");
    else if (is_sent)
        status =
            gyre_fail(GYRE_ERROR_TIMEOUT, "the rendezvous at %s does not answer", tcp->server_text);
    else
        return status;
    gyre_tcp_set_broken(tcp, status, gyre_cause());
    return status;
}

static gyre_status tcp_all_gather(struct gyre_bootstrap *bootstrap, const void *mine,
                                  size_t n_bytes, void *all_out)
{
    void *result = NULL;
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(gyre_gather_check(bootstrap->n_ranks, n_bytes, true));
    status = gather((struct gyre_tcp *)bootstrap, mine, n_bytes, &result);
    if (status == GYRE_SUCCESS)
        status = gyre_gathered_fixed(result, bootstrap->n_ranks, n_bytes, all_out);
    free(result);
    return status;
}

static gyre_status tcp_all_gather_v(struct gyre_bootstrap *bootstrap, const void *mine,
                                    size_t n_bytes, void **all_out, size_t *offsets_out)
{
    void *result = NULL;
    gyre_status status = gather((struct gyre_tcp *)bootstrap, mine, n_bytes, &result);
    if (status == GYRE_SUCCESS)
        status = gyre_gathered_v(result, bootstrap->n_ranks, all_out, offsets_out);
    free(result);
    return status;
}

static gyre_status tcp_check(struct gyre_bootstrap *bootstrap)
{
    struct gyre_tcp *tcp = (struct gyre_tcp *)bootstrap;
    GYRE_LOCKED(&tcp->lock);
    if (tcp->broken == GYRE_SUCCESS)
        gyre_tcp_wait(tcp, 0);
    if (tcp->broken != GYRE_SUCCESS)
        return gyre_fail(tcp->broken, "%s", tcp->broken_text);
    return check_cancelled(bootstrap);
}

/* Keeps the thread's cause. */
static void tell(struct gyre_tcp *tcp, enum gyre_frame_type type, const char *text)
{
    char before[GYRE_CAUSE_MAX_BYTES];
    const struct gyre_frame frame = {
        .type = type,
        .rank = tcp->base.rank,
        .n_bytes = (uint32_t)gyre_min_u64(strlen(text), GYRE_TEXT_MAX_BYTES - 1)};
    snprintf(before, sizeof(before), "%s", gyre_cause());
    if (gyre_tcp_send(tcp, &frame, text, gyre_now_ns() + POST_NS) != GYRE_SUCCESS)
        gyre_set_cause(before);
}

static void tcp_fail(struct gyre_bootstrap *bootstrap, const char *text)
{
    struct gyre_tcp *tcp = (struct gyre_tcp *)bootstrap;
    tell(tcp, GYRE_FRAME_FAIL, text);
    GYRE_LOCKED(&tcp->lock);
    gyre_tcp_set_broken(tcp, GYRE_ERROR_INVALID_USAGE, "this rank gave up before");
}

static gyre_status tcp_post(struct gyre_bootstrap *bootstrap, int rank, const void *message,
                            size_t n_bytes)
{
    const struct gyre_frame frame = {
        .type = GYRE_FRAME_POST, .rank = rank, .n_bytes = (uint32_t)n_bytes};
    GYRE_TRY(gyre_post_check(bootstrap->n_ranks, rank, n_bytes));
    return gyre_tcp_send((struct gyre_tcp *)bootstrap, &frame, message, gyre_now_ns() + POST_NS);
}

static gyre_status tcp_poll(struct gyre_bootstrap *bootstrap, int timeout_ms,
                            struct gyre_event *event_out)
{
    struct gyre_tcp *tcp = (struct gyre_tcp *)bootstrap;
    const uint64_t deadline_ns =
        gyre_now_ns() + (timeout_ms > 0 ? (uint64_t)timeout_ms * 1000000U : 0U);
    memset(event_out, 0, sizeof(*event_out));
    GYRE_LOCKED(&tcp->lock);
    for (bool is_first = true;; is_first = false) {
        if (gyre_events_pop(&tcp->events, event_out) || tcp->is_woken ||
            (!is_first && gyre_now_ns() >= deadline_ns))
            break;
        gyre_tcp_wait(tcp, deadline_ns);
    }
    if (event_out->kind != GYRE_EVENT_NONE)
        return GYRE_SUCCESS;
    tcp->is_woken = false;
    /* Without a link no later death can be reported. */
    return tcp->is_closed && !tcp->server_rank_left ? gyre_fail(tcp->broken, "%s", tcp->broken_text)
                                                    : GYRE_SUCCESS;
}

static void tcp_wake(struct gyre_bootstrap *bootstrap)
{
    struct gyre_tcp *tcp = (struct gyre_tcp *)bootstrap;
    const uint64_t one = 1;
    pthread_mutex_lock(&tcp->lock);
    tcp->is_woken = true;
    pthread_cond_broadcast(&tcp->changed);
    pthread_mutex_unlock(&tcp->lock);
    /* Fails only when the counter is full, which wakes the reader, too. */
    if (write(tcp->wake_fd, &one, sizeof(one)) < 0)
        return;
}

static void tcp_leave(struct gyre_bootstrap *bootstrap)
{
    tell((struct gyre_tcp *)bootstrap, GYRE_FRAME_LEAVE, "");
}

static void tcp_close(struct gyre_bootstrap *bootstrap)
{
    struct gyre_tcp *tcp = (struct gyre_tcp *)bootstrap;
    if (tcp->fd >= 0)
        gyre_sock_close(tcp->fd);
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
    .check = tcp_check,
    .fail = tcp_fail,
    .post = tcp_post,
    .poll = tcp_poll,
    .wake = tcp_wake,
    .leave = tcp_leave,
    .close = tcp_close,
};

static gyre_status join(struct gyre_tcp *tcp, uint64_t deadline_ns)
{
    struct gyre_frame_join who = {.wire_version = GYRE_WIRE_VERSION,
                                  .library_version = GYRE_VERSION,
                                  .n_ranks = tcp->base.n_ranks,
                                  .rank = tcp->base.rank,
                                  .pid = getpid()};
    const struct gyre_frame frame = {
        .type = GYRE_FRAME_JOIN, .rank = tcp->base.rank, .n_bytes = sizeof(who)};
    GYRE_TRY(gyre_host_hash(NULL, &who.host_hash));
    gethostname(who.host, sizeof(who.host) - 1);
    GYRE_TRY(gyre_tcp_send(tcp, &frame, &who, deadline_ns));
    GYRE_LOCKED(&tcp->lock);
    while (!tcp->is_joined && tcp->broken == GYRE_SUCCESS && gyre_now_ns() < deadline_ns &&
           !gyre_bootstrap_is_cancelled(&tcp->base))
        gyre_tcp_wait(tcp, deadline_ns);
    if (tcp->is_joined)
        return GYRE_SUCCESS; /* the first poll reports a later loss */
    if (tcp->broken != GYRE_SUCCESS)
        return gyre_fail(tcp->broken, "%s", tcp->broken_text);
    GYRE_TRY(check_cancelled(&tcp->base));
    return gyre_fail(GYRE_ERROR_TIMEOUT, "init: the rendezvous at %s does not answer",
                     tcp->server_text);
}

static gyre_status make_tcp(const struct gyre_id_layout *layout,
                            const struct gyre_bootstrap_place *place, struct gyre_tcp **tcp_out)
{
    struct gyre_tcp *tcp = calloc(1, sizeof(*tcp));
    if (tcp == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "the link to the rendezvous");
    tcp->base = (struct gyre_bootstrap){
        .ops = &tcp_ops, .rank = place->rank, .n_ranks = place->n_ranks, .fault = place->fault};
    memcpy(tcp->base.secret, layout->secret, sizeof(tcp->base.secret));
    tcp->fd = -1;
    tcp->wake_fd = -1;
    tcp->joined.server_rank = -1;
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
    gyre_sock_list_to_text(addresses, gyre_sock_list_read(&layout->list, addresses),
                           tcp->server_text, sizeof(tcp->server_text));
    pthread_mutex_init(&tcp->send_lock, NULL);
    pthread_mutex_init(&tcp->lock, NULL);
    gyre_cond_init(&tcp->changed);
    *tcp_out = tcp;
    return GYRE_SUCCESS;
}

static void tell_failure(struct gyre_tcp *tcp, const char *text, uint64_t deadline_ns)
{
    char end = 0;
    tcp_fail(&tcp->base, text);
    (void)gyre_sock_recv(tcp->fd, &end, sizeof(end), deadline_ns);
}

static void give_up(const gyre_unique_id *id, const struct gyre_bootstrap_place *place,
                    const char *text, uint64_t deadline_ns)
{
    static char *const none[] = {NULL};
    struct gyre_id_layout layout;
    struct gyre_tcp *tcp = NULL;
    gyre_unique_id own_id = *id;
    struct gyre_params *defaults = malloc(sizeof(*defaults));
    const struct gyre_bootstrap_place own = {place->n_ranks, place->rank, NULL};
    char before[GYRE_CAUSE_MAX_BYTES];
    char words[GYRE_TEXT_MAX_BYTES];
    snprintf(before, sizeof(before), "%s", gyre_cause());
    snprintf(words, sizeof(words), "%s", text);
    if (place->n_ranks != 1 && defaults != NULL &&
        gyre_params_from(none, defaults) == GYRE_SUCCESS &&
        gyre_unique_id_settle(defaults, &own, deadline_ns - gyre_now_ns(), &own_id) ==
            GYRE_SUCCESS &&
        gyre_id_read(&own_id, &layout) == GYRE_SUCCESS &&
        make_tcp(&layout, &own, &tcp) == GYRE_SUCCESS) {
        if (connect_server(tcp, &layout, deadline_ns) == GYRE_SUCCESS)
            tell_failure(tcp, words, deadline_ns);
        tcp_close(&tcp->base);
    }
    free(defaults);
    gyre_set_cause(before);
}

void gyre_bootstrap_tcp_give_up(const gyre_unique_id *id, const struct gyre_bootstrap_place *place,
                                const char *text)
{
    give_up(id, place, text, gyre_now_ns() + GIVE_UP_NS);
}

gyre_status gyre_bootstrap_tcp_open(const struct gyre_params *params, const gyre_unique_id *id,
                                    const struct gyre_bootstrap_place *place,
                                    struct gyre_bootstrap **bootstrap_out)
{
    struct gyre_id_layout layout;
    struct gyre_tcp *tcp = NULL;
    gyre_status status = GYRE_SUCCESS;
    if (place->n_ranks < 1 || place->n_ranks > GYRE_WIRE_MAX_RANKS || place->rank < 0 ||
        place->rank >= place->n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "rank %d of %d ranks is out of range",
                         place->rank, place->n_ranks);
    GYRE_TRY(gyre_id_read(id, &layout));
    GYRE_TRY_GOTO(status, make_tcp(&layout, place, &tcp), give_up);
    tcp->timeout_ns =
        (uint64_t)gyre_param_number(params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * GYRE_SECOND_NS;
    const uint64_t deadline_ns = gyre_now_ns() + tcp->timeout_ns + GRACE_NS;
    GYRE_TRY_GOTO(status, connect_server(tcp, &layout, deadline_ns - GRACE_NS), close_tcp);
    /* One descriptor must be enough to tell the other ranks of a failure. */
    tcp->wake_fd = gyre_descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (tcp->wake_fd < 0) {
        char text[GYRE_CAUSE_MAX_BYTES];
        status = gyre_fail_errno(errno, "init: eventfd");
        memcpy(text, gyre_cause(), sizeof(text));
        tell_failure(tcp, text, gyre_now_ns() + GIVE_UP_NS);
        gyre_set_cause(text);
        tcp_close(&tcp->base);
        return status;
    }
    GYRE_TRY_GOTO(status, gyre_sock_own_address(tcp->fd, &tcp->base.own_address), close_tcp);
    GYRE_TRY_GOTO(status, join(tcp, deadline_ns), fail);
    tcp->base.server_rank = tcp->joined.server_rank;
    snprintf(tcp->base.server_text, sizeof(tcp->base.server_text), "pid %d on %.64s",
             tcp->joined.server_pid, tcp->joined.server_host);
    *bootstrap_out = &tcp->base;
    return GYRE_SUCCESS;

fail:
    tcp_fail(&tcp->base, gyre_cause());
    tcp_close(&tcp->base);
    return status;
close_tcp:
    tcp_close(&tcp->base);
give_up:
    /* This rank's own failure may be over soon; a silent rendezvous is not tried again. */
    if (status != GYRE_ERROR_TIMEOUT)
        give_up(id, place, gyre_cause(),
                gyre_now_ns() + (status == GYRE_ERROR_ABORTED ? GIVE_UP_NS : RETRY_NS));
    return status;
}
