/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP with deadlines, and the choice of a network interface.
 */
#include "core/base/sock.h"

#include "core/base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define RETRY_NAP_MS 20

/* ---- addresses ---------------------------------------------------------------------------- */

static socklen_t to_sockaddr(const struct gyre_sock_address *address, uint16_t port,
                             struct sockaddr_storage *storage_out)
{
    memset(storage_out, 0, sizeof(*storage_out));
    if (address->family == AF_INET6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)storage_out;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        in6->sin6_scope_id = address->scope;
        memcpy(&in6->sin6_addr, address->bytes, 16);
        return sizeof(*in6);
    }
    struct sockaddr_in *in = (struct sockaddr_in *)storage_out;
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    memcpy(&in->sin_addr, address->bytes, 4);
    return sizeof(*in);
}

static void from_sockaddr(const struct sockaddr *from, struct gyre_sock_address *address_out)
{
    memset(address_out, 0, sizeof(*address_out));
    address_out->family = from->sa_family;
    if (from->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)from;
        address_out->port = ntohs(in6->sin6_port);
        address_out->scope = in6->sin6_scope_id;
        memcpy(address_out->bytes, &in6->sin6_addr, 16);
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)from;
        address_out->port = ntohs(in->sin_port);
        memcpy(address_out->bytes, &in->sin_addr, 4);
    }
}

const char *gyre_sock_to_text(const struct gyre_sock_address *address, char *text_out,
                              size_t text_bytes)
{
    char words[INET6_ADDRSTRLEN] = "?";
    inet_ntop(address->family, address->bytes, words, sizeof(words));
    if (address->family == AF_INET6 && address->scope != 0)
        snprintf(text_out, text_bytes, "[%s%%%u]:%u", words, address->scope, address->port);
    else if (address->family == AF_INET6)
        snprintf(text_out, text_bytes, "[%s]:%u", words, address->port);
    else
        snprintf(text_out, text_bytes, "%s:%u", words, address->port);
    return text_out;
}

/* ---- interfaces --------------------------------------------------------------------------- */

gyre_status gyre_sock_interfaces(struct gyre_sock_interface *interfaces_out, int *n_out)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        return gyre_fail_errno(errno, "getifaddrs");
    int n = 0;
    for (const struct ifaddrs *at = list; at != NULL && n < GYRE_MAX_INTERFACES;
         at = at->ifa_next) {
        if (at->ifa_addr == NULL)
            continue;
        if (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6)
            continue;
        struct gyre_sock_interface *interface = &interfaces_out[n++];
        memset(interface, 0, sizeof(*interface));
        snprintf(interface->name, sizeof(interface->name), "%.15s", at->ifa_name);
        from_sockaddr(at->ifa_addr, &interface->address);
        interface->address.port = 0;
        interface->is_up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0;
        interface->is_loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
    }
    freeifaddrs(list);
    *n_out = n;
    return GYRE_SUCCESS;
}

/* Does a list of names (prefixes unless exact) take this one? */
static bool list_takes(const char *list, bool is_exact, const char *name)
{
    char copy[GYRE_PARAM_MAX_BYTES];
    snprintf(copy, sizeof(copy), "%s", list);
    char *rest = NULL;
    for (char *word = strtok_r(copy, ", ", &rest); word != NULL;
         word = strtok_r(NULL, ", ", &rest)) {
        if (is_exact ? strcmp(word, name) == 0 : strncmp(word, name, strlen(word)) == 0)
            return true;
    }
    return false;
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Lower is better. Link-local IPv6 needs a scope that peers do not know: after its family mates. */
static int preference(const struct gyre_sock_interface *interface, bool is_named)
{
    int score = 0;
    if (!is_named) {
        if (interface->is_loopback)
            score = 300;
        else if (starts_with(interface->name, "docker") || starts_with(interface->name, "virbr") ||
                 starts_with(interface->name, "veth") || starts_with(interface->name, "br-"))
            score = 200;
        else if (!starts_with(interface->name, "ib"))
            score = 100;
    }
    if (interface->address.family == AF_INET6)
        score += 10;
    if (interface->address.family == AF_INET6 && interface->address.bytes[0] == 0xfe &&
        (interface->address.bytes[1] & 0xc0) == 0x80)
        score += 40;
    return score;
}

static gyre_status refuse_rule(const struct gyre_sock_interface *interfaces, int n,
                               const char *ifname, int family)
{
    char list[512] = "";
    for (int i = 0; i < n; i++) {
        const size_t used = strlen(list);
        char address[64];
        gyre_sock_to_text(&interfaces[i].address, address, sizeof(address));
        char *port = strrchr(address, ':');
        if (port != NULL)
            *port = '\0';
        snprintf(list + used, sizeof(list) - used, "%s%s (%s%s)", i > 0 ? ", " : "",
                 interfaces[i].name, address, interfaces[i].is_up ? "" : ", down");
    }
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "GYRE_SOCKET_IFNAME=\"%s\"%s matches no interface that is up; there are: %s",
                     ifname,
                     family == AF_INET    ? " with AF_INET"
                     : family == AF_INET6 ? " with AF_INET6"
                                          : "",
                     list[0] != '\0' ? list : "none");
}

