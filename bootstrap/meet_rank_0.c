/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 0 waits for no connection, and drops one without a hello after two seconds.
 */
#include "core/foundation/base/log.h"
#include "bootstrap/meet.h"
#include "core/foundation/base/sock.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIND_NS       500000000ULL /* then a busy port is another program's */
#define MAX_PENDING   64
#define MAX_LISTENERS (GYRE_MAX_INTERFACES + GYRE_MEET_MAX_ADDRESSES + 2)
#define TEXT_BYTES    sizeof(((struct gyre_meet_answer *)0)->text)

struct pending {
    int fd;
    size_t n_bytes;
    uint64_t deadline_ns;
    struct gyre_meet_hello hello;
};

struct reception {
    const struct gyre_meet_place *place;
    struct gyre_meet *meet;
    int n_listeners;
    int listeners[MAX_LISTENERS];
    char where[256];
    int n_pending;
    struct pending pending[MAX_PENDING];
    struct gyre_meet_hello *hellos;
    gyre_status status;
};

static bool is_other_job(const char *mine, const char *theirs)
{
    for (const char *at = mine; *at != '\0';) {
        const size_t n_entry = strcspn(at, " ");
        const size_t n_name = strcspn(at, "=") + 1;
        for (const char *other = theirs; n_name <= n_entry && *other != '\0';) {
            const size_t n_other = strcspn(other, " ");
            if (strncmp(at, other, n_name) == 0 &&
                (n_other != n_entry || strncmp(at, other, n_entry) != 0))
                return true;
            other += n_other + strspn(other + n_other, " ");
        }
        at += n_entry + strspn(at + n_entry, " ");
    }
    return false;
}

static const char *job_text(const char *job)
{
    return job[0] != '\0' ? job : "without an identity";
}

static void send_answer(int fd, enum gyre_meet_verdict verdict, gyre_status status,
                        const char *text)
{
    struct gyre_meet_answer answer = {.verdict = (int32_t)verdict, .status = (int32_t)status};
    memcpy(answer.magic, GYRE_MEET_MAGIC, sizeof(GYRE_MEET_MAGIC));
    snprintf(answer.text, sizeof(answer.text), "%s", text);
    (void)gyre_sock_send(fd, &answer, sizeof(answer), gyre_now_ns() + GYRE_MEET_HELLO_NS);
}

