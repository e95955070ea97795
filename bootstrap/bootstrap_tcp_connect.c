/* SPDX-License-Identifier: Apache-2.0
 *
 * How a rank reaches the rendezvous: at one of the addresses that the unique id carries.
 */
#include "bootstrap/bootstrap_tcp.h"

#include "core/foundation/base/util.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SECOND_NS        1000000000ULL
#define CONNECT_SLICE_NS (1 * SECOND_NS)      /* refused for this long: no process listens there */
#define HASTY_NS         (SECOND_NS * 3 / 10) /* the first round over several addresses */
#define WORD_NS          (2 * SECOND_NS)      /* for the first word at one of several addresses */
#define PROOF_NS         (5 * SECOND_NS)      /* the server's patience with strangers */
#define HANDSHAKE_TRIES  5

/* The server speaks first. Its kernel takes connections also while its process is stopped.
 * @word_ns: when to stop waiting for its first word. */
static gyre_status shake_hands(struct gyre_tcp *tcp, const struct gyre_id_layout *layout,
                               uint64_t word_ns, uint64_t deadline_ns)
{
    bool has_word = false;
    gyre_wire_watch_start(tcp->fd, &tcp->watch);
    while (!has_word) {
        GYRE_TRY(gyre_wire_await(tcp->fd, &tcp->watch, word_ns, &has_word));
        if (gyre_bootstrap_is_cancelled(&tcp->base))
            return gyre_fail(GYRE_ERROR_ABORTED, "init was given up on rank %d", tcp->base.rank);
    }
    return gyre_authenticate(tcp->fd, layout->secret, false,
                             gyre_min_u64(deadline_ns, gyre_now_ns() + PROOF_NS));
}

/* How one round over all addresses went. */
struct attempts {
    int n_late;         /* did not answer in time: a busy listener drops connection requests */
    int n_refused;      /* answered, and not as this job's rendezvous */
    bool is_limited;    /* this process lacks something, so no address is tried any more */
    gyre_status status; /* of the last one, as are the words */
    char texts[GYRE_TEXT_MAX_BYTES]; /* of all */
};

static gyre_status try_address(struct gyre_tcp *tcp, const struct gyre_id_layout *layout,
                               const struct gyre_sock_address *address, uint64_t connect_ns,
                               uint64_t deadline_ns, struct attempts *attempts)
{
    const uint64_t try_ns = gyre_min_u64(deadline_ns, gyre_now_ns() + connect_ns);
    gyre_status status = gyre_sock_connect(address, try_ns, &tcp->fd);
    if (status == GYRE_SUCCESS) {
        /* The only address is waited at, where a stopped server may be; one of several is not. */
        const uint64_t word_ns = gyre_min_u64(
            deadline_ns, tcp->n_addresses == 1 ? deadline_ns : gyre_now_ns() + WORD_NS);
        status = shake_hands(tcp, layout, word_ns, deadline_ns);
        if (status == GYRE_SUCCESS || status == GYRE_ERROR_ABORTED)
            return status;
        gyre_sock_close(tcp->fd);
        tcp->fd = -1;
        attempts->n_refused += status != GYRE_ERROR_TIMEOUT;
    }
    attempts->is_limited = gyre_cause_is_limit(status);
    attempts->n_late += status == GYRE_ERROR_TIMEOUT;
    attempts->status = status;
    const size_t used = strlen(attempts->texts);
    snprintf(attempts->texts + used, sizeof(attempts->texts) - used, "%s%s", used > 0 ? "; " : "",
             gyre_cause());
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

/* All addresses in turn, most likely ones first, with a short bound each that grows. */
gyre_status gyre_tcp_connect(struct gyre_tcp *tcp, const struct gyre_id_layout *layout,
                             uint64_t deadline_ns)
{
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
    gyre_status status = gyre_sock_list_targets(&layout->list, addresses, &tcp->n_addresses);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "init: rank %d cannot reach the rendezvous of %s",
                                 tcp->base.rank, tcp->server_text);
    for (int round = 1, n_refusals = 0;; round++) {
        struct attempts attempts = {.status = GYRE_SUCCESS};
        const bool is_hasty = round == 1 && tcp->n_addresses > 1;
        for (int i = 0; i < tcp->n_addresses; i++) {
            if (gyre_bootstrap_is_cancelled(&tcp->base))
                return gyre_fail(GYRE_ERROR_ABORTED, "init was given up on rank %d",
                                 tcp->base.rank);
            status = try_address(tcp, layout, &addresses[i], is_hasty ? HASTY_NS : CONNECT_SLICE_NS,
                                 deadline_ns, &attempts);
            if (status == GYRE_SUCCESS || status == GYRE_ERROR_ABORTED)
                return status;
            if (attempts.is_limited)
                return fail_attempts(tcp, layout, &attempts);
        }
        /* Many strangers can also push a rank out. The rank then connects again. */
        n_refusals += attempts.n_refused > 0;
        const bool may_go_on =
            attempts.n_refused > 0 ? n_refusals < HANDSHAKE_TRIES : attempts.n_late > 0 || is_hasty;
        if (!may_go_on || gyre_now_ns() >= deadline_ns)
            return fail_attempts(tcp, layout, &attempts);
        if (attempts.n_refused > 0)
            poll(NULL, 0, 50 * n_refusals);
    }
}
