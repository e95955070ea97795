/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 0 answers a hello: taken, refused, or later. A taken rank gets a second answer when all have
 * come or rank 0 gives up.
 */
#include "bootstrap/launch.h"

#include "core/foundation/base/log.h"
#include "bootstrap/meet.h"
#include "core/foundation/base/sock.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SILENCE_MS 10000 /* then the host counts as gone */

bool gyre_meet_is_named(const struct gyre_meet_place *place)
{
    return place->address[0] == '@';
}

const char *gyre_meet_where(const struct gyre_meet_place *place, char *text_out, size_t text_bytes)
{
    if (gyre_meet_is_named(place))
        snprintf(text_out, text_bytes, "this host's socket %s", place->address);
    else
        snprintf(text_out, text_bytes, "%s=%s port %d", place->source, place->address, place->port);
    return text_out;
}

bool gyre_meet_is_cancelled(const struct gyre_meet_place *place)
{
    return place->fault != NULL && gyre_fault_is_raised(place->fault);
}

socklen_t gyre_meet_to_named(const struct gyre_meet_place *place, struct sockaddr_un *out)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    const int n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "%u-%s",
                           (unsigned)getuid(), place->address + 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

bool gyre_meet_is_own_user(int fd)
{
    struct ucred peer;
    socklen_t n_peer = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n_peer) == 0 && peer.uid == getuid();
}

int gyre_meet_addresses(const struct gyre_meet_place *place,
                        struct gyre_sock_address addresses_out[GYRE_MEET_MAX_ADDRESSES])
{
    char host[256];
    struct addrinfo *list = NULL;
    int n = 0;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const char *from = place->address + (place->address[0] == '[');
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(from, "]"), from);
    const int result = getaddrinfo(host, NULL, &hints, &list);
    if (result != 0) {
        if (result == EAI_SYSTEM)
            gyre_fail_errno(errno, "%s=%s", place->source, place->address);
        else
            gyre_fail(GYRE_ERROR_SYSTEM, "%s=%s: %s", place->source, place->address,
                      gai_strerror(result));
        return 0;
    }
    for (const struct addrinfo *at = list; at != NULL && n < GYRE_MEET_MAX_ADDRESSES;
         at = at->ai_next) {
        addresses_out[n] = gyre_sock_from_sockaddr(at->ai_addr);
        addresses_out[n].port = (uint16_t)place->port;
        n += addresses_out[n].family != 0;
    }
    freeaddrinfo(list);
    if (n == 0)
        gyre_fail(GYRE_ERROR_SYSTEM, "%s=%s: no IP address", place->source, place->address);
    return n;
}

gyre_status gyre_meet_blame_loopback(const struct gyre_meet_place *place, gyre_status status)
{
    struct gyre_sock_address addresses[GYRE_MEET_MAX_ADDRESSES];
    char cause[GYRE_CAUSE_MAX_BYTES];
    char text[64];
    memcpy(cause, gyre_cause(), sizeof(cause));
    if (!gyre_meet_is_named(place) && gyre_meet_addresses(place, addresses) > 0 &&
        gyre_sock_is_loopback(&addresses[0]))
        return gyre_fail(status,
                         "%.700s: %s=%s means %s here, which is loopback: ranks of other hosts do "
                         "not get there; set it to an address or a name of rank 0's host that all "
                         "hosts know",
                         cause, place->source, place->address,
                         gyre_sock_to_text(&addresses[0], text, sizeof(text)));
    gyre_set_cause(cause);
    return status;
}

static gyre_status talk(const struct gyre_meet_place *place, int fd, uint64_t deadline_ns,
                        struct gyre_meet_answer *answer_out)
{
    struct gyre_meet_hello hello;
    memset(&hello, 0, sizeof(hello));
    memcpy(hello.magic, GYRE_MEET_MAGIC, sizeof(GYRE_MEET_MAGIC));
    hello.rank = place->rank;
    hello.n_ranks = place->n_ranks;
    hello.number = place->number;
    hello.pid = getpid();
    gethostname(hello.host, sizeof(hello.host) - 1);
    snprintf(hello.job, sizeof(hello.job), "%s", place->job);
    GYRE_TRY(gyre_sock_send(fd, &hello, sizeof(hello), deadline_ns));
    GYRE_TRY(gyre_sock_recv(fd, answer_out, sizeof(*answer_out), deadline_ns));
    answer_out->text[sizeof(answer_out->text) - 1] = '\0';
    if (memcmp(answer_out->magic, GYRE_MEET_MAGIC, sizeof(GYRE_MEET_MAGIC)) != 0)
        return gyre_fail(GYRE_ERROR_REMOTE, "another program listens there");
    return GYRE_SUCCESS;
}

