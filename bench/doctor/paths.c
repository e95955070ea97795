/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the way of packets between the hosts of a job (paths.h).
 */
#include "bench/doctor/paths.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CONNECT_MS 3000
#define QUIET_MS   150 /* without a packet: no more packets come */
#define N_COPIES   3   /* of each packet, because a single one may get lost */
#define BUDGET_NS  (20 * 1000000000ULL)

/* Sizes of IP packets to try besides the interface's own: Ethernet's jumbo frames, Ethernet, VXLAN
 * over Ethernet, tunnels, and the least that IPv6 and IPv4 guarantee. */
static const int sizes[] = {576, 1280, 1400, 1450, 1500, 4200, 9000};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct probe {
    uint32_t magic;
    int32_t n_bytes; /* of the IP packet */
    int32_t from;
};

#define MAGIC 0x67647270u

/* ---- sockets -------------------------------------------------------------------------------- */

static gyre_status open_udp(const struct gyre_sock_address *address, int *fd_out,
                            struct gyre_sock_address *bound_out)
{
    struct sockaddr_storage storage;
    const socklen_t n = gyre_sock_to_sockaddr(address, &storage);
    const int fd = socket(address->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return gyre_fail_errno(errno, "socket(UDP)");
    if (bind(fd, (struct sockaddr *)&storage, n) != 0) {
        const int error = errno;
        close(fd);
        return gyre_fail_errno(error, "bind(UDP)");
    }
    *fd_out = fd;
    return gyre_sock_own_address(fd, bound_out);
}

/* Opens a connection and closes it. Returns 0 or an errno. */
static int try_tcp(const struct gyre_sock_address *address)
{
    struct sockaddr_storage storage;
    const socklen_t n = gyre_sock_to_sockaddr(address, &storage);
    int error = 0;
    socklen_t n_error = sizeof(error);
    const int fd = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    if (connect(fd, (struct sockaddr *)&storage, n) != 0) {
        struct pollfd waiting = {.fd = fd, .events = POLLOUT};
        error = errno;
        if (error == EINPROGRESS)
            error = poll(&waiting, 1, CONNECT_MS) != 1                            ? ETIMEDOUT
                    : getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n_error) != 0 ? errno
                                                                                  : error;
    }
    close(fd);
    return error;
}

static int interface_mtu(int fd, const char *name)
{
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    return ioctl(fd, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

/* The largest packet that the kernel believes to pass to the peer of a connected socket. */
static int path_mtu(int fd, int family)
{
    int mtu = 0;
    socklen_t n = sizeof(mtu);
    const bool is_four = family == AF_INET;
    return getsockopt(fd, is_four ? IPPROTO_IP : IPPROTO_IPV6, is_four ? IP_MTU : IPV6_MTU, &mtu,
                      &n) == 0
               ? mtu
               : 0;
}

/* Send copies of a packet that must not be cut. Returns false if this host refuses the size. */
static bool send_size(int fd, int family, int n_bytes, int from)
{
    unsigned char bytes[BENCH_PATH_MAX_BYTES];
    const struct probe probe = {.magic = MAGIC, .n_bytes = n_bytes, .from = from};
    const size_t n_payload = (size_t)n_bytes - (family == AF_INET ? 28 : 48); /* IP and UDP */
    bool is_sent = false;
    memset(bytes, 0, n_payload);
    memcpy(bytes, &probe, sizeof(probe));
    for (int i = 0; i < N_COPIES; i++) {
        bool is_this_sent = send(fd, bytes, n_payload, MSG_NOSIGNAL) >= 0;
        /* The first error may belong to an earlier packet. */
        if (!is_this_sent)
            is_this_sent = send(fd, bytes, n_payload, MSG_NOSIGNAL) >= 0;
        is_sent = is_sent || is_this_sent;
    }
    return is_sent;
}

static void send_probes(const struct bench_path_listener *mine,
                        const struct bench_path_listener *theirs, int from,
                        struct bench_path_note *note)
{
    struct sockaddr_storage storage;
    const int family = theirs->udp.family;
    const socklen_t n = gyre_sock_to_sockaddr(&theirs->udp, &storage);
    const bool is_four = family == AF_INET;
    const int mode = is_four ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE;
    const int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&storage, n) == 0 &&
        setsockopt(fd, is_four ? IPPROTO_IP : IPPROTO_IPV6,
                   is_four ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &mode, sizeof(mode)) == 0) {
        int most = interface_mtu(fd, mine->name);
        const int believed = path_mtu(fd, family);
        most = believed > most ? believed : most;
        most = most > BENCH_PATH_MAX_BYTES ? BENCH_PATH_MAX_BYTES : most;
        for (size_t i = 0; i <= N_SIZES; i++) {
            const int size = i < N_SIZES ? sizes[i] : most;
            if (size <= most && size > note->limit && send_size(fd, family, size, from))
                note->limit = size;
        }
        note->known = path_mtu(fd, family);
    }
    close(fd);
}

/* The largest packet of that sender that has come. @limit: the sender sends no larger one, so there
 * is no need to wait for more. */
static int take_probes(int fd, int from, int limit)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    int largest = 0;
    while (largest < limit && poll(&waiting, 1, QUIET_MS) == 1) {
        struct probe probe;
        if (recv(fd, &probe, sizeof(probe), MSG_DONTWAIT) == (ssize_t)sizeof(probe) &&
            probe.magic == MAGIC && probe.from == from && probe.n_bytes > largest &&
            probe.n_bytes <= BENCH_PATH_MAX_BYTES)
            largest = probe.n_bytes;
    }
    return largest;
}

