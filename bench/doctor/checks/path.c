/* SPDX-License-Identifier: Apache-2.0
 *
 * Firewalls and MTUs, by the kernel's own TCP and UDP, one pair at a time in both directions.
 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MAX_SAID             8
#define CONNECT_MS           3000
#define QUIET_MS             150 /* silence after which no packet is expected */
#define N_COPIES             3   /* packets may get lost */
#define BUDGET_NS            (20 * 1000000000ULL)

#define BENCH_MAX_PATHS      256
#define BENCH_PATH_MAX_BYTES 16384

struct bench_path_listener {
    struct bench_note note;
    struct gyre_sock_address tcp, udp;
    char name[16];
};

/* Processes all-gather it. */
struct bench_path_note {
    int32_t is_over; /* process 0: the time is up */
    int32_t error;   /* errno of the TCP connection */
    int32_t limit;   /* of the sender's interface */
    int32_t known;   /* path MTU that the sender's kernel knows */
    int32_t n_bytes; /* the largest that the receiver got, 0 = none */
};

struct bench_path_pair {
    int from, to;
    struct bench_path_note note;
};

struct bench_paths {
    struct bench_hosts hosts;
    struct bench_path_listener *listeners;
    struct bench_path_pair pairs[BENCH_MAX_PATHS];
    int n_pairs;
    int n_all;
    const char *why_left; /* NULL = all pairs were tried */
    gyre_status status;
    char cause[256];
};

/* Besides the interface's own: jumbo frames, Ethernet, VXLAN, tunnels, and the least that IPv6 and
 * IPv4 guarantee. */
static const int sizes[] = {576, 1280, 1400, 1450, 1500, 4200, 9000};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct probe {
    uint32_t magic;
    int32_t n_bytes;
    int32_t from;
};

#define MAGIC 0x67647270u

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

/* Packets that must not be cut. False if this host refuses the size. */
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
        struct ifreq request;
        memset(&request, 0, sizeof(request));
        snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", mine->name);
        int most = ioctl(fd, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
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
    if (launcher->process == receiver) {
        const int from = pair->from;
        const int limit = pair->note.limit;
        struct pollfd waiting = {.fd = udp, .events = POLLIN};
        int largest = 0;
        while (largest < limit && poll(&waiting, 1, QUIET_MS) == 1) {
            struct probe probe;
            if (recv(udp, &probe, sizeof(probe), MSG_DONTWAIT) == (ssize_t)sizeof(probe) &&
                probe.magic == MAGIC && probe.from == from && probe.n_bytes > largest &&
                probe.n_bytes <= BENCH_PATH_MAX_BYTES)
                largest = probe.n_bytes;
        }
        mine.n_bytes = largest;
    }
    GYRE_TRY(launcher->ops->all_gather(launcher, &mine, sizeof(mine), notes));
    pair->note.n_bytes = notes[receiver].n_bytes;
    return GYRE_SUCCESS;
}

static gyre_status try_all(struct bench_doctor *doctor, struct bench_paths *paths, int udp)
{
    const uint64_t deadline_ns = gyre_now_ns() + BUDGET_NS;
    const int n = paths->hosts.n;
    paths->n_all = n * (n - 1);
    struct bench_path_note *notes =
        bench_keep((size_t)doctor->launcher.n_processes, sizeof(*notes));
    gyre_status status = GYRE_SUCCESS;
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
    return status;
}

static gyre_status listen_all(struct bench_doctor *doctor, struct bench_paths *paths, int *tcp_out,
                              int *udp_out)
{
    struct gyre_sock_interface chosen;
    struct bench_path_listener mine;
    memset(&mine, 0, sizeof(mine));
    gyre_status status = gyre_sock_choose(&doctor->params, &chosen);
    if (status == GYRE_SUCCESS)
        status = gyre_sock_listen(&chosen.address, tcp_out, &mine.tcp);
    if (status == GYRE_SUCCESS)
        status = open_udp(&chosen.address, udp_out, &mine.udp);
    if (status == GYRE_SUCCESS)
        memcpy(mine.name, chosen.name, sizeof(mine.name));
    GYRE_TRY(bench_gather(doctor, status, &mine, sizeof(mine), paths->listeners));
    for (int i = 0; i < doctor->launcher.n_processes; i++)
        paths->listeners[i].name[sizeof(mine.name) - 1] = '\0';
    return GYRE_SUCCESS;
}

/* NULL after saying why. */
static const struct bench_paths *paths_of(struct bench_doctor *doctor)
{
    struct bench_paths *paths = doctor->paths;
    if (paths == NULL) {
        int tcp = -1, udp = -1;
        paths = doctor->paths = bench_keep(1, sizeof(*paths));
        paths->listeners =
            bench_keep((size_t)doctor->launcher.n_processes, sizeof(*paths->listeners));
        paths->status = bench_hosts_find(doctor, &paths->hosts);
        if (paths->status == GYRE_SUCCESS && paths->hosts.n > 1)
            paths->status = listen_all(doctor, paths, &tcp, &udp);
        if (paths->status == GYRE_SUCCESS && paths->hosts.n > 1)
            paths->status = try_all(doctor, paths, udp);
        if (tcp >= 0)
            gyre_sock_close(tcp);
        if (udp >= 0)
            close(udp);
        snprintf(paths->cause, sizeof(paths->cause), "%.255s", gyre_cause());
    }
    if (paths->status != GYRE_SUCCESS)
        bench_unknown(doctor, NULL, "look at net.interfaces on that host", "%s", paths->cause);
    else if (paths->hosts.n == 1)
        bench_skip(doctor, "all processes are on one host");
    else
        return paths;
    return NULL;
}

