/* SPDX-License-Identifier: Apache-2.0
 *
 * The hub: lets ranks join, gathers, relays, and tells everyone who is gone. It lives in a detached
 * thread of the process that made the unique id, as long as a rank is linked to it, or until
 * nobody came in BOOTSTRAP_TIMEOUT.
 */
#include "bootstrap/bootstrap_hub.h"

#include "core/base/log.h"
#include "core/base/sync.h"
#include "core/base/thread.h"
#include "core/base/util.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000ULL

/* ---- the loop --------------------------------------------------------------------------- */

/* End the dead; telling the others may show more of them dead. */
static void sweep(struct gyre_hub *hub)
{
    struct gyre_hub_link **at = &hub->links;
    while (*at != NULL) {
        struct gyre_hub_link *link = *at;
        if (!link->is_dead) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        gyre_hub_on_end(hub, link);
        gyre_hub_link_free(hub, link);
        at = &hub->links;
    }
}

static void set_accepting(struct gyre_hub *hub, bool is_accepting)
{
    struct epoll_event event = {.events = is_accepting ? (uint32_t)EPOLLIN : 0U, .data.ptr = NULL};
    if (hub->listen_fd >= 0 && hub->is_accepting != is_accepting)
        epoll_ctl(hub->epoll_fd, EPOLL_CTL_MOD, hub->listen_fd, &event);
    hub->is_accepting = is_accepting;
}

static bool make_room(struct gyre_hub *hub)
{
    struct gyre_hub_link *oldest = NULL;
    if (gyre_stranger_room(hub->n_strangers, NULL) == GYRE_STRANGER_ROOM)
        return true;
    for (struct gyre_hub_link *link = hub->links; link != NULL; link = link->next) {
        if (link->phase == GYRE_LINK_STRANGER && !link->is_dead)
            oldest = link; /* the list is youngest first */
    }
    const enum gyre_stranger_room room =
        gyre_stranger_room(hub->n_strangers, oldest != NULL ? &oldest->stranger : NULL);
    if (room != GYRE_STRANGER_EVICT)
        return room == GYRE_STRANGER_ROOM;
    gyre_hub_link_kill(oldest, "is a stranger");
    sweep(hub);
    return true;
}

static void accept_some(struct gyre_hub *hub)
{
    for (int i = 0; i < 64 && hub->listen_fd >= 0; i++) {
        int fd = -1;
        if (!make_room(hub)) {
            set_accepting(hub, false);
            return;
        }
        const gyre_status status = gyre_sock_accept(hub->listen_fd, 0, &fd);
        if (status == GYRE_SUCCESS) {
            gyre_hub_link_add(hub, fd);
        } else {
            if (status != GYRE_ERROR_TIMEOUT) { /* e.g. out of file descriptors: pause */
                GYRE_INFO(BOOTSTRAP, "init: the rendezvous could not accept: %s", gyre_cause());
                set_accepting(hub, false);
            }
            return;
        }
    }
}

static void check_time(struct gyre_hub *hub)
{
    const uint64_t now_ns = gyre_now_ns();
    for (struct gyre_hub_link *link = hub->links; link != NULL; link = link->next) {
        if (link->phase != GYRE_LINK_RANK && now_ns >= link->deadline_ns)
            gyre_hub_link_kill(link, "took too long");
        else if (link->phase == GYRE_LINK_RANK && gyre_wire_is_silent(link->fd, &link->watch))
            gyre_hub_link_kill_silent(link);
    }
    gyre_hub_check_deadlines(hub, now_ns);
    if (!hub->is_accepting)
        set_accepting(hub, true);
}

static bool is_over(const struct gyre_hub *hub)
{
    if (hub->is_complete)
        return hub->links == NULL;
    /* Nobody came, or the failed job's latecomers had their time. */
    return gyre_now_ns() >= hub->deadline_ns && (hub->has_failed || hub->n_ranks == 0);
}

static void free_hub(struct gyre_hub *hub)
{
    while (hub->links != NULL) {
        struct gyre_hub_link *link = hub->links;
        hub->links = link->next;
        gyre_hub_link_free(hub, link);
    }
    if (hub->listen_fd >= 0)
        gyre_sock_close(hub->listen_fd);
    if (hub->epoll_fd >= 0)
        close(hub->epoll_fd);
    free(hub->ranks);
    explicit_bzero(hub->secret, sizeof(hub->secret));
    free(hub);
}