static bool has_closed(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static enum gyre_meet_verdict judge(struct reception *reception,
                                    const struct gyre_meet_hello *hello, char text_out[TEXT_BYTES])
{
    const struct gyre_meet_place *place = reception->place;
    struct gyre_meet *meet = reception->meet;
    const char *size = strcmp(place->source, "MASTER_ADDR") == 0 ? "WORLD_SIZE" : "n_ranks";
    char where[320];
    gyre_meet_where(place, where, sizeof(where));
    if (is_other_job(place->job, hello->job)) {
        snprintf(text_out, TEXT_BYTES,
                 "another job listens at %.300s: that job is %.190s, this one is %.190s", where,
                 job_text(place->job), job_text(hello->job));
        return GYRE_MEET_REFUSED;
    }
    if (hello->rank == 0) {
        snprintf(text_out, TEXT_BYTES,
                 "rank 0 of another job (%.190s) listens at %.300s; this job is %.190s",
                 job_text(place->job), where, job_text(hello->job));
        return GYRE_MEET_REFUSED;
    }
    if (hello->n_ranks != place->n_ranks) {
        snprintf(
            text_out, TEXT_BYTES,
            "the ranks were given different numbers of ranks: rank 0 has %s=%d, rank %d (pid %d "
            "on %.63s) has %s=%d",
            size, place->n_ranks, hello->rank, hello->pid, hello->host, size, hello->n_ranks);
        reception->status = gyre_fail(GYRE_ERROR_INVALID_USAGE, "%s", text_out);
        return GYRE_MEET_REFUSED;
    }
    if (hello->number != place->number)
        return GYRE_MEET_LATER;
    int *fd = &meet->fds[hello->rank];
    if (*fd >= 0 && has_closed(*fd)) {
        gyre_sock_close(*fd);
        *fd = -1;
    }
    if (*fd >= 0) {
        const struct gyre_meet_hello *first = &reception->hellos[hello->rank];
        snprintf(text_out, TEXT_BYTES,
                 "rank %d has come to %.300s already (pid %d on %.63s): another job uses this "
                 "address, or two processes have one rank",
                 hello->rank, where, first->pid, first->host);
        return GYRE_MEET_REFUSED;
    }
    return GYRE_MEET_TAKEN;
}

static bool read_hello(struct reception *reception, int i)
{
    struct pending *one = &reception->pending[i];
    struct gyre_meet_hello *hello = &one->hello;
    char text[TEXT_BYTES] = "";
    const ssize_t n =
        recv(one->fd, (char *)hello + one->n_bytes, sizeof(*hello) - one->n_bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0)
        one->n_bytes += (size_t)n;
    if (n > 0 && one->n_bytes < sizeof(*hello))
        return false;
    enum gyre_meet_verdict verdict = GYRE_MEET_REFUSED;
    if (n > 0 && memcmp(hello->magic, GYRE_MEET_MAGIC, sizeof(GYRE_MEET_MAGIC)) == 0 &&
        hello->rank >= 0 && hello->n_ranks > 0 && hello->rank < hello->n_ranks &&
        (!gyre_meet_is_named(reception->place) || gyre_meet_is_own_user(one->fd))) {
        hello->host[sizeof(hello->host) - 1] = '\0';
        hello->job[sizeof(hello->job) - 1] = '\0';
        verdict = judge(reception, hello, text);
        if (verdict == GYRE_MEET_TAKEN && has_closed(one->fd))
            verdict = GYRE_MEET_LATER; /* it comes again */
        send_answer(one->fd, verdict, GYRE_ERROR_INVALID_USAGE, text);
    }
    if (verdict == GYRE_MEET_TAKEN) {
        reception->meet->fds[hello->rank] = one->fd;
        reception->hellos[hello->rank] = *hello;
    } else {
        gyre_sock_close(one->fd);
    }
    *one = reception->pending[--reception->n_pending];
    return true;
}

/* Returns 0 or an errno. */
static int listen_at(struct reception *reception, const void *name, socklen_t n_name, int family)
{
    const int on = 1;
    const int off = 0;
    const struct sockaddr_in6 *six = name;
    const bool is_any = family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr);
    const int fd = gyre_sock_new(family);
    if (fd < 0)
        return errno;
    if (family != AF_UNIX)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, is_any ? &off : &on, sizeof(on));
    if (bind(fd, name, n_name) != 0 || listen(fd, 1024) != 0) {
        const int error_number = errno;
        gyre_sock_close(fd);
        return error_number;
    }
    reception->listeners[reception->n_listeners++] = fd;
    return 0;
}