gyre_status gyre_sock_select(const struct gyre_sock_interface *interfaces, int n,
                             const char *ifname, int family, struct gyre_sock_interface *chosen_out,
                             int *n_chosen_out)
{
    const char *list = ifname;
    const bool inverts = *list == '^';
    list += inverts;
    const bool is_exact = *list == '=';
    list += is_exact;
    const bool is_named = ifname[0] != '\0' && !inverts;
    int scores[GYRE_MAX_INTERFACES];
    int n_chosen = 0;
    for (int i = 0; i < n && i < GYRE_MAX_INTERFACES; i++) {
        const struct gyre_sock_interface *interface = &interfaces[i];
        if (!interface->is_up || (family != 0 && interface->address.family != family))
            continue;
        if (ifname[0] != '\0' && list_takes(list, is_exact, interface->name) == inverts)
            continue;
        const int score = preference(interface, is_named);
        int at = n_chosen++;
        for (; at > 0 && scores[at - 1] > score; at--) {
            scores[at] = scores[at - 1];
            chosen_out[at] = chosen_out[at - 1];
        }
        scores[at] = score;
        chosen_out[at] = *interface;
    }
    if (n_chosen == 0)
        return refuse_rule(interfaces, n, ifname, family);
    *n_chosen_out = n_chosen;
    return GYRE_SUCCESS;
}

gyre_status gyre_sock_choose(const struct gyre_params *params,
                             struct gyre_sock_interface *chosen_out)
{
    struct gyre_sock_interface interfaces[GYRE_MAX_INTERFACES];
    struct gyre_sock_interface chosen[GYRE_MAX_INTERFACES];
    int n = 0;
    int n_chosen = 0;
    GYRE_TRY(gyre_sock_interfaces(interfaces, &n));
    int family = 0;
    if (gyre_param_is_set(params, GYRE_PARAM_SOCKET_FAMILY))
        family = gyre_param_number(params, GYRE_PARAM_SOCKET_FAMILY) == 0 ? AF_INET : AF_INET6;
    GYRE_TRY(gyre_sock_select(interfaces, n, gyre_param_text(params, GYRE_PARAM_SOCKET_IFNAME),
                              family, chosen, &n_chosen));
    *chosen_out = chosen[0];
    return GYRE_SUCCESS;
}

/* ---- connections -------------------------------------------------------------------------- */

static void set_options(int fd)
{
    const int one = 1;
    /* A host that vanishes without a word is noticed in idle_s + n * interval_s: 8 s. */
    const int idle_s = 4;
    const int interval_s = 1;
    const int n_probes = 4;
    const unsigned unacknowledged_ms = 8000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof(unacknowledged_ms));
}

gyre_status gyre_sock_listen(const struct gyre_sock_address *address, int *fd_out,
                             struct gyre_sock_address *bound_out)
{
    struct sockaddr_storage storage;
    char text[64];
    const socklen_t n_bytes = to_sockaddr(address, 0, &storage);
    const int fd = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return gyre_fail_errno(errno, "socket");
    socklen_t n_bound = sizeof(storage);
    if (bind(fd, (struct sockaddr *)&storage, n_bytes) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&storage, &n_bound) != 0) {
        const int error = errno;
        close(fd);
        return gyre_fail_errno(error, "listen on %s",
                               gyre_sock_to_text(address, text, sizeof(text)));
    }
    from_sockaddr((struct sockaddr *)&storage, bound_out);
    bound_out->scope = address->scope;
    *fd_out = fd;
    return GYRE_SUCCESS;
}

