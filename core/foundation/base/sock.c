/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/sock.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_BACKLOG       1024
#define CONNECT_RETRY_MAX_MS 200

struct gyre_sock_address gyre_sock_from_sockaddr(const struct sockaddr *name)
{
    struct gyre_sock_address address = {.family = 0};
    if (name->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const void *)name;
        address.port = ntohs(four->sin_port);
        memcpy(address.bytes, &four->sin_addr, sizeof(four->sin_addr));
    } else if (name->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)name;
        address.port = ntohs(six->sin6_port);
        address.scope = six->sin6_scope_id;
        memcpy(address.bytes, &six->sin6_addr, sizeof(six->sin6_addr));
    } else {
        return address;
    }
    address.family = name->sa_family;
    return address;
}

socklen_t gyre_sock_to_sockaddr(const struct gyre_sock_address *address,
                                struct sockaddr_storage *out)
{
    memset(out, 0, sizeof(*out));
    if (address->family == AF_INET6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(address->port);
        six->sin6_scope_id = address->scope;
        memcpy(&six->sin6_addr, address->bytes, sizeof(six->sin6_addr));
        return sizeof(*six);
    }
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    four->sin_family = AF_INET;
    four->sin_port = htons(address->port);
    memcpy(&four->sin_addr, address->bytes, sizeof(four->sin_addr));
    return sizeof(*four);
}

const char *gyre_sock_to_text(const struct gyre_sock_address *address, char *text_out,
                              size_t text_bytes)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->family != AF_INET && address->family != AF_INET6) {
        snprintf(text_out, text_bytes, "address of unknown family %u", address->family);
        return text_out;
    }
    inet_ntop(address->family, address->bytes, host, sizeof(host));
    if (address->family == AF_INET)
        snprintf(text_out, text_bytes, "%s:%u", host, address->port);
    else if (address->scope != 0)
        snprintf(text_out, text_bytes, "[%s%%%u]:%u", host, address->scope, address->port);
    else
        snprintf(text_out, text_bytes, "[%s]:%u", host, address->port);
    return text_out;
}

/* Small frames must not wait (NODELAY). An idle connection to a vanished host must end: first probe
 * after 2 s, then 5, a second apart, which a stopped process's kernel answers. TCP_USER_TIMEOUT
 * would end it too if its window is full. bootstrap_wire.c finds what keepalive misses. */
static gyre_status set_options(int fd)
{
    const struct {
        int level, name, value;
        const char *text;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"},
        {SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"},
        {IPPROTO_TCP, TCP_KEEPIDLE, 2, "TCP_KEEPIDLE"},
        {IPPROTO_TCP, TCP_KEEPINTVL, 1, "TCP_KEEPINTVL"},
        {IPPROTO_TCP, TCP_KEEPCNT, 5, "TCP_KEEPCNT"},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(options); i++) {
        if (setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                       sizeof(options[i].value)) != 0)
            return gyre_fail_errno(errno, "setsockopt(%s)", options[i].text);
    }
    return GYRE_SUCCESS;
}

static gyre_status open_socket(const struct gyre_sock_address *address, int *fd_out)
{
    if (address->family != AF_INET && address->family != AF_INET6)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "address family %u is neither IPv4 nor IPv6",
                         address->family);
    const int fd = gyre_sock_new(address->family);
    if (fd < 0)
        return gyre_fail_errno(errno, "socket(family %u)", address->family);
    const gyre_status status = set_options(fd);
    if (status != GYRE_SUCCESS) {
        gyre_sock_close(fd);
        return status;
    }
    *fd_out = fd;
    return GYRE_SUCCESS;
}

/* A failed fd is ready: the next call reports its error. */
static gyre_status wait_ready(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        const uint64_t now_ns = gyre_now_ns();
        if (now_ns >= deadline_ns)
            return GYRE_ERROR_TIMEOUT;
        const uint64_t left_ms = gyre_div_round_up(deadline_ns - now_ns, 1000000);
        struct pollfd entry = {.fd = fd, .events = events};
        const int n_ready = poll(&entry, 1, (int)gyre_min_u64(left_ms, 60000));
        if (n_ready > 0)
            return GYRE_SUCCESS;
        if (n_ready < 0 && errno != EINTR)
            return gyre_fail_errno(errno, "poll");
    }
}

static gyre_status wait_or_name(int fd, short events, uint64_t deadline_ns, const char *what)
{
    const gyre_status status = wait_ready(fd, events, deadline_ns);
    if (status == GYRE_ERROR_TIMEOUT)
        return gyre_fail(status, "%s: the deadline passed", what);
    return status;
}