/* Restricted: loopback, SOCKET_IFNAME's addresses, and local ones of the place's name. */
static int listen_everywhere(struct reception *reception)
{
    const struct gyre_meet_place *place = reception->place;
    struct gyre_sock_interface chosen[GYRE_MAX_INTERFACES];
    struct gyre_sock_address all[MAX_LISTENERS] = {{.family = AF_INET, .bytes = {127, 0, 0, 1}},
                                                   {.family = AF_INET6, .bytes = {[15] = 1}}};
    struct sockaddr_storage name;
    int n_chosen = 0;
    if (gyre_meet_is_named(place)) {
        struct sockaddr_un named;
        const socklen_t n_named = gyre_meet_to_named(place, &named);
        snprintf(reception->where, sizeof(reception->where), "this host only");
        return listen_at(reception, &named, n_named, AF_UNIX);
    }
    if (place->params == NULL || !gyre_param_is_set(place->params, GYRE_PARAM_SOCKET_IFNAME) ||
        gyre_sock_list_addresses(place->params, chosen, &n_chosen) != GYRE_SUCCESS) {
        struct gyre_sock_address any = {.family = AF_INET6, .port = (uint16_t)place->port};
        snprintf(reception->where, sizeof(reception->where), "all addresses, port %d", any.port);
        const int error_number =
            listen_at(reception, &name, gyre_sock_to_sockaddr(&any, &name), AF_INET6);
        if (error_number == 0 || error_number == EADDRINUSE)
            return error_number;
        any.family = AF_INET;
        return listen_at(reception, &name, gyre_sock_to_sockaddr(&any, &name), AF_INET);
    }
    int n = 2;
    for (int i = 0; i < n_chosen; i++)
        all[n++] = chosen[i].address;
    n += gyre_meet_addresses(place, &all[n]);
    int first_error = 0;
    for (int i = 0; i < n; i++) {
        char text[64];
        bool is_known = false;
        for (int k = 0; k < i; k++)
            is_known = is_known || gyre_sock_is_same_host(&all[k], &all[i]);
        if (is_known)
            continue;
        all[i].port = (uint16_t)place->port;
        const int error_number =
            listen_at(reception, &name, gyre_sock_to_sockaddr(&all[i], &name), all[i].family);
        if (error_number == 0)
            gyre_text_append(reception->where, sizeof(reception->where), "%s%s",
                             reception->where[0] != '\0' ? ", " : "",
                             gyre_sock_to_text(&all[i], text, sizeof(text)));
        else if (error_number == EADDRINUSE)
            first_error = error_number;
    }
    return first_error != 0 ? first_error : reception->n_listeners == 0 ? EADDRNOTAVAIL : 0;
}

static gyre_status start_listening(struct reception *reception)
{
    const uint64_t deadline_ns =
        gyre_now_ns() + gyre_min_u64(BIND_NS, reception->place->timeout_ns);
    for (;;) {
        const int error_number = listen_everywhere(reception);
        if (error_number == 0)
            return GYRE_SUCCESS;
        while (reception->n_listeners > 0)
            gyre_sock_close(reception->listeners[--reception->n_listeners]);
        reception->where[0] = '\0';
        if (error_number == EADDRINUSE && gyre_now_ns() >= deadline_ns) {
            const struct gyre_meet_place *place = reception->place;
            struct gyre_meet_answer answer;
            int fd = -1;
            char where[320];
            struct gyre_meet_place here = *place;
            if (!gyre_meet_is_named(place))
                here.address = "localhost";
            gyre_meet_where(place, where, sizeof(where));
            const gyre_status status =
                gyre_meet_say_hello(&here, gyre_now_ns() + GYRE_MEET_HELLO_NS, &fd, &answer);
            if (status == GYRE_SUCCESS)
                gyre_sock_close(fd);
            if (status == GYRE_SUCCESS && answer.verdict == GYRE_MEET_REFUSED)
                return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                                 "rank 0 cannot listen at %s: %s; give each job its own port",
                                 where, answer.text);
            return gyre_fail_errno(
                error_number,
                "rank 0 cannot listen at %s: another job or program listens there; give "
                "each job its own port",
                where);
        }
        if (error_number != EADDRINUSE) {
            char where[320];
            return gyre_fail_errno(error_number, "rank 0 cannot listen at %s",
                                   gyre_meet_where(reception->place, where, sizeof(where)));
        }
        poll(NULL, 0, 20);
    }
}

static int list_missing(const struct gyre_meet *meet, char *text_out, size_t text_bytes)
{
    int n_missing = 0;
    text_out[0] = '\0';
    for (int i = 1; i < meet->n_ranks; i++) {
        if (meet->fds[i] >= 0)
            continue;
        n_missing++;
        if (strlen(text_out) < text_bytes - 16)
            gyre_text_append(text_out, text_bytes, " %d", i);
    }
    return n_missing;
}

