/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher torchrun: processes that find each other by RANK, WORLD_SIZE, MASTER_ADDR and
 * MASTER_PORT. Rank 0 listens at that address, and every other rank keeps one connection to it.
 * Like torchrun's own store, the gathers trust the network. They only keep out strangers: rank 0
 * drops a connection that does not send our hello within two seconds, and never waits for it.
 */
#include "bench/launch/launcher.h"
#include "core/base/sock.h"
#include "core/base/util.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOIN_S      120 /* until all processes have joined */
#define JOIN_NS     (JOIN_S * 1000000000ULL)
#define NOTICE_NS   (5 * 1000000000ULL)    /* until a waiting process prints a notice, once */
#define HELLO_NS    (2 * 1000000000ULL)    /* until a new connection has sent its hello */
#define GATHER_NS   (3600 * 1000000000ULL) /* until the slowest process has finished a size */
#define SILENCE_MS  10000                  /* until a host that does not answer counts as gone */
#define MAX_PENDING 64

static const char magic[16] = "gyre bench 0001";

struct hello {
    char magic[16];
    uint32_t process;
    uint32_t n_processes;
};

/* A connection that has not sent its whole hello. */
struct pending {
    int fd;
    size_t n_bytes;
    uint64_t deadline_ns;
    struct hello hello;
};

struct connections {
    int n_fds; /* on rank 0: n_processes, of which entry 0 is unused; else 1 */
    int *fds;
};

static gyre_status read_number(const char *name, long low, long high, int *value_out)
{
    const char *text = getenv(name);
    char *end = NULL;
    const long value = text == NULL ? -1 : strtol(text, &end, 10);
    if (text == NULL || end == text || *end != '\0' || value < low || value > high)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s=%s is not a number from %ld to %ld", name,
                         text == NULL ? "" : text, low, high);
    *value_out = (int)value;
    return GYRE_SUCCESS;
}

/* MASTER_PORT, or the next port if torchrun's agent has its own store at MASTER_PORT. */
static gyre_status master_port(int *port_out)
{
    GYRE_TRY(read_number("MASTER_PORT", 1, 65535, port_out));
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (agent != NULL && strcmp(agent, "True") == 0)
        *port_out = *port_out == 65535 ? 1024 : *port_out + 1;
    return GYRE_SUCCESS;
}

static gyre_status resolve(int port, struct addrinfo **list_out)
{
    char service[16];
    const char *host = getenv("MASTER_ADDR");
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof(service), "%d", port);
    const int result = getaddrinfo(host, service, &hints, list_out);
    if (result != 0)
        return gyre_fail(GYRE_ERROR_SYSTEM, "MASTER_ADDR=%s: %s", host, gai_strerror(result));
    return GYRE_SUCCESS;
}

/* Listens on MASTER_ADDR itself, because rank 0 runs there. */
static gyre_status listen_on_master(int port, int *fd_out)
{
    struct addrinfo *list;
    GYRE_TRY(resolve(port, &list));
    int fd = -1;
    int error_number = EADDRNOTAVAIL;
    for (const struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        const int on = 1;
        if (fd >= 0)
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 1024) == 0)
            break;
        error_number = errno;
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    if (fd < 0)
        return gyre_fail_errno(error_number, "rank 0 cannot listen on MASTER_ADDR=%s port %d",
                               getenv("MASTER_ADDR"), port);
    *fd_out = fd;
    return GYRE_SUCCESS;
}

static void drop_pending(struct pending *pending, int *n_pending, int i)
{
    gyre_sock_close(pending[i].fd);
    pending[i] = pending[--*n_pending];
}

static bool is_expected(const struct bench_launcher *launcher, const struct hello *hello,
                        const struct connections *connections)
{
    return memcmp(hello->magic, magic, sizeof(magic)) == 0 &&
           hello->n_processes == (uint32_t)launcher->n_processes && hello->process > 0 &&
           hello->process < (uint32_t)launcher->n_processes && connections->fds[hello->process] < 0;
}

