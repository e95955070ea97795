/* SPDX-License-Identifier: Apache-2.0
 *
 * Nothing blocks. A stranger costs a fixed buffer and five seconds. Only a proved link gets memory,
 * up to its frame type's cap.
 */
#include "bootstrap/bootstrap_server.h"

#include "bootstrap/meet.h"
#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define STRANGER_DEADLINE_NS 5000000000ULL
#define READS_PER_TURN       16

void gyre_server_link_kill(struct gyre_server_link *link, const char *death)
{
    if (!link->is_dead)
        snprintf(link->death, sizeof(link->death), "%s", death);
    link->is_dead = true;
}

static void kill_with(struct gyre_server_link *link, int error_number)
{
    char text[sizeof(link->death)];
    gyre_server_link_kill(
        link, gyre_wire_end_text(link->fd, error_number, &link->watch, text, sizeof(text)));
}

static void drop_first_out(struct gyre_server_link *link)
{
    struct gyre_server_out *out = link->first_out;
    link->first_out = out->next;
    if (link->first_out == NULL)
        link->last_out = NULL;
    link->n_out_offset = 0;
    link->n_queued_bytes -= out->buffer->n_bytes;
    gyre_server_buffer_drop(out->buffer);
    free(out);
}

static void write_link(struct gyre_server *server, struct gyre_server_link *link)
{
    while (link->first_out != NULL && !link->is_dead) {
        const struct gyre_server_buffer *buffer = link->first_out->buffer;
        const ssize_t n_sent = send(link->fd, buffer->bytes + link->n_out_offset,
                                    buffer->n_bytes - link->n_out_offset, MSG_NOSIGNAL);
        if (n_sent >= 0) {
            link->n_out_offset += (size_t)n_sent;
            if (link->n_out_offset == buffer->n_bytes)
                drop_first_out(link);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            /* A goodbye may not be read yet. */
            while (link->first_out != NULL)
                drop_first_out(link);
        } else if (errno != EINTR) {
            kill_with(link, errno);
        }
    }
    if (link->is_dead)
        return;
    const bool wants_out = link->first_out != NULL;
    struct epoll_event event = {.events = EPOLLIN | (wants_out ? (uint32_t)EPOLLOUT : 0U),
                                .data.ptr = link};
    if (link->wants_out != wants_out &&
        epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, link->fd, &event) != 0)
        gyre_server_link_kill(link, "could not be watched by the rendezvous");
    link->wants_out = wants_out;
    /* Closing first could lose the last frame. */
    if (!wants_out && link->phase == GYRE_LINK_FINISHING)
        shutdown(link->fd, SHUT_WR);
}

void gyre_server_link_send(struct gyre_server *server, struct gyre_server_link *link,
                           struct gyre_server_buffer *buffer)
{
    struct gyre_server_out *out = buffer == NULL ? NULL : calloc(1, sizeof(*out));
    if (out == NULL) {
        gyre_server_link_kill(link, "was given up: the rendezvous ran out of memory");
        return;
    }
    buffer->n_users++;
    out->buffer = buffer;
    if (link->last_out != NULL)
        link->last_out->next = out;
    else
        link->first_out = out;
    link->last_out = out;
    link->n_queued_bytes += buffer->n_bytes;
    write_link(server, link);
}

static void add_link(struct gyre_server *server, int fd)
{
    struct gyre_server_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        gyre_sock_close(fd);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    if (!gyre_stranger_greet(&link->stranger, fd) ||
        epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        gyre_sock_close(fd);
        free(link);
        return;
    }
    link->fd = fd;
    gyre_wire_watch_start(fd, &link->watch);
    link->phase = GYRE_LINK_STRANGER;
    link->deadline_ns = link->stranger.born_ns + STRANGER_DEADLINE_NS;
    link->next = server->links;
    server->links = link;
    server->n_strangers++;
}

static void free_link(struct gyre_server *server, struct gyre_server_link *link)
{
    if (link->phase == GYRE_LINK_STRANGER) {
        server->n_strangers--;
        server->n_dropped++;
    }
    while (link->first_out != NULL)
        drop_first_out(link);
    /* A forked child's copy would keep it in the set. */
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
    gyre_sock_close(link->fd);
    free(link->payload);
    free(link->gathered);
    free(link);
}