gyre_status gyre_meet_say_hello(const struct gyre_meet_place *place, uint64_t deadline_ns,
                                int *fd_out, struct gyre_meet_answer *answer_out)
{
    struct gyre_sock_address addresses[GYRE_MEET_MAX_ADDRESSES];
    const bool is_named = gyre_meet_is_named(place);
    const int n = is_named ? 1 : gyre_meet_addresses(place, addresses);
    gyre_status status = GYRE_ERROR_SYSTEM;
    for (int i = 0; i < n && status != GYRE_SUCCESS; i++) {
        if (!is_named) {
            const uint64_t try_ns = gyre_min_u64(deadline_ns, gyre_now_ns() + GYRE_SECOND_NS);
            status = gyre_sock_connect(&addresses[i], try_ns, fd_out);
        } else {
            struct sockaddr_un name;
            const socklen_t n_name = gyre_meet_to_named(place, &name);
            *fd_out = gyre_sock_new(AF_UNIX);
            if (*fd_out < 0)
                return gyre_fail_errno(errno, "socket(AF_UNIX)");
            const bool is_connected =
                connect(*fd_out, (const struct sockaddr *)&name, n_name) == 0 &&
                gyre_meet_is_own_user(*fd_out);
            status = is_connected ? GYRE_SUCCESS
                                  : gyre_fail_errno(errno, "connect to %s", place->address);
            if (!is_connected)
                gyre_sock_close(*fd_out);
        }
        if (status != GYRE_SUCCESS)
            continue;
        status =
            talk(place, *fd_out, gyre_min_u64(deadline_ns, gyre_now_ns() + 2 * GYRE_MEET_HELLO_NS),
                 answer_out);
        if (status != GYRE_SUCCESS)
            gyre_sock_close(*fd_out);
    }
    return status;
}

static gyre_status open_other(const struct gyre_meet_place *place, struct gyre_meet *meet)
{
    const uint64_t deadline_ns = gyre_now_ns() + place->timeout_ns;
    uint64_t notice_ns = gyre_now_ns() + GYRE_MEET_NOTICE_NS;
    char where[320];
    char cause[GYRE_CAUSE_MAX_BYTES] = "";
    gyre_meet_where(place, where, sizeof(where));
    for (;;) {
        struct gyre_meet_answer answer = {.verdict = GYRE_MEET_LATER};
        int fd = -1;
        gyre_status status = gyre_meet_say_hello(place, deadline_ns, &fd, &answer);
        if (status == GYRE_SUCCESS && answer.verdict == GYRE_MEET_TAKEN) {
            meet->fds[0] = fd;
            break;
        }
        if (status == GYRE_SUCCESS)
            gyre_sock_close(fd);
        if (gyre_cause_is_limit(status))
            return gyre_fail_context(status, "rank %d cannot connect to rank 0 at %s", place->rank,
                                     where);
        if (answer.verdict == GYRE_MEET_REFUSED)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE, "rank %d: %s", place->rank, answer.text);
        if (gyre_meet_is_cancelled(place))
            return gyre_fail(GYRE_ERROR_ABORTED, "init was given up on rank %d", place->rank);
        if (status == GYRE_SUCCESS)
            gyre_fail(GYRE_ERROR_TIMEOUT,
                      "rank 0 is not there yet: it still makes another communicator");
        const bool is_over = gyre_now_ns() >= deadline_ns;
        if (!is_over || cause[0] == '\0')
            memcpy(cause, gyre_cause(), sizeof(cause));
        if (is_over) {
            gyre_set_cause(cause);
            gyre_fail_context(GYRE_ERROR_TIMEOUT, "rank %d cannot reach rank 0 at %s within %.3g s",
                              place->rank, where, (double)place->timeout_ns / 1e9);
            return gyre_meet_blame_loopback(place, GYRE_ERROR_TIMEOUT);
        }
        if (gyre_now_ns() > notice_ns) {
            GYRE_WARN("rank %d waits for rank 0 to listen at %s, %.3g s at most: %s", place->rank,
                      where, (double)place->timeout_ns / 1e9, gyre_cause());
            notice_ns = UINT64_MAX;
        }
        poll(NULL, 0, 50); /* another program may leave soon */
    }
    struct gyre_meet_answer start;
    struct pollfd entry = {.fd = meet->fds[0], .events = POLLIN};
    do
        if (gyre_meet_is_cancelled(place))
            return gyre_fail(GYRE_ERROR_ABORTED, "init was given up on rank %d", place->rank);
    while (poll(&entry, 1, 100) <= 0 && gyre_now_ns() < deadline_ns);
    const gyre_status status =
        gyre_sock_recv(meet->fds[0], &start, sizeof(start), deadline_ns + GYRE_MEET_HELLO_NS);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "rank 0, which waits for the other ranks");
    start.text[sizeof(start.text) - 1] = '\0';
    return start.verdict == GYRE_MEET_REFUSED
               ? gyre_fail((gyre_status)start.status, "rank 0: %s", start.text)
               : GYRE_SUCCESS;
}