/* Reads what connection i has sent. Returns true if the connection left the list. */
static bool read_hello(struct bench_launcher *launcher, struct connections *connections,
                       struct pending *pending, int *n_pending, int i)
{
    struct pending *one = &pending[i];
    const ssize_t n = recv(one->fd, (char *)&one->hello + one->n_bytes,
                           sizeof(one->hello) - one->n_bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        drop_pending(pending, n_pending, i);
        return true;
    }
    if (n > 0)
        one->n_bytes += (size_t)n;
    if (one->n_bytes < sizeof(one->hello))
        return false;
    if (!is_expected(launcher, &one->hello, connections) ||
        gyre_sock_send(one->fd, magic, sizeof(magic), gyre_now_ns() + HELLO_NS) != GYRE_SUCCESS) {
        drop_pending(pending, n_pending, i);
        return true;
    }
    connections->fds[one->hello.process] = one->fd;
    *one = pending[--*n_pending];
    return true;
}

/* Lists the ranks that have not joined, each after a blank, as far as there is room. */
static void list_missing(const struct bench_launcher *launcher,
                         const struct connections *connections, char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    for (int i = 1; i < launcher->n_processes && strlen(text_out) < text_bytes - 16; i++)
        if (connections->fds[i] < 0)
            snprintf(text_out + strlen(text_out), text_bytes - strlen(text_out), " %d", i);
}

static void print_missing(const struct bench_launcher *launcher,
                          const struct connections *connections)
{
    char missing[256];
    list_missing(launcher, connections, missing, sizeof(missing));
    fprintf(stderr, "rank 0 waits for ranks%s to come to MASTER_ADDR=%s, %d s at most\n", missing,
            getenv("MASTER_ADDR"), JOIN_S);
}

static gyre_status fail_missing(const struct bench_launcher *launcher,
                                const struct connections *connections)
{
    char missing[256];
    list_missing(launcher, connections, missing, sizeof(missing));
    return gyre_fail(GYRE_ERROR_TIMEOUT, "ranks%s did not come to MASTER_ADDR=%s within %d s",
                     missing, getenv("MASTER_ADDR"), JOIN_S);
}

/* Accepts a connection. If there are too many silent connections, the oldest is dropped. */
static void accept_one(int listen_fd, struct pending *pending, int *n_pending)
{
    int fd = -1;
    if (gyre_sock_accept(listen_fd, 0, &fd) != GYRE_SUCCESS)
        return;
    if (*n_pending == MAX_PENDING)
        drop_pending(pending, n_pending, 0);
    pending[(*n_pending)++] = (struct pending){.fd = fd, .deadline_ns = gyre_now_ns() + HELLO_NS};
}

static gyre_status accept_processes(struct bench_launcher *launcher,
                                    struct connections *connections, int listen_fd)
{
    struct pending pending[MAX_PENDING];
    int n_pending = 0;
    int n_joined = 1;
    const uint64_t deadline_ns = gyre_now_ns() + JOIN_NS;
    uint64_t notice_ns = gyre_now_ns() + NOTICE_NS;
    while (n_joined < launcher->n_processes && gyre_now_ns() < deadline_ns) {
        struct pollfd fds[MAX_PENDING + 1] = {{.fd = listen_fd, .events = POLLIN}};
        for (int i = 0; i < n_pending; i++)
            fds[i + 1] = (struct pollfd){.fd = pending[i].fd, .events = POLLIN};
        poll(fds, (nfds_t)n_pending + 1, 100);
        for (int i = n_pending - 1; i >= 0; i--) {
            if (fds[i + 1].revents != 0)
                read_hello(launcher, connections, pending, &n_pending, i);
            else if (gyre_now_ns() > pending[i].deadline_ns)
                drop_pending(pending, &n_pending, i);
        }
        if (fds[0].revents != 0)
            accept_one(listen_fd, pending, &n_pending);
        n_joined = 1;
        for (int i = 1; i < launcher->n_processes; i++)
            n_joined += connections->fds[i] >= 0;
        if (n_joined < launcher->n_processes && gyre_now_ns() > notice_ns) {
            print_missing(launcher, connections);
            notice_ns = UINT64_MAX;
        }
    }
    while (n_pending > 0)
        drop_pending(pending, &n_pending, 0);
    return n_joined == launcher->n_processes ? GYRE_SUCCESS : fail_missing(launcher, connections);
}

