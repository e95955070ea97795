/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's link to the server. Any thread may send, under one lock. One waiting thread reads the
 * socket for all, so a gather works while another thread polls.
 */
#ifndef GYRE_BOOTSTRAP_TCP_H
#define GYRE_BOOTSTRAP_TCP_H

#include "bootstrap/bootstrap_wire.h"

#include <pthread.h>

struct gyre_tcp {
    struct gyre_bootstrap base;
    int fd;
    int wake_fd;
    uint64_t timeout_ns;
    char server_text[256];
    int n_addresses;
    struct gyre_frame_joined joined;
    pthread_mutex_t send_lock;
    bool is_send_broken; /* by a cut frame; under send_lock */

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_reading; /* the reading thread alone uses the frame below */
    bool is_woken;
    bool is_joined;
    bool is_closed;
    bool server_rank_left;
    gyre_status broken;
    char broken_text[GYRE_TEXT_MAX_BYTES];
    struct gyre_event_queue events;
    uint32_t sequence;
    void *result;
    size_t n_result;

    struct gyre_frame frame;
    uint8_t *payload;
    size_t n_read;
    struct gyre_wire_watch watch;
    uint64_t next_look_ns;
};

/** If part of a frame was sent, the link cannot send any more. Any thread. */
gyre_status gyre_tcp_send(struct gyre_tcp *tcp, const struct gyre_frame *frame, const void *payload,
                          uint64_t deadline_ns);

/** Under `lock`. The first reason stays. */
void gyre_tcp_set_broken(struct gyre_tcp *tcp, gyre_status status, const char *text);

/** Reads, or waits for the reader, until something may have changed. Releases `lock` meanwhile. */
void gyre_tcp_wait(struct gyre_tcp *tcp, uint64_t deadline_ns);

#endif