static gyre_status receive(struct reception *reception)
{
    const struct gyre_meet_place *place = reception->place;
    const uint64_t deadline_ns = gyre_now_ns() + place->timeout_ns;
    uint64_t notice_ns = gyre_now_ns() + GYRE_MEET_NOTICE_NS;
    char missing[256];
    char where[320];
    gyre_meet_where(place, where, sizeof(where));
    GYRE_INFO(BOOTSTRAP, "rank 0 waits for %d ranks at %s: it listens on %s", place->n_ranks - 1,
              where, reception->where);
    while (list_missing(reception->meet, missing, sizeof(missing)) > 0 &&
           reception->status == GYRE_SUCCESS) {
        if (gyre_meet_is_cancelled(place))
            return gyre_fail(GYRE_ERROR_ABORTED, "init was given up on rank 0");
        if (gyre_now_ns() >= deadline_ns) {
            gyre_fail(
                GYRE_ERROR_TIMEOUT,
                "ranks%s never came: they did not reach %s within %.3g s (rank 0 listens on %s)",
                missing, where, (double)place->timeout_ns / 1e9, reception->where);
            return gyre_meet_blame_loopback(place, GYRE_ERROR_TIMEOUT);
        }
        if (gyre_now_ns() > notice_ns) {
            GYRE_WARN("rank 0 waits for ranks%s to come to %s, %.3g s at most; it listens on %s",
                      missing, where, (double)place->timeout_ns / 1e9, reception->where);
            notice_ns = UINT64_MAX;
        }
        struct pollfd fds[MAX_PENDING + MAX_LISTENERS];
        const int n_before = reception->n_pending;
        const int n_listeners = reception->n_listeners;
        for (int i = 0; i < n_listeners; i++)
            fds[i] = (struct pollfd){.fd = reception->listeners[i], .events = POLLIN};
        for (int i = 0; i < n_before; i++)
            fds[n_listeners + i] =
                (struct pollfd){.fd = reception->pending[i].fd, .events = POLLIN};
        poll(fds, (nfds_t)(n_before + n_listeners), 100);
        for (int i = n_before - 1; i >= 0; i--) {
            if (fds[n_listeners + i].revents != 0) {
                read_hello(reception, i);
            } else if (gyre_now_ns() > reception->pending[i].deadline_ns) {
                gyre_sock_close(reception->pending[i].fd);
                reception->pending[i] = reception->pending[--reception->n_pending];
            }
        }
        for (int i = 0; i < n_listeners; i++)
            if (fds[i].revents != 0) {
                const int listen_fd = reception->listeners[i];
                int fd = -1;
                gyre_status status = GYRE_SUCCESS;
                if (!gyre_meet_is_named(reception->place))
                    status = gyre_sock_accept(listen_fd, 0, &fd);
                else if ((fd = gyre_sock_take(listen_fd)) < 0)
                    status = gyre_fail_errno(errno, "accept");
                if (gyre_cause_is_limit(status))
                    reception->status =
                        gyre_fail_context(status, "rank 0 cannot take the connections of ranks");
                if (status != GYRE_SUCCESS)
                    continue;
                if (reception->n_pending == MAX_PENDING) {
                    gyre_sock_close(reception->pending[0].fd);
                    reception->pending[0] = reception->pending[--reception->n_pending];
                }
                reception->pending[reception->n_pending++] =
                    (struct pending){.fd = fd, .deadline_ns = gyre_now_ns() + GYRE_MEET_HELLO_NS};
            }
    }
    return reception->status;
}

gyre_status gyre_meet_receive(const struct gyre_meet_place *place, struct gyre_meet *meet)
{
    GYRE_FREED struct reception *reception = calloc(1, sizeof(*reception));
    GYRE_FREED struct gyre_meet_hello *hellos = calloc((size_t)place->n_ranks, sizeof(*hellos));
    if (reception == NULL || hellos == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to wait for %d ranks",
                         place->n_ranks);
    reception->place = place;
    reception->meet = meet;
    reception->hellos = hellos;
    gyre_status status = start_listening(reception);
    if (status == GYRE_SUCCESS)
        status = receive(reception);
    for (int i = 1; i < place->n_ranks; i++)
        if (meet->fds[i] >= 0)
            send_answer(meet->fds[i], status == GYRE_SUCCESS ? GYRE_MEET_TAKEN : GYRE_MEET_REFUSED,
                        status, status == GYRE_SUCCESS ? "" : gyre_cause());
    while (reception->n_pending > 0)
        gyre_sock_close(reception->pending[--reception->n_pending].fd);
    while (reception->n_listeners > 0)
        gyre_sock_close(reception->listeners[--reception->n_listeners]);
    return status;
}