static void on_bytes(struct gyre_server *server, struct gyre_server_link *link, size_t n_bytes)
{
    link->n_read += n_bytes;
    if (link->n_read == sizeof(link->frame)) {
        const uint32_t type = link->frame.type;
        const bool is_new = link->phase == GYRE_LINK_PROVED;
        int64_t cap = -1;
        if (type == GYRE_FRAME_FAIL)
            cap = GYRE_TEXT_MAX_BYTES - 1;
        else if (type == GYRE_FRAME_JOIN && is_new)
            cap = (int64_t)sizeof(struct gyre_frame_join);
        else if (type == GYRE_FRAME_GATHER && !is_new)
            cap = (int64_t)gyre_gather_cap(server->n_ranks);
        else if (type == GYRE_FRAME_POST && !is_new)
            cap = GYRE_MESSAGE_MAX_BYTES;
        else if (type == GYRE_FRAME_LEAVE && !is_new)
            cap = 0;
        if (cap < 0 || link->frame.n_bytes > cap) {
            gyre_server_link_kill(link, "closed its connection after a malformed frame");
            return;
        }
        link->payload = calloc(1, (size_t)link->frame.n_bytes + 1);
        if (link->payload == NULL)
            gyre_server_link_kill(link, "was given up: the rendezvous ran out of memory");
    }
    if (link->is_dead || link->n_read < sizeof(link->frame) ||
        link->n_read < sizeof(link->frame) + link->frame.n_bytes)
        return;
    gyre_server_on_frame(server, link);
    free(link->payload);
    link->payload = NULL;
    link->n_read = 0;
}

static void read_link(struct gyre_server *server, struct gyre_server_link *link)
{
    uint8_t trash[4096];
    if (link->phase == GYRE_LINK_STRANGER) {
        const enum gyre_stranger_state state = gyre_stranger_read(&link->stranger, server->secret);
        if (state != GYRE_STRANGER_WAITS)
            gyre_authenticate_release();
        if (state == GYRE_STRANGER_REFUSED) {
            gyre_server_link_kill(link, "is a stranger");
        } else if (state == GYRE_STRANGER_PROVED) {
            server->n_strangers--;
            link->phase = GYRE_LINK_PROVED;
            /* A rank of this job, that a busy machine may hold up. */
            link->deadline_ns = gyre_now_ns() + server->timeout_ns;
        }
    }
    for (int turn = 0; turn < READS_PER_TURN && !link->is_dead && link->phase != GYRE_LINK_STRANGER;
         turn++) {
        uint8_t *target = trash;
        size_t n_wanted = sizeof(trash);
        if (link->phase != GYRE_LINK_FINISHING && link->n_read < sizeof(link->frame)) {
            target = (uint8_t *)&link->frame + link->n_read;
            n_wanted = sizeof(link->frame) - link->n_read;
        } else if (link->phase != GYRE_LINK_FINISHING) {
            target = link->payload + (link->n_read - sizeof(link->frame));
            n_wanted = sizeof(link->frame) + link->frame.n_bytes - link->n_read;
        }
        const ssize_t n_got = recv(link->fd, target, n_wanted, 0);
        if (n_got > 0) {
            if (link->phase != GYRE_LINK_FINISHING)
                on_bytes(server, link, (size_t)n_got);
        } else if (n_got == 0) {
            kill_with(link, 0);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            kill_with(link, errno);
        }
    }
}

#define REFUSED_NS    (GYRE_SECOND_NS / 2)

#define RESERVE_FILES 64

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
        free_link(server, link);
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

/* Strangers give their descriptors back after a while. Otherwise the ranks are told one after the
 * other, with the spare descriptor and a higher limit. */
static void note_refusal(struct gyre_server *server)
{
    const uint64_t now_ns = gyre_now_ns();
    struct rlimit files;
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
    close(server->spare_fd);
    server->spare_fd = -1;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= files.rlim_max)
        return;
    server->n_files = files.rlim_cur;
    files.rlim_cur = (rlim_t)gyre_min_u64(files.rlim_max, files.rlim_cur + RESERVE_FILES);
    (void)setrlimit(RLIMIT_NOFILE, &files);
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
            add_link(server, fd);
        } else {
            if (status != GYRE_ERROR_TIMEOUT)
                note_refusal(server);
            return;
        }
    }
}

