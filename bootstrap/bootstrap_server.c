/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous server. It lets ranks join, gathers their bytes, relays their messages, and tells
 * all ranks when one has gone. It is a detached thread of the process that made the unique id. It
 * ends when no rank is linked to it any more, or when no rank has come for BOOTSTRAP_TIMEOUT.
 */
#include "bootstrap/bootstrap_server.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS     1000000000ULL
#define REFUSED_NS    (SECOND_NS / 2)

#define RESERVE_FILES 64

/* Telling the other ranks may show that more links have ended. */
static void sweep(struct gyre_server *server)
{
    struct gyre_server_link **at = &server->links;
    while (*at != NULL) {
        struct gyre_server_link *link = *at;
        if (!link->is_dead) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        gyre_server_on_end(server, link);
        gyre_server_link_free(server, link);
        at = &server->links;
    }
}

static void set_accepting(struct gyre_server *server, bool is_accepting)
{
    struct epoll_event event = {.events = is_accepting ? (uint32_t)EPOLLIN : 0U, .data.ptr = NULL};
    for (int i = 0; i < server->listeners.n && server->is_accepting != is_accepting; i++)
        epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listeners.fds[i], &event);
    server->is_accepting = is_accepting;
}

static bool make_room(struct gyre_server *server)
{
    struct gyre_server_link *oldest = NULL;
    if (gyre_stranger_room(server->n_strangers, NULL) == GYRE_STRANGER_ROOM)
        return true;
    for (struct gyre_server_link *link = server->links; link != NULL; link = link->next) {
        if (link->phase == GYRE_LINK_STRANGER && !link->is_dead)
            oldest = link; /* the list is youngest first */
    }
    const enum gyre_stranger_room room =
        gyre_stranger_room(server->n_strangers, oldest != NULL ? &oldest->stranger : NULL);
    if (room != GYRE_STRANGER_EVICT)
        return room == GYRE_STRANGER_ROOM;
    gyre_server_link_kill(oldest, "is a stranger");
    sweep(server);
    return true;
}

/* Finds a descriptor with which one rank after the other is told that there is none: the spare one,
 * and where its number is past the limit, a higher limit as long as the server lives. */
static void use_reserve(struct gyre_server *server)
{
    struct rlimit files;
    close(server->spare_fd);
    server->spare_fd = -1;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= files.rlim_max)
        return;
    server->n_files = files.rlim_cur;
    files.rlim_cur = (rlim_t)gyre_min_u64(files.rlim_max, files.rlim_cur + RESERVE_FILES);
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