static void to_address(const struct addrinfo *info, struct gyre_sock_address *address_out)
{
    *address_out = (struct gyre_sock_address){.family = (uint16_t)info->ai_family};
    if (info->ai_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, info->ai_addr, sizeof(v4));
        address_out->port = ntohs(v4.sin_port);
        memcpy(address_out->bytes, &v4.sin_addr, sizeof(v4.sin_addr));
    } else {
        struct sockaddr_in6 v6;
        memcpy(&v6, info->ai_addr, sizeof(v6));
        address_out->port = ntohs(v6.sin6_port);
        address_out->scope = v6.sin6_scope_id;
        memcpy(address_out->bytes, &v6.sin6_addr, sizeof(v6.sin6_addr));
    }
}

/* Tries each address of the master once, until one answers as rank 0 of a bench does. */
static gyre_status join_once(const struct bench_launcher *launcher, int port, uint64_t deadline_ns,
                             int *fd_out)
{
    struct hello hello = {.process = (uint32_t)launcher->process,
                          .n_processes = (uint32_t)launcher->n_processes};
    char answer[sizeof(magic)];
    struct addrinfo *list;
    memcpy(hello.magic, magic, sizeof(magic));
    GYRE_TRY(resolve(port, &list));
    gyre_status status = GYRE_ERROR_SYSTEM;
    for (const struct addrinfo *at = list; at != NULL && status != GYRE_SUCCESS; at = at->ai_next) {
        struct gyre_sock_address address;
        const uint64_t attempt_ns = gyre_min_u64(deadline_ns, gyre_now_ns() + 2 * HELLO_NS);
        to_address(at, &address);
        status = gyre_sock_connect(&address, attempt_ns, fd_out);
        if (status != GYRE_SUCCESS)
            continue;
        status = gyre_sock_send(*fd_out, &hello, sizeof(hello), attempt_ns);
        if (status == GYRE_SUCCESS)
            status = gyre_sock_recv(*fd_out, answer, sizeof(answer), attempt_ns);
        if (status == GYRE_SUCCESS && memcmp(answer, magic, sizeof(magic)) != 0)
            status = gyre_fail(GYRE_ERROR_REMOTE, "another program listens there");
        if (status != GYRE_SUCCESS)
            gyre_sock_close(*fd_out);
    }
    freeaddrinfo(list);
    return status;
}

static gyre_status join(const struct bench_launcher *launcher, int port, int *fd_out)
{
    const uint64_t deadline_ns = gyre_now_ns() + JOIN_NS;
    uint64_t notice_ns = gyre_now_ns() + NOTICE_NS;
    for (;;) {
        const gyre_status status = join_once(launcher, port, deadline_ns, fd_out);
        if (status == GYRE_SUCCESS)
            return status;
        if (gyre_now_ns() >= deadline_ns)
            return gyre_fail_context(status,
                                     "rank %d cannot reach rank 0 at MASTER_ADDR=%s port %d",
                                     launcher->process, getenv("MASTER_ADDR"), port);
        if (gyre_now_ns() > notice_ns) {
            fprintf(stderr,
                    "rank %d waits for rank 0 to listen at MASTER_ADDR=%s port %d, %d s at most\n",
                    launcher->process, getenv("MASTER_ADDR"), port, JOIN_S);
            notice_ns = UINT64_MAX;
        }
        poll(NULL, 0, 50); /* another program may listen there now and be gone soon */
    }
}