static void free_server(struct gyre_server *server)
{
    struct rlimit files;
    while (server->links != NULL) {
        struct gyre_server_link *link = server->links;
        server->links = link->next;
        free_link(server, link);
    }
    gyre_sock_close_all(&server->listeners);
    if (server->epoll_fd >= 0)
        close(server->epoll_fd);
    if (server->spare_fd >= 0)
        close(server->spare_fd);
    if (server->n_files != 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = server->n_files;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    free(server->ranks);
    explicit_bzero(server->secret, sizeof(server->secret));
    free(server);
}

/* A process that exits after its own error first lets its servers tell the ranks. A forked child
 * has none. */
static uint32_t n_serving;

static void forget_servers(void)
{
    gyre_store_release_u32(&n_serving, 0);
}

GYRE_WATCH_FORKS(NULL, forget_servers)

__attribute__((destructor)) static void finish_serving(void)
{
    const uint64_t deadline_ns = gyre_now_ns() + 2 * GYRE_SECOND_NS;
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
    /* A failed job waits for late ranks until its deadline. */
    while (server->is_complete ? server->links != NULL
                               : gyre_now_ns() < server->deadline_ns ||
                                     (!server->has_failed && server->n_ranks != 0)) {
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
                continue; /* accepting may free links that have events */
            if (!link->is_dead && (events[i].events & (uint32_t)EPOLLOUT) != 0)
                write_link(server, link);
            if (!link->is_dead && (events[i].events & ~(uint32_t)EPOLLOUT) != 0)
                read_link(server, link);
        }
        if (is_called) {
            for (int i = 0; i < server->listeners.n; i++)
                accept_some(server, server->listeners.fds[i]);
        }
        if (gyre_now_ns() >= next_check_ns) {
            const uint64_t now_ns = gyre_now_ns();
            for (struct gyre_server_link *link = server->links; link != NULL; link = link->next) {
                if (link->phase != GYRE_LINK_RANK && now_ns >= link->deadline_ns) {
                    gyre_server_link_kill(link, "took too long");
                } else if (link->phase == GYRE_LINK_RANK &&
                           gyre_wire_is_silent(link->fd, &link->watch)) {
                    kill_with(link, ETIMEDOUT);
                    gyre_wire_reset(link->fd);
                }
            }
            gyre_server_check_deadlines(server, now_ns);
            if (!server->is_accepting)
                set_accepting(server, true);
            next_check_ns = gyre_now_ns() + (is_joining ? GYRE_SECOND_NS / 10 : GYRE_SECOND_NS);
        }
        sweep(server);
    }
    free_server(server);
    if (is_serving)
        gyre_fetch_add_u32(&n_serving, UINT32_MAX);
    return NULL;
}

gyre_status gyre_server_start(const struct gyre_params *params, struct gyre_id_layout *id_out)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_t thread;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    struct gyre_sock_address master[GYRE_MEET_MAX_ADDRESSES];
    const char *name = gyre_param_master_address();
    const struct gyre_meet_place place = {.source = "MASTER_ADDR", .address = name};
    const bool has_master =
        name != NULL && name[0] != '\0' && gyre_meet_addresses(&place, master) > 0;
    struct gyre_server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "the rendezvous");
    server->epoll_fd = -1;
    server->spare_fd = -1;
    server->is_accepting = true;
    server->timeout_ns =
        (uint64_t)gyre_param_number(params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * GYRE_SECOND_NS;
    server->deadline_ns = gyre_now_ns() + server->timeout_ns;
    GYRE_TRY_GOTO(status, gyre_random_bytes(server->secret, sizeof(server->secret)), free_server);
    GYRE_TRY_GOTO(
        status,
        gyre_sock_listen_all(params, has_master ? master : NULL, &server->listeners, &id_out->list),
        free_server);
    gyre_sock_list_to_text(server->listeners.addresses, server->listeners.n, server->address_text,
                           sizeof(server->address_text));
    server->epoll_fd = gyre_descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
    bool is_watched = server->epoll_fd >= 0;
    for (int i = 0; i < server->listeners.n && is_watched; i++)
        is_watched =
            epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->listeners.fds[i], &event) == 0;
    if (is_watched)
        server->spare_fd = fcntl(server->epoll_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (server->spare_fd < 0) {
        status = gyre_fail_errno(errno, "epoll of the rendezvous");
        goto free_server;
    }
    /* The thread owns the server once it runs. */
    memcpy(id_out->secret, server->secret, sizeof(id_out->secret));
    GYRE_TRY_GOTO(status, gyre_thread_start(&thread, 0, run_server, server, "the rendezvous"),
                  free_server);
    pthread_detach(thread);
    return GYRE_SUCCESS;

free_server:
    free_server(server);
    return status;
}