gyre_status gyre_meet_open(const struct gyre_meet_place *place, struct gyre_meet *meet_out)
{
    struct gyre_meet meet = {.rank = place->rank, .n_ranks = place->n_ranks};
    const char *colon = strchr(place->address, ':');
    if (place->address[0] == '\0')
        return gyre_fail(
            GYRE_ERROR_INVALID_USAGE,
            "the ranks run on several hosts, or the launcher gives the job no identity: set "
            "MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port of it "
            "(mpirun -x MASTER_ADDR=... -x MASTER_PORT=...)");
    const char *bracket = strchr(place->address, ']');
    const bool has_port = place->address[0] == '['
                              ? bracket == NULL || bracket[1] != '\0'
                              : colon != NULL && strchr(colon + 1, ':') == NULL;
    if (!gyre_meet_is_named(place) && has_port)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s=%s: a host without a port is needed",
                         place->source, place->address);
    meet.n_fds = place->rank == 0 ? place->n_ranks : 1;
    meet.fds = malloc((size_t)meet.n_fds * sizeof(*meet.fds));
    if (meet.fds == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d connections", meet.n_fds);
    for (int i = 0; i < meet.n_fds; i++)
        meet.fds[i] = -1;
    gyre_status status = GYRE_SUCCESS;
    if (place->n_ranks > 1)
        status = place->rank == 0 ? gyre_meet_receive(place, &meet) : open_other(place, &meet);
    if (status != GYRE_SUCCESS) {
        gyre_meet_close(&meet);
        return status;
    }
    /* Keepalive misses a lost host while data are on their way to it. */
    const unsigned int silence_ms = SILENCE_MS;
    for (int i = 0; i < meet.n_fds && !gyre_meet_is_named(place); i++)
        if (meet.fds[i] >= 0)
            (void)setsockopt(meet.fds[i], IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms,
                             sizeof(silence_ms));
    *meet_out = meet;
    return GYRE_SUCCESS;
}

void gyre_meet_close(struct gyre_meet *meet)
{
    for (int i = 0; i < meet->n_fds; i++)
        if (meet->fds[i] >= 0)
            gyre_sock_close(meet->fds[i]);
    free(meet->fds);
    *meet = (struct gyre_meet){0};
}

gyre_status gyre_meet_all_gather(struct gyre_meet *meet, const void *mine, size_t n_bytes,
                                 void *all_out, uint64_t deadline_ns)
{
    const size_t n_all_bytes = n_bytes * (size_t)meet->n_ranks;
    if (meet->rank > 0) {
        gyre_status status = gyre_sock_send(meet->fds[0], mine, n_bytes, deadline_ns);
        if (status == GYRE_SUCCESS)
            status = gyre_sock_recv(meet->fds[0], all_out, n_all_bytes, deadline_ns);
        return status == GYRE_SUCCESS
                   ? status
                   : gyre_fail_context(status, "the connection to rank 0's process");
    }
    memcpy(all_out, mine, n_bytes);
    for (int i = 1; i < meet->n_ranks; i++) {
        const gyre_status status = gyre_sock_recv(
            meet->fds[i], (char *)all_out + (size_t)i * n_bytes, n_bytes, deadline_ns);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "the connection to process %d", i);
    }
    for (int i = 1; i < meet->n_ranks; i++) {
        const gyre_status status = gyre_sock_send(meet->fds[i], all_out, n_all_bytes, deadline_ns);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "the connection to process %d", i);
    }
    return GYRE_SUCCESS;
}
