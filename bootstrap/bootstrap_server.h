/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous server: a detached thread of the process that made the unique id. It ends when no
 * rank is linked, or none has come for BOOTSTRAP_TIMEOUT. Only its thread uses this.
 */
#ifndef GYRE_BOOTSTRAP_SERVER_H
#define GYRE_BOOTSTRAP_SERVER_H

#include "bootstrap/bootstrap_wire.h"

#include <sys/resource.h>

struct gyre_server_buffer {
    int n_users;
    size_t n_bytes;
    uint8_t bytes[];
};

struct gyre_server_out {
    struct gyre_server_out *next;
    struct gyre_server_buffer *buffer;
};

enum gyre_link_phase { GYRE_LINK_STRANGER, GYRE_LINK_PROVED, GYRE_LINK_RANK, GYRE_LINK_FINISHING };

struct gyre_server_link {
    struct gyre_server_link *next;
    int fd;
    enum gyre_link_phase phase;
    uint64_t deadline_ns; /* except of RANK */
    bool is_dead;         /* the sweep closes it */
    bool wants_out;
    bool has_left;
    char death[160];
    struct gyre_wire_watch watch;
    struct gyre_stranger stranger;
    struct gyre_frame frame;
    uint8_t *payload;
    size_t n_read;
    struct gyre_server_out *first_out;
    struct gyre_server_out *last_out;
    size_t n_out_offset;
    size_t n_queued_bytes;
    struct gyre_frame_join who; /* from PROVED on */
    uint8_t *gathered;
    size_t n_gathered;
    bool has_gathered;
};

struct gyre_server {
    struct gyre_sock_listeners listeners; /* none once all ranks joined */
    int epoll_fd;
    int spare_fd; /* -1 = none */
    bool is_accepting;
    rlim_t n_files;      /* old limit of descriptors; 0 = not raised */
    uint64_t refused_ns; /* 0 = accepting works */
    char address_text[256];
    uint8_t secret[GYRE_SECRET_BYTES];
    uint64_t timeout_ns;
    uint64_t deadline_ns;
    uint64_t first_join_ns;
    uint64_t next_progress_ns;
    uint64_t progress_ns;
    struct gyre_server_link *links;
    int n_strangers;
    uint64_t n_dropped;
    int n_ranks; /* 0 until the first rank tells it */
    int n_joined;
    struct gyre_server_link **ranks; /* NULL = not there */
    bool is_complete;
    bool has_failed;
    gyre_status failure;
    char failure_text[GYRE_TEXT_MAX_BYTES];
    uint32_t sequence;
    int n_gathered;
    size_t n_gathered_bytes;
    uint64_t gather_started_ns;
};

/** The sweep frees it. The first reason stays. */
void gyre_server_link_kill(struct gyre_server_link *link, const char *death);

void gyre_server_buffer_drop(struct gyre_server_buffer *buffer);

/** @buffer: NULL (no memory) ends the link. Writes what the socket takes now. */
void gyre_server_link_send(struct gyre_server *server, struct gyre_server_link *link,
                           struct gyre_server_buffer *buffer);

/** Late ranks are told, too. The first failure stays. */
void gyre_server_fail(struct gyre_server *server, gyre_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void gyre_server_on_frame(struct gyre_server *server, struct gyre_server_link *link);

void gyre_server_on_end(struct gyre_server *server, struct gyre_server_link *link);

void gyre_server_check_deadlines(struct gyre_server *server, uint64_t now_ns);

gyre_status gyre_server_start(const struct gyre_params *params, struct gyre_id_layout *id_out);

#endif