static void say_rest(struct bench_doctor *doctor, const struct bench_paths *paths, int n_bad,
                     enum bench_severity worst)
{
    if (n_bad > MAX_SAID)
        bench_say(doctor, worst, NULL, "mend those above, then run gyre doctor again",
                  "%d more findings of this kind are not printed", n_bad - MAX_SAID);
    if (paths->n_pairs < paths->n_all)
        bench_unknown(doctor, NULL, "gyre doctor --only job. on fewer hosts at a time",
                      "%d of %d pairs of hosts were tried, then %s", paths->n_pairs, paths->n_all,
                      paths->why_left == NULL ? "the measurement ended" : paths->why_left);
}

static const char *words_of(int error)
{
    switch (error) {
    case ETIMEDOUT:
        return "no answer: a firewall drops the packets, or the address is not routed";
    case ECONNREFUSED:
        return "refused, although the peer listens there: a firewall rejects the packets, or the "
               "address belongs to another host as well";
    case EHOSTUNREACH:
    case ENETUNREACH:
        return "no route to it, or a firewall answers that there is none";
    case EACCES:
    case EPERM:
        return "a firewall of the sending host forbids it";
    default:
        return "see the error";
    }
}

void bench_check_job_firewall(struct bench_doctor *doctor)
{
    const struct bench_paths *paths = paths_of(doctor);
    enum bench_severity worst = BENCH_WARN;
    int n_bad = 0;
    if (paths == NULL)
        return;
    for (int i = 0; i < paths->n_pairs; i++) {
        const struct bench_path_pair *pair = &paths->pairs[i];
        if (pair->note.error == 0 && pair->note.n_bytes > 0)
            continue;
        worst = pair->note.error != 0 ? BENCH_FAIL : worst;
        if (n_bad++ >= MAX_SAID)
            continue;
        const char *from = paths->hosts.names[pair->from], *to = paths->hosts.names[pair->to];
        char address[64];
        gyre_sock_to_text(&paths->listeners[paths->hosts.leaders[pair->to]].tcp, address,
                          sizeof(address));
        if (pair->note.error != 0)
            bench_fail(doctor, from,
                       "on the peer let this host's packets in: iptables -I INPUT -s ADDRESS -j "
                       "ACCEPT; ufw allow from ADDRESS; firewall-cmd --zone=trusted "
                       "--add-source=ADDRESS; then look at net.interfaces on both",
                       "TCP to %s at %s: %s (%s)%s", to, address, strerror(pair->note.error),
                       words_of(pair->note.error),
                       pair->note.n_bytes > 0 ? "; UDP passes" : "; UDP does not pass either");
        else
            bench_warn(doctor, from,
                       "on the peer let UDP in: iptables -I INPUT -p udp -s ADDRESS -j ACCEPT; "
                       "RoCE needs UDP port 4791",
                       "TCP to %s at %s passes, UDP does not: a firewall; RoCE packets are UDP", to,
                       address);
    }
    if (n_bad == 0 && paths->n_pairs == paths->n_all)
        bench_ok(doctor, NULL, "%d pairs of hosts: TCP connections and UDP packets pass",
                 paths->n_pairs);
    say_rest(doctor, paths, n_bad, worst);
}

void bench_check_job_path_mtu(struct bench_doctor *doctor)
{
    const struct bench_paths *paths = paths_of(doctor);
    enum bench_severity worst = BENCH_WARN;
    int n_bad = 0, n_seen = 0, least = BENCH_PATH_MAX_BYTES;
    if (paths == NULL)
        return;
    for (int i = 0; i < paths->n_pairs; i++) {
        const struct bench_path_pair *pair = &paths->pairs[i];
        const struct bench_path_note *note = &pair->note;
        if (note->n_bytes == 0)
            continue;
        n_seen++;
        least = note->n_bytes < least ? note->n_bytes : least;
        if (note->n_bytes >= note->limit)
            continue;
        const bool is_known = note->known > 0 && note->known < note->limit;
        worst = is_known ? worst : BENCH_FAIL;
        if (n_bad++ >= MAX_SAID)
            continue;
        const char *from = paths->hosts.names[pair->from], *to = paths->hosts.names[pair->to];
        const char *sender = paths->listeners[paths->hosts.leaders[pair->from]].name;
        const char *receiver = paths->listeners[paths->hosts.leaders[pair->to]].name;
        bench_say(doctor, is_known ? BENCH_WARN : BENCH_FAIL, from,
                  bench_text("one MTU on every interface and switch port between the hosts: ip "
                             "link set dev %s mtu 9000 on %s, ip link set dev %s mtu 9000 on %s "
                             "(or 1500 everywhere); tracepath -n ADDRESS shows the place",
                             sender, from, receiver, to),
                  "%s sends packets of %d bytes, and those do not arrive at %s; the largest of the "
                  "sizes tried that does has %d bytes. %s",
                  sender, note->limit, to, note->n_bytes,
                  is_known
                      ? "The kernel was told, so TCP uses smaller packets; RoCE is not told"
                      : "Nobody tells the sender: connections hang as soon as they carry much");
    }
    if (n_seen == 0)
        bench_skip(doctor, "no UDP packet passes (job.firewall)");
    else if (n_bad == 0 && paths->n_pairs == paths->n_all)
        bench_ok(doctor, NULL,
                 "%d of %d pairs of hosts: packets as large as the interface allows pass whole; "
                 "the smallest limit is %d bytes",
                 n_seen, paths->n_all, least);
    say_rest(doctor, paths, n_bad, worst);
}