static bool would_block(int error_number)
{
    return error_number == EAGAIN || error_number == EWOULDBLOCK;
}

gyre_status gyre_sock_listen(const struct gyre_sock_address *address, int *fd_out,
                             struct gyre_sock_address *bound_out)
{
    char text[64];
    int fd = -1;
    struct sockaddr_storage name;
    socklen_t n_name = gyre_sock_to_sockaddr(address, &name);
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(open_socket(address, &fd));
    if (bind(fd, (const struct sockaddr *)&name, n_name) != 0 || listen(fd, LISTEN_BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&name, &n_name) != 0) {
        status =
            gyre_fail_errno(errno, "listen on %s", gyre_sock_to_text(address, text, sizeof(text)));
        gyre_sock_close(fd);
        return status;
    }
    *bound_out = *address;
    bound_out->port = gyre_sock_from_sockaddr((const struct sockaddr *)&name).port;
    *fd_out = fd;
    return GYRE_SUCCESS;
}

gyre_status gyre_sock_own_address(int fd, struct gyre_sock_address *address_out)
{
    struct sockaddr_storage name;
    socklen_t n_name = sizeof(name);
    if (getsockname(fd, (struct sockaddr *)&name, &n_name) != 0)
        return gyre_fail_errno(errno, "getsockname");
    *address_out = gyre_sock_from_sockaddr((const struct sockaddr *)&name);
    return GYRE_SUCCESS;
}

gyre_status gyre_sock_peer_address(int fd, struct gyre_sock_address *address_out)
{
    struct sockaddr_storage name;
    socklen_t n_name = sizeof(name);
    if (getpeername(fd, (struct sockaddr *)&name, &n_name) != 0)
        return gyre_fail_errno(errno, "getpeername");
    *address_out = gyre_sock_from_sockaddr((const struct sockaddr *)&name);
    return GYRE_SUCCESS;
}

gyre_status gyre_sock_accept(int listen_fd, uint64_t deadline_ns, int *fd_out)
{
    for (;;) {
        const int fd = gyre_sock_take(listen_fd);
        if (fd >= 0) {
            const gyre_status status = set_options(fd);
            if (status != GYRE_SUCCESS) {
                gyre_sock_close(fd);
                return status;
            }
            *fd_out = fd;
            return GYRE_SUCCESS;
        }
        if (would_block(errno))
            GYRE_TRY(wait_or_name(listen_fd, POLLIN, deadline_ns, "accept"));
        else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO)
            return gyre_fail_errno(errno, "accept");
    }
}

static gyre_status connect_once(const struct gyre_sock_address *address, uint64_t deadline_ns,
                                int *fd_out, int *refusal_out)
{
    char text[64];
    struct sockaddr_storage name;
    const socklen_t n_name = gyre_sock_to_sockaddr(address, &name);
    int fd = -1;
    int error_number = 0;
    socklen_t n_error = sizeof(error_number);
    *refusal_out = 0;
    gyre_sock_to_text(address, text, sizeof(text));
    GYRE_TRY(open_socket(address, &fd));
    gyre_status status = GYRE_SUCCESS;
    if (connect(fd, (const struct sockaddr *)&name, n_name) != 0)
        error_number = errno;
    if (error_number == EINPROGRESS || error_number == EINTR) {
        status = wait_ready(fd, POLLOUT, deadline_ns);
        if (status == GYRE_ERROR_TIMEOUT)
            gyre_fail(status, "connect to %s: no answer before the deadline", text);
        error_number = 0;
        if (status == GYRE_SUCCESS)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &n_error);
    }
    if (status == GYRE_SUCCESS && error_number != 0) {
        status = gyre_fail_errno(error_number, "connect to %s", text);
        if (error_number == ECONNREFUSED || error_number == ECONNRESET || error_number == EAGAIN)
            *refusal_out = error_number;
    }
    if (status != GYRE_SUCCESS)
        gyre_sock_close(fd);
    else
        *fd_out = fd;
    return status;
}