/* ---- all pairs ------------------------------------------------------------------------------ */

static gyre_status try_pair(struct bench_doctor *doctor, struct bench_paths *paths,
                            struct bench_path_pair *pair, int udp, uint64_t deadline_ns,
                            struct bench_path_note *notes)
{
    struct bench_launcher *launcher = &doctor->launcher;
    const int sender = paths->hosts.leaders[pair->from], receiver = paths->hosts.leaders[pair->to];
    const struct bench_path_listener *theirs = &paths->listeners[receiver];
    struct bench_path_note mine;
    memset(&mine, 0, sizeof(mine));
    mine.is_over = gyre_now_ns() > deadline_ns;
    if (launcher->process == sender) {
        mine.error = try_tcp(&theirs->tcp);
        send_probes(&paths->listeners[sender], theirs, pair->from, &mine);
    }
    GYRE_TRY(launcher->ops->all_gather(launcher, &mine, sizeof(mine), notes));
    if (notes[0].is_over != 0)
        paths->why_left = "the time was up";
    pair->note = notes[sender];
    if (launcher->process == receiver)
        mine.n_bytes = take_probes(udp, pair->from, pair->note.limit);
    GYRE_TRY(launcher->ops->all_gather(launcher, &mine, sizeof(mine), notes));
    pair->note.n_bytes = notes[receiver].n_bytes;
    return GYRE_SUCCESS;
}

static gyre_status try_all(struct bench_doctor *doctor, struct bench_paths *paths, int udp)
{
    const uint64_t deadline_ns = gyre_now_ns() + BUDGET_NS;
    const int n = paths->hosts.n;
    paths->n_all = n * (n - 1);
    struct bench_path_note *notes = calloc((size_t)doctor->launcher.n_processes, sizeof(*notes));
    gyre_status status =
        notes == NULL ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory") : GYRE_SUCCESS;
    for (int step = 1; status == GYRE_SUCCESS && step < n; step++)
        for (int from = 0; status == GYRE_SUCCESS && from < n; from++) {
            if (paths->n_pairs == BENCH_MAX_PATHS)
                paths->why_left = "no more are tried in one run";
            if (paths->why_left != NULL)
                break;
            struct bench_path_pair *pair = &paths->pairs[paths->n_pairs];
            *pair = (struct bench_path_pair){.from = from, .to = (from + step) % n};
            status = try_pair(doctor, paths, pair, udp, deadline_ns, notes);
            paths->n_pairs += status == GYRE_SUCCESS;
        }
    free(notes);
    return status;
}

/* Opens this process's sockets and tells all processes where they are. */
static gyre_status listen_all(struct bench_doctor *doctor, struct bench_paths *paths, int *tcp_out,
                              int *udp_out)
{
    struct bench_launcher *launcher = &doctor->launcher;
    struct gyre_sock_interface chosen;
    struct bench_path_listener mine;
    memset(&mine, 0, sizeof(mine));
    gyre_status status = gyre_sock_choose(&doctor->params, &chosen);
    if (status == GYRE_SUCCESS)
        status = gyre_sock_listen(&chosen.address, tcp_out, &mine.tcp);
    if (status == GYRE_SUCCESS)
        status = open_udp(&chosen.address, udp_out, &mine.udp);
    mine.status = (int32_t)status;
    if (status == GYRE_SUCCESS)
        memcpy(mine.name, chosen.name, sizeof(mine.name));
    else
        snprintf(mine.cause, sizeof(mine.cause), "%.159s", gyre_cause());
    GYRE_TRY(launcher->ops->all_gather(launcher, &mine, sizeof(mine), paths->listeners));
    for (int i = 0; i < launcher->n_processes; i++) {
        struct bench_path_listener *one = &paths->listeners[i];
        one->name[sizeof(one->name) - 1] = one->cause[sizeof(one->cause) - 1] = '\0';
        if (one->status != GYRE_SUCCESS)
            return gyre_fail((gyre_status)one->status, "rank %d: %s", i, one->cause);
    }
    return GYRE_SUCCESS;
}

static gyre_status measure(struct bench_doctor *doctor, struct bench_paths *paths)
{
    int tcp = -1, udp = -1;
    paths->listeners = calloc((size_t)doctor->launcher.n_processes, sizeof(*paths->listeners));
    gyre_status status = paths->listeners == NULL ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory")
                                                  : bench_hosts_find(doctor, &paths->hosts);
    if (status == GYRE_SUCCESS && paths->hosts.n > 1)
        status = listen_all(doctor, paths, &tcp, &udp);
    if (status == GYRE_SUCCESS && paths->hosts.n > 1)
        status = try_all(doctor, paths, udp);
    if (tcp >= 0)
        gyre_sock_close(tcp);
    if (udp >= 0)
        close(udp);
    return status;
}

struct bench_paths *bench_paths_measure(struct bench_doctor *doctor)
{
    struct bench_paths *paths = calloc(1, sizeof(*paths));
    if (paths == NULL)
        return NULL;
    paths->status = measure(doctor, paths);
    snprintf(paths->cause, sizeof(paths->cause), "%.255s",
             paths->status == GYRE_SUCCESS ? "" : gyre_cause());
    return paths;
}

void bench_paths_free(struct bench_paths *paths)
{
    if (paths == NULL)
        return;
    bench_hosts_free(&paths->hosts);
    free(paths->listeners);
    free(paths);
}