static void return_reserve(struct gyre_server *server)
{
    struct rlimit files;
    if (server->spare_fd >= 0)
        close(server->spare_fd);
    if (server->n_files == 0 || getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = server->n_files;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

/* Strangers give their descriptors back after a while. */
static void note_refusal(struct gyre_server *server)
{
    const uint64_t now_ns = gyre_now_ns();
    char host[65] = "";
    GYRE_INFO(BOOTSTRAP, "init: the rendezvous could not accept: %s", gyre_cause());
    set_accepting(server, false);
    if (server->refused_ns == 0)
        server->refused_ns = now_ns;
    if (now_ns - server->refused_ns < REFUSED_NS || server->spare_fd < 0)
        return;
    gethostname(host, sizeof(host) - 1);
    gyre_server_fail(server, GYRE_ERROR_SYSTEM,
                     "init: the rendezvous (pid %d on %s) cannot take the connections of ranks: %s",
                     (int)getpid(), host, gyre_cause());
    use_reserve(server);
}

static void accept_some(struct gyre_server *server, int listen_fd)
{
    for (int i = 0; i < 64; i++) {
        int fd = -1;
        if (!make_room(server)) {
            set_accepting(server, false);
            return;
        }
        const gyre_status status = gyre_sock_accept(listen_fd, 0, &fd);
        if (status == GYRE_SUCCESS) {
            server->refused_ns = 0;
            gyre_server_link_add(server, fd);
        } else {
            if (status != GYRE_ERROR_TIMEOUT)
                note_refusal(server);
            return;
        }
    }
}

static void check_time(struct gyre_server *server)
{
    const uint64_t now_ns = gyre_now_ns();
    for (struct gyre_server_link *link = server->links; link != NULL; link = link->next) {
        if (link->phase != GYRE_LINK_RANK && now_ns >= link->deadline_ns)
            gyre_server_link_kill(link, "took too long");
        else if (link->phase == GYRE_LINK_RANK && gyre_wire_is_silent(link->fd, &link->watch))
            gyre_server_link_kill_silent(link);
    }
    gyre_server_check_deadlines(server, now_ns);
    if (!server->is_accepting)
        set_accepting(server, true);
}

static bool is_over(const struct gyre_server *server)
{
    if (server->is_complete)
        return server->links == NULL;
    /* No rank came; or the job has failed, and the time for late ranks is over. */
    return gyre_now_ns() >= server->deadline_ns && (server->has_failed || server->n_ranks == 0);
}

static void free_server(struct gyre_server *server)
{
    while (server->links != NULL) {
        struct gyre_server_link *link = server->links;
        server->links = link->next;
        gyre_server_link_free(server, link);
    }
    gyre_sock_close_all(&server->listeners);
    if (server->epoll_fd >= 0)
        close(server->epoll_fd);
    return_reserve(server);
    free(server->ranks);
    explicit_bzero(server->secret, sizeof(server->secret));
    free(server);
}

/* A process that exits right after its own error must first let its servers tell the other ranks.
 * The count belongs to the process; a forked child has none of the servers. */
static uint32_t n_serving;

static void forget_servers(void)
{
    gyre_store_release_u32(&n_serving, 0);
}

GYRE_WATCH_FORKS(NULL, forget_servers)

__attribute__((destructor)) static void finish_serving(void)
{
    const uint64_t deadline_ns = gyre_now_ns() + 2 * SECOND_NS;
    const struct timespec nap = {0, 1000000};
    while (gyre_load_acquire_u32(&n_serving) > 0 && gyre_now_ns() < deadline_ns)
        nanosleep(&nap, NULL);
}

static void *run_server(void *context)
{
    enum { MAX_EVENTS = 64 };
    struct gyre_server *server = context;
    struct epoll_event events[MAX_EVENTS];
    uint64_t next_check_ns = 0;
    bool is_serving = false;
    while (!is_over(server)) {
        if (is_serving != (server->links != NULL)) {
            is_serving = !is_serving;
            gyre_fetch_add_u32(&n_serving, is_serving ? 1 : UINT32_MAX);
        }
        const bool is_joining = !server->is_complete || server->n_gathered > 0;
        const int n_events =
            epoll_wait(server->epoll_fd, events, MAX_EVENTS, is_joining ? 100 : 1000);
        bool is_called = false;
        for (int i = 0; i < n_events; i++) {
            struct gyre_server_link *link = events[i].data.ptr;
            is_called = is_called || link == NULL;
            if (link == NULL)
                continue; /* accepting may free links, so it comes after the links' own events */
            if (!link->is_dead && (events[i].events & (uint32_t)EPOLLOUT) != 0)
                gyre_server_link_write(server, link);
            if (!link->is_dead && (events[i].events & ~(uint32_t)EPOLLOUT) != 0)
                gyre_server_link_read(server, link);
        }
        if (is_called) {
            for (int i = 0; i < server->listeners.n; i++)
                accept_some(server, server->listeners.fds[i]);
        }
        if (gyre_now_ns() >= next_check_ns) {
            check_time(server);
            next_check_ns = gyre_now_ns() + (is_joining ? SECOND_NS / 10 : SECOND_NS);
        }
        sweep(server);
    }
    free_server(server);
    if (is_serving)
        gyre_fetch_add_u32(&n_serving, UINT32_MAX);
    return NULL;
}

static gyre_status start_thread(struct gyre_server *server)
{
    pthread_t thread;
    GYRE_TRY(gyre_thread_start(&thread, 0, run_server, server, "the rendezvous"));
    pthread_detach(thread);
    return GYRE_SUCCESS;
}

static gyre_status watch_listeners(struct gyre_server *server)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    server->epoll_fd = gyre_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    bool is_watched = server->epoll_fd >= 0;
    for (int i = 0; i < server->listeners.n && is_watched; i++)
        is_watched =
            epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->listeners.fds[i], &event) == 0;
    if (is_watched)
        server->spare_fd = fcntl(server->epoll_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    return server->spare_fd >= 0 ? GYRE_SUCCESS : gyre_fail_errno(errno, "epoll of the rendezvous");
}

/* The launcher's address has just worked, so a rank should try it first. */
static bool find_master(struct gyre_sock_address *address_out)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const char *name = gyre_param_master_address();
    struct addrinfo *list = NULL;
    if (name == NULL || name[0] == '\0' || getaddrinfo(name, NULL, &hints, &list) != 0)
        return false;
    *address_out = gyre_sock_from_sockaddr(list->ai_addr);
    freeaddrinfo(list);
    return address_out->family != 0;
}

gyre_status gyre_server_start(const struct gyre_params *params, struct gyre_id_layout *id_out)
{
    gyre_status status = GYRE_SUCCESS;
    struct gyre_sock_address master;
    const bool has_master = find_master(&master);
    struct gyre_server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "the rendezvous");
    server->epoll_fd = -1;
    server->spare_fd = -1;
    server->is_accepting = true;
    server->timeout_ns =
        (uint64_t)gyre_param_number(params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * SECOND_NS;
    server->deadline_ns = gyre_now_ns() + server->timeout_ns;
    GYRE_TRY_GOTO(status, gyre_random_bytes(server->secret, sizeof(server->secret)), free_server);
    GYRE_TRY_GOTO(status,
                  gyre_sock_listen_all(params, has_master ? &master : NULL, &server->listeners,
                                       &id_out->list),
                  free_server);
    gyre_sock_list_to_text(server->listeners.addresses, server->listeners.n, server->address_text,
                           sizeof(server->address_text));
    GYRE_TRY_GOTO(status, watch_listeners(server), free_server);
    /* Before the thread starts, which owns the server from then on. */
    memcpy(id_out->secret, server->secret, sizeof(id_out->secret));
    GYRE_TRY_GOTO(status, start_thread(server), free_server);
    return GYRE_SUCCESS;

free_server:
    free_server(server);
    return status;
}