/* Milliseconds that are left, for poll(). */
static int ms_left(uint64_t deadline_ns)
{
    const uint64_t now_ns = gyre_now_ns();
    if (now_ns >= deadline_ns)
        return 0;
    const uint64_t ms = (deadline_ns - now_ns) / 1000000 + 1;
    return ms > 3600000 ? 3600000 : (int)ms;
}

/* Wait for an event on one socket; false when the deadline came first. */
static bool wait_for(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd one = {fd, events, 0};
    for (;;) {
        const int left_ms = ms_left(deadline_ns);
        const int n = poll(&one, 1, left_ms);
        if (n > 0)
            return true;
        if (n == 0 && left_ms == 0)
            return false;
    }
}

gyre_status gyre_sock_accept(int listen_fd, uint64_t deadline_ns, int *fd_out)
{
    for (;;) {
        const int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            set_options(fd);
            *fd_out = fd;
            return GYRE_SUCCESS;
        }
        /* Errors of a connection that went away again are no errors of the listener. */
        if (errno == EMFILE || errno == ENFILE || errno == EBADF || errno == EINVAL)
            return gyre_fail_errno(errno, "accept");
        if (!wait_for(listen_fd, POLLIN, deadline_ns))
            return gyre_fail(GYRE_ERROR_TIMEOUT, "accept: nobody connected in time");
    }
}

/* One attempt; 0, or the errno it failed with (ETIMEDOUT at the deadline). */
static int try_connect(const struct gyre_sock_address *address, uint64_t deadline_ns, int *fd_out)
{
    struct sockaddr_storage storage;
    const socklen_t n_bytes = to_sockaddr(address, address->port, &storage);
    const int fd = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    int error = 0;
    if (connect(fd, (struct sockaddr *)&storage, n_bytes) != 0)
        error = errno;
    if (error == EINPROGRESS || error == EINTR) {
        socklen_t n_error = sizeof(error);
        error = ETIMEDOUT;
        if (wait_for(fd, POLLOUT, deadline_ns))
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n_error);
    }
    if (error != 0) {
        close(fd);
        return error;
    }
    set_options(fd);
    *fd_out = fd;
    return 0;
}

gyre_status gyre_sock_connect(const struct gyre_sock_address *address, uint64_t deadline_ns,
                              int *fd_out)
{
    char text[64];
    for (;;) {
        const int error = try_connect(address, deadline_ns, fd_out);
        if (error == 0)
            return GYRE_SUCCESS;
        const bool may_pass = error == ECONNREFUSED || error == ECONNRESET || error == EAGAIN ||
                              error == EHOSTUNREACH || error == ENETUNREACH;
        if (!may_pass || ms_left(deadline_ns) <= RETRY_NAP_MS)
            return gyre_fail_errno(error, "connect to %s",
                                   gyre_sock_to_text(address, text, sizeof(text)));
        poll(NULL, 0, RETRY_NAP_MS);
    }
}

gyre_status gyre_sock_send(int fd, const void *bytes, size_t n_bytes, uint64_t deadline_ns)
{
    const unsigned char *at = bytes;
    while (n_bytes > 0) {
        const ssize_t n_sent = send(fd, at, n_bytes, MSG_NOSIGNAL);
        if (n_sent >= 0) {
            at += n_sent;
            n_bytes -= (size_t)n_sent;
        } else if (errno == EAGAIN || errno == EINTR) {
            if (!wait_for(fd, POLLOUT, deadline_ns))
                return gyre_fail(GYRE_ERROR_TIMEOUT, "send: the peer took nothing in time");
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return gyre_fail(GYRE_ERROR_REMOTE, "send: the peer closed the connection");
        } else {
            return gyre_fail_errno(errno, "send");
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
        } else if (n_got == 0 || errno == ECONNRESET) {
            return gyre_fail(GYRE_ERROR_REMOTE, "recv: the peer closed the connection");
        } else if (errno == EAGAIN || errno == EINTR) {
            if (!wait_for(fd, POLLIN, deadline_ns))
                return gyre_fail(GYRE_ERROR_TIMEOUT, "recv: the peer sent nothing in time");
        } else {
            return gyre_fail_errno(errno, "recv");
        }
    }
    return GYRE_SUCCESS;
}
