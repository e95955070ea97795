/* SPDX-License-Identifier: Apache-2.0
 *
 * Is the other end of a connection still there? The two kernels answer that, not the two processes:
 * a stopped process must not count as dead, and its kernel goes on acknowledging.
 *
 * Every socket of the bootstrap has keepalive on (core/foundation/base/sock.c). A kernel whose
 * connection is idle sends a probe every 2 s, and the other kernel answers it. What keepalive alone
 * misses:
 *
 * - Linux sends no probes from an end that has bytes to send. When this host loses its interface or
 *   its address, those bytes can never be sent, and the connection waits in TCP's persist state,
 *   which has no useful limit of its own.
 * - TCP_USER_TIMEOUT would end the persist state. It also ends a connection to a stopped process
 *   whose receive window is full, although that kernel answers every window probe.
 *
 * So this file counts the segments that arrive on the connection. As long as the peer's kernel is
 * there and reaches this host, it sends at least one every 2 s: an acknowledgement, a probe of its
 * own (a stopped process has nothing to send, so its end is idle), or an answer to our probe. When
 * no segment has come for 7 s, the peer or the way to this host is gone.
 *
 * Loss in one direction alone is seen by the end that hears nothing. That end resets the connection
 * instead of closing it: a FIN would wait behind bytes that are never acknowledged, a reset leaves
 * at once and reaches the other end, whose packets are the ones that get lost.
 */
#include "bootstrap/bootstrap_wire.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <linux/tcp.h> /* its tcp_info counts segments; that of netinet/tcp.h is an old one */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1000000000ULL
/* As long as keepalive's own patience: 2 s, and five probes a second apart. */
#define SILENT_NS (7 * SECOND_NS)
/* Longer than any kernel's acknowledgement takes, shorter than the peer's patience. */
#define UNHEARD_NS (5 * SECOND_NS)
/* The state of TCP that a reset leads to (TCP_CLOSE in netinet/tcp.h). The peer's FIN leads to
 * another one, as long as this end is open. */
#define STATE_CLOSED 7
/* A process that was stopped itself has not looked for long; that is no silence of the peer. */
#define LOOK_MAX_NS (2 * SECOND_NS)

static bool read_info(int fd, struct tcp_info *info_out)
{
    socklen_t n_info = sizeof(*info_out);
    memset(info_out, 0, sizeof(*info_out));
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info_out, &n_info) == 0 &&
           n_info >= offsetof(struct tcp_info, tcpi_segs_in) + sizeof(info_out->tcpi_segs_in);
}

bool gyre_wire_is_silent(int fd, struct gyre_wire_watch *watch)
{
    struct tcp_info info;
    const uint64_t now_ns = gyre_now_ns();
    if (!read_info(fd, &info))
        return false; /* not TCP, or a kernel before 4.2: keepalive has to do */
    const uint64_t passed_ns =
        watch->looked_ns == 0 ? 0 : gyre_min_u64(now_ns - watch->looked_ns, LOOK_MAX_NS);
    const bool has_come = info.tcpi_segs_in != watch->n_segments;
    const bool is_heard = info.tcpi_bytes_acked != watch->n_acked_bytes ||
                          (info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0);
    watch->silent_ns = has_come ? 0 : watch->silent_ns + passed_ns;
    watch->unheard_ns = is_heard ? 0 : watch->unheard_ns + passed_ns;
    watch->n_segments = info.tcpi_segs_in;
    watch->n_acked_bytes = info.tcpi_bytes_acked;
    watch->looked_ns = now_ns;
    return watch->silent_ns >= SILENT_NS;
}

void gyre_wire_reset(int fd)
{
    /* Disconnecting sends a reset at once, and the descriptor stays valid for other threads. */
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    (void)connect(fd, &nobody, sizeof(nobody));
}

/* Finds out whether this host itself has lost its address, its interface or its link. */
static bool find_own_fault(const struct gyre_sock_address *own, char *text_out, size_t text_bytes)
{
    struct gyre_sock_interface *all = NULL;
    char address[64];
    int n = 0, at = 0;
    if (own->family == 0 || gyre_sock_interfaces(&all, &n) != GYRE_SUCCESS)
        return false;
    while (at < n && !gyre_sock_is_same_host(&all[at].address, own))
        at++;
    const bool is_there = at < n;
    const bool is_running = is_there && all[at].is_running;
    if (is_there && !is_running)
        snprintf(text_out, text_bytes, "this host's interface %s %s", all[at].name,
                 all[at].is_up ? "has no link" : "is down");
    free(all);
    if (is_there)
        return !is_running;
    struct gyre_sock_address host = *own;
    host.port = 0;
    snprintf(text_out, text_bytes, "this host has lost its address %s",
             gyre_sock_to_text(&host, address, sizeof(address)));
    char *port = strrchr(text_out, ':');
    if (port != NULL)
        *port = '\0';
    return true;
}

static bool is_unreachable(int error_number)
{
    return error_number == ETIMEDOUT || error_number == EHOSTUNREACH ||
           error_number == ENETUNREACH || error_number == ENETDOWN;
}

/* Whether the end of the stream is a reset. The kernel reports a reset's error only once. If a send
 * got it, the next read returns the end of the stream, as after a FIN. */
static bool was_reset(int fd)
{
    struct tcp_info info;
    return read_info(fd, &info) && info.tcpi_state == STATE_CLOSED;
}

const char *gyre_wire_end_text(int fd, int error_number, const struct gyre_wire_watch *watch,
                               char *text_out, size_t text_bytes)
{
    struct tcp_info info;
    char fault[128];
    if (error_number == 0 && !was_reset(fd)) {
        snprintf(text_out, text_bytes, "exited or closed its connection");
    } else if (is_unreachable(error_number)) {
        if (find_own_fault(&watch->own, fault, sizeof(fault)))
            snprintf(text_out, text_bytes, "cannot be reached any more: %s", fault);
        else
            snprintf(text_out, text_bytes, "stopped answering: its host or network is gone");
    } else if (watch->unheard_ns >= UNHEARD_NS ||
               (read_info(fd, &info) && info.tcpi_last_ack_recv >= UNHEARD_NS / 1000000)) {
        snprintf(text_out, text_bytes,
                 "gave this connection up: it has heard nothing from this host for some seconds "
                 "(packets to it get lost)");
    } else {
        snprintf(text_out, text_bytes, "exited or closed its connection (reset)");
    }
    return text_out;
}

void gyre_wire_watch_start(int fd, struct gyre_wire_watch *watch_out)
{
    char before[GYRE_CAUSE_MAX_BYTES];
    memset(watch_out, 0, sizeof(*watch_out));
    snprintf(before, sizeof(before), "%s", gyre_cause());
    if (gyre_sock_own_address(fd, &watch_out->own) != GYRE_SUCCESS) {
        watch_out->own.family = 0; /* a connection that is gone already says so when it is read */
        gyre_set_cause(before);
    }
}