/* Process-wide, because the end of the process is: how many hubs of which process serve ranks. A
 * process that exits right after its own error must not cut off what the others are to hear. */
static uint32_t n_serving;
static uint32_t serving_pid;

__attribute__((destructor)) static void finish_serving(void)
{
    const uint64_t deadline_ns = gyre_now_ns() + 2 * SECOND_NS;
    const struct timespec nap = {0, 1000000};
    while (gyre_load_acquire_u32(&serving_pid) == (uint32_t)getpid() &&
           gyre_load_acquire_u32(&n_serving) > 0 && gyre_now_ns() < deadline_ns)
        nanosleep(&nap, NULL);
}

static void *run_hub(void *context)
{
    enum { MAX_EVENTS = 64 };
    struct gyre_hub *hub = context;
    struct epoll_event events[MAX_EVENTS];
    uint64_t next_check_ns = 0;
    bool is_serving = false;
    while (!is_over(hub)) {
        if (is_serving != (hub->links != NULL)) {
            is_serving = !is_serving;
            gyre_fetch_add_u32(&n_serving, is_serving ? 1 : UINT32_MAX);
        }
        const bool is_joining = !hub->is_complete || hub->n_gathered > 0;
        const int n_events = epoll_wait(hub->epoll_fd, events, MAX_EVENTS, is_joining ? 100 : 1000);
        for (int i = 0; i < n_events; i++) {
            struct gyre_hub_link *link = events[i].data.ptr;
            if (link == NULL)
                continue; /* accepting may sweep, so it comes after the links' own events */
            if (!link->is_dead && (events[i].events & (uint32_t)EPOLLOUT) != 0)
                gyre_hub_link_write(hub, link);
            if (!link->is_dead && (events[i].events & ~(uint32_t)EPOLLOUT) != 0)
                gyre_hub_link_read(hub, link);
        }
        for (int i = 0; i < n_events; i++) {
            if (events[i].data.ptr == NULL)
                accept_some(hub);
        }
        if (gyre_now_ns() >= next_check_ns) {
            check_time(hub);
            next_check_ns = gyre_now_ns() + (is_joining ? SECOND_NS / 10 : SECOND_NS);
        }
        sweep(hub);
    }
    free_hub(hub);
    if (is_serving)
        gyre_fetch_add_u32(&n_serving, UINT32_MAX);
    return NULL;
}

static gyre_status start_thread(struct gyre_hub *hub)
{
    pthread_t thread;
    GYRE_TRY(gyre_thread_start(&thread, 0, run_hub, hub, "the rendezvous"));
    pthread_detach(thread);
    return GYRE_SUCCESS;
}

gyre_status gyre_hub_start(const struct gyre_params *params, struct gyre_id_layout *id_out)
{
    struct gyre_sock_interface interface;
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(gyre_sock_choose(params, &interface));
    struct gyre_hub *hub = calloc(1, sizeof(*hub));
    if (hub == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "the rendezvous");
    hub->epoll_fd = -1;
    hub->listen_fd = -1;
    hub->is_accepting = true;
    hub->timeout_ns = (uint64_t)gyre_param_number(params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * SECOND_NS;
    hub->deadline_ns = gyre_now_ns() + hub->timeout_ns;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    GYRE_TRY_GOTO(status, gyre_random_bytes(hub->secret, sizeof(hub->secret)), free_hub);
    GYRE_TRY_GOTO(status, gyre_sock_listen(&interface.address, &hub->listen_fd, &hub->address),
                  free_hub);
    hub->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (hub->epoll_fd < 0 || epoll_ctl(hub->epoll_fd, EPOLL_CTL_ADD, hub->listen_fd, &event) != 0) {
        status = gyre_fail_errno(errno, "epoll of the rendezvous");
        goto free_hub;
    }
    /* Before the thread owns them. */
    id_out->address = hub->address;
    memcpy(id_out->secret, hub->secret, sizeof(id_out->secret));
    gyre_store_release_u32(&serving_pid, (uint32_t)getpid());
    GYRE_TRY_GOTO(status, start_thread(hub), free_hub);
    return GYRE_SUCCESS;

free_hub:
    free_hub(hub);
    return status;
}