static void torchrun_close(struct bench_launcher *launcher)
{
    struct connections *connections = launcher->state;
    for (int i = 0; i < connections->n_fds; i++)
        if (connections->fds[i] >= 0)
            gyre_sock_close(connections->fds[i]);
    free(connections->fds);
    free(connections);
    launcher->state = NULL;
}

/* A timeout for data that a peer does not acknowledge. Keepalive finds a host that is gone only
 * while no data is on its way to it. */
static void limit_silence(const struct connections *connections)
{
    const unsigned int silence_ms = SILENCE_MS;
    for (int i = 0; i < connections->n_fds; i++)
        if (connections->fds[i] >= 0)
            (void)setsockopt(connections->fds[i], IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms,
                             sizeof(silence_ms));
}

static gyre_status torchrun_open(struct bench_launcher *launcher)
{
    int port = 0;
    GYRE_TRY(read_number("WORLD_SIZE", 1, 65535, &launcher->n_processes));
    GYRE_TRY(read_number("RANK", 0, launcher->n_processes - 1, &launcher->process));
    GYRE_TRY(master_port(&port));
    struct connections *connections = calloc(1, sizeof(*connections));
    const int n_fds = launcher->process == 0 ? launcher->n_processes : 1;
    if (connections != NULL)
        connections->fds = malloc((size_t)n_fds * sizeof(*connections->fds));
    if (connections == NULL || connections->fds == NULL) {
        free(connections);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d connections", n_fds);
    }
    connections->n_fds = n_fds;
    for (int i = 0; i < n_fds; i++)
        connections->fds[i] = -1;
    launcher->state = connections;
    gyre_status status = GYRE_SUCCESS;
    if (launcher->process > 0) {
        status = join(launcher, port, &connections->fds[0]);
        if (status != GYRE_SUCCESS)
            connections->fds[0] = -1;
    } else if (launcher->n_processes > 1) {
        int listen_fd = -1;
        status = listen_on_master(port, &listen_fd);
        if (status == GYRE_SUCCESS) {
            status = accept_processes(launcher, connections, listen_fd);
            close(listen_fd);
        }
    }
    limit_silence(connections);
    if (status != GYRE_SUCCESS)
        torchrun_close(launcher);
    return status;
}

static gyre_status torchrun_all_gather(struct bench_launcher *launcher, const void *mine,
                                       size_t n_bytes, void *all_out)
{
    const struct connections *connections = launcher->state;
    const size_t n_all_bytes = n_bytes * (size_t)launcher->n_processes;
    const uint64_t deadline_ns = gyre_now_ns() + GATHER_NS;
    if (launcher->process > 0) {
        gyre_status status = gyre_sock_send(connections->fds[0], mine, n_bytes, deadline_ns);
        if (status == GYRE_SUCCESS)
            status = gyre_sock_recv(connections->fds[0], all_out, n_all_bytes, deadline_ns);
        return status == GYRE_SUCCESS
                   ? status
                   : gyre_fail_context(status, "the connection to rank 0's process");
    }
    memcpy(all_out, mine, n_bytes);
    for (int i = 1; i < launcher->n_processes; i++) {
        const gyre_status status = gyre_sock_recv(
            connections->fds[i], (char *)all_out + (size_t)i * n_bytes, n_bytes, deadline_ns);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "the connection to process %d", i);
    }
    for (int i = 1; i < launcher->n_processes; i++) {
        const gyre_status status =
            gyre_sock_send(connections->fds[i], all_out, n_all_bytes, deadline_ns);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "the connection to process %d", i);
    }
    return GYRE_SUCCESS;
}

const struct bench_launcher_ops bench_launcher_torchrun = {
    .name = "torchrun",
    .open = torchrun_open,
    .all_gather = torchrun_all_gather,
    .close = torchrun_close,
};