gyre_status gyre_sock_connect(const struct gyre_sock_address *address, uint64_t deadline_ns,
                              int *fd_out)
{
    int pause_ms = 1;
    int last_refusal = 0;
    for (;;) {
        int refusal = 0;
        const gyre_status status = connect_once(address, deadline_ns, fd_out, &refusal);
        if (status == GYRE_SUCCESS || (refusal == 0 && last_refusal == 0))
            return status;
        if (refusal != 0)
            last_refusal = refusal;
        const uint64_t now_ns = gyre_now_ns();
        if (now_ns >= deadline_ns) {
            /* A refusal says more than a timeout. */
            char text[64];
            return gyre_fail_errno(last_refusal, "connect to %s",
                                   gyre_sock_to_text(address, text, sizeof(text)));
        }
        if (refusal == 0)
            return status;
        const uint64_t left_ms = gyre_div_round_up(deadline_ns - now_ns, 1000000);
        poll(NULL, 0, (int)gyre_min_u64((uint64_t)pause_ms, left_ms));
        pause_ms = pause_ms * 2 > CONNECT_RETRY_MAX_MS ? CONNECT_RETRY_MAX_MS : pause_ms * 2;
    }
}

bool gyre_sock_is_refused(const struct gyre_sock_address *address, uint64_t deadline_ns)
{
    int fd = -1, refusal = 0;
    if (connect_once(address, deadline_ns, &fd, &refusal) == GYRE_SUCCESS)
        gyre_sock_close(fd);
    return refusal == ECONNREFUSED;
}

gyre_status gyre_sock_send(int fd, const void *bytes, size_t n_bytes, uint64_t deadline_ns)
{
    const unsigned char *at = bytes;
    while (n_bytes > 0) {
        const ssize_t n_sent = send(fd, at, n_bytes, MSG_NOSIGNAL);
        if (n_sent >= 0) {
            at += n_sent;
            n_bytes -= (size_t)n_sent;
        } else if (would_block(errno)) {
            GYRE_TRY(wait_or_name(fd, POLLOUT, deadline_ns, "send"));
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return gyre_fail(GYRE_ERROR_REMOTE, "send: the peer closed the connection");
        } else if (errno != EINTR) {
            return gyre_fail_errno(errno, "send of %zu bytes", n_bytes);
        }
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_sock_recv(int fd, void *bytes, size_t n_bytes, uint64_t deadline_ns)
{
    unsigned char *at = bytes;
    while (n_bytes > 0) {
        const ssize_t n_got = recv(fd, at, n_bytes, 0);
        if (n_got > 0) {
            at += n_got;
            n_bytes -= (size_t)n_got;
        } else if (n_got == 0 || errno == ECONNRESET || errno == EPIPE) {
            return gyre_fail(GYRE_ERROR_REMOTE, "receive: the peer closed the connection");
        } else if (would_block(errno)) {
            GYRE_TRY(wait_or_name(fd, POLLIN, deadline_ns, "receive"));
        } else if (errno != EINTR) {
            return gyre_fail_errno(errno, "receive of %zu bytes", n_bytes);
        }
    }
    return GYRE_SUCCESS;
}

#define FDS_PER_WORD 64

/* A forked child that keeps the socket would hide this process's death from peers. Under the lock a
 * descriptor is marked and open, or neither. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *is_marked; /* a bit a descriptor; under lock */
static size_t n_words;

static void close_inherited(void)
{
    for (size_t word = 0; word < n_words; word++) {
        for (int bit = 0; bit < FDS_PER_WORD && is_marked[word] != 0; bit++)
            if ((is_marked[word] >> bit & 1) != 0)
                close((int)word * FDS_PER_WORD + bit);
        is_marked[word] = 0;
    }
}

GYRE_WATCH_FORKS(&lock, close_inherited)

/* Under lock. Returns fd, or closes it: -1 with errno. */
static int mark(int fd)
{
    const size_t word = (size_t)fd / FDS_PER_WORD;
    if (word >= n_words) {
        uint64_t *words = realloc(is_marked, (word + 1) * sizeof(*words));
        if (words == NULL) {
            close(fd);
            errno = ENOMEM;
            return -1;
        }
        memset(words + n_words, 0, (word + 1 - n_words) * sizeof(*words));
        is_marked = words;
        n_words = word + 1;
    }
    is_marked[word] |= 1ULL << fd % FDS_PER_WORD;
    return fd;
}

int gyre_sock_new(int family)
{
    GYRE_LOCKED(&lock);
    int fd = gyre_descriptor_keep(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd >= 0)
        fd = mark(fd);
    return fd;
}

int gyre_sock_take(int listen_fd)
{
    GYRE_LOCKED(&lock);
    int fd = gyre_descriptor_keep(accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd >= 0)
        fd = mark(fd);
    return fd;
}

void gyre_sock_close(int fd)
{
    const size_t word = (size_t)fd / FDS_PER_WORD;
    GYRE_LOCKED(&lock);
    if (word < n_words)
        is_marked[word] &= ~(1ULL << fd % FDS_PER_WORD);
    close(fd);
}
