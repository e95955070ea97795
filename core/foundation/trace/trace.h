/* SPDX-License-Identifier: Apache-2.0
 *
 * For GYRE_TRACE_FILE. Every recording thread has a ring of events, which loses its oldest. The
 * communicator's end writes the file. NULL is no trace. Events are valid as CUDA.
 */
#ifndef GYRE_TRACE_H
#define GYRE_TRACE_H

#include "core/foundation/model/schedule.h"

#include <stdbool.h>

#define GYRE_TRACE_MAX_SLOTS  (GYRE_STEP_MAX_RECVS + GYRE_STEP_MAX_SENDS)
#define GYRE_TRACE_NO_PROGRAM UINT32_MAX

/* X(enum suffix, slice's name; NULL: the program's or step's) */
#define GYRE_TRACE_KIND_TABLE(X)                                            \
    X(STEP, NULL)                                                           \
    X(RUN, NULL)            /* first step to end */                         \
    X(LAUNCH, "launch")     /* the caller's thread planned and enqueued */  \
    X(SEND, "send")         /* from a proxy to the kernel */                \
    X(RECEIVE, "receive")   /* to a proxy from the kernel, or from a NIC */ \
    X(POST, "post")         /* from a proxy to queue pairs */               \
    X(COMPLETE, "complete") /* of a NIC's sends in a FIFO */

enum gyre_trace_kind {
#define GYRE_TRACE_KIND_ENUM(id, name) GYRE_TRACE_##id,
    GYRE_TRACE_KIND_TABLE(GYRE_TRACE_KIND_ENUM)
#undef GYRE_TRACE_KIND_ENUM
        GYRE_TRACE_N_KINDS
};

struct gyre_trace_slot {
    uint16_t peer;   /* rank in the communicator */
    uint16_t fifo;   /* of the pair of ranks */
    uint32_t number; /* gyre_trace_number() */
};

/** Low bits of the slot's number in its FIFO. The highest bit marks LL, which may number apart. */
static GYRE_HOST_DEVICE inline uint32_t gyre_trace_number(uint64_t number, bool is_lines)
{
    return ((uint32_t)number & 0x7fffffffU) | (is_lines ? 0x80000000U : 0);
}

/* In gyre_now_ns(). A step waits for data from begin_ns to data_ns, then for credit to ready_ns,
 * then works to end_ns. Other kinds use begin_ns and end_ns. */
struct gyre_trace_event {
    uint64_t begin_ns;
    uint64_t data_ns;
    uint64_t ready_ns;
    uint64_t end_ns;
    uint64_t call;           /* STEP, RUN, LAUNCH: works launched before */
    uint64_t sequence;       /* RUN, LAUNCH: call's number in messages */
    uint64_t n_bytes;        /* STEP: of a slot; RUN, LAUNCH: of the call; proxies: moved */
    uint32_t program;        /* STEP, RUN: gyre_trace_add_programs() */
    uint32_t step;           /* STEP: of the program; LAUNCH: enum gyre_collective */
    uint32_t step_of_worker; /* STEP, with the next three */
    uint32_t tile;
    uint16_t channel;
    uint8_t worker;
    uint8_t kind;
    uint8_t n_ins;  /* received; first in `slots` */
    uint8_t n_outs; /* sent; next in `slots` */
    uint8_t pad[2];
    struct gyre_trace_slot slots[GYRE_TRACE_MAX_SLOTS];
};

static inline void gyre_trace_add_slot(struct gyre_trace_event *event,
                                       const struct gyre_trace_slot *slot, bool is_out)
{
    const uint32_t n = (uint32_t)event->n_ins + event->n_outs;
    if (n == GYRE_TRACE_MAX_SLOTS)
        return;
    event->slots[n] = *slot;
    if (is_out)
        event->n_outs++;
    else
        event->n_ins++;
}

/* A thread, or a group of threads under one lock. */
enum gyre_trace_source {
    GYRE_TRACE_CALLER,
    GYRE_TRACE_EXECUTOR,
    GYRE_TRACE_SOCKET,
    GYRE_TRACE_IB,
    GYRE_TRACE_N_SOURCES
};

/* One writer at a time. The next entry holds no kept event, so it may be filled in early. */
struct gyre_trace_buffer {
    struct gyre_trace_event *events; /* keeps capacity - 1 */
    uint64_t n_events;
    uint64_t n_left_out;
    uint32_t capacity; /* a power of two */
};

struct gyre_trace;

struct gyre_trace_config {
    const char *file;  /* %r = file_rank, %h = host, %p = process */
    uint32_t n_events; /* of each buffer, before rounding up */
    int rank;
    int n_ranks;
    int file_rank;     /* the same for communicators made out of each other */
    uint64_t close_ns; /* 0 = a minute */
};

struct gyre_trace_identity {
    const char *communicator;
    uint64_t job;            /* the same on all ranks, as the next */
    uint64_t number;         /* 1 = the first communicator */
    uint64_t process_id;     /* of this process, unique in the job */
    bool shares_a_thread;    /* one thread has all workers of the rank */
    int64_t clock_offset_ns; /* this host's clock minus rank 0's */
    uint64_t clock_error_ns;
};

/** Errors: OUT_OF_MEMORY, INVALID_ARGUMENT (file name too long). */
gyre_status gyre_trace_open(const struct gyre_trace_config *config, struct gyre_trace **trace_out);

void gyre_trace_identify(struct gyre_trace *trace, const struct gyre_trace_identity *identity);

/** Of a file name without %r and %p, which several processes could write; else 1; 0 for NULL. */
uint64_t gyre_trace_hash(const struct gyre_trace *trace);

/** NULL if `trace` is NULL, or, with a warning, without memory. Not for two threads at a time. */
struct gyre_trace_buffer *gyre_trace_use(struct gyre_trace *trace, enum gyre_trace_source source);

/** The free entry, with old contents, until gyre_trace_keep(). */
static inline struct gyre_trace_event *gyre_trace_begin(const struct gyre_trace_buffer *buffer)
{
    return &buffer->events[buffer->n_events & (buffer->capacity - 1)];
}

/** Fetches the next entry, for up to 4 slots, because buffers exceed the cache. */
static inline void gyre_trace_keep(struct gyre_trace_buffer *buffer)
{
    buffer->n_events++;
    const char *next = (const char *)gyre_trace_begin(buffer);
    for (int at = 0; at < 128; at += 64)
        __builtin_prefetch(next + at, 1);
}

static inline struct gyre_trace_event *gyre_trace_next(struct gyre_trace_buffer *buffer)
{
    struct gyre_trace_event *event = gyre_trace_begin(buffer);
    gyre_trace_keep(buffer);
    return event;
}

struct gyre_trace_events {
    struct gyre_trace_event *events;
    uint64_t n_events;
    uint64_t n_lost; /* overwritten */
    uint64_t n_left_out;
    uint64_t complete_ns;
    uint64_t clock_error_ns;
};

/** The trace frees the events. Once a source, after its use. */
void gyre_trace_give(struct gyre_trace *trace, enum gyre_trace_source source,
                     const struct gyre_trace_events *events);

uint32_t gyre_trace_capacity(const struct gyre_trace *trace);

struct gyre_trace_program {
    const char *algorithm;
    enum gyre_collective coll;
    const struct gyre_step *steps;
    const struct gyre_connection *connections; /* peers: the communicator's ranks */
    uint32_t n_steps;
    uint32_t n_scratch_parts;
};

/** Copies the programs. Any thread. Returns the first one's number, or GYRE_TRACE_NO_PROGRAM, with
 * a warning, without room: then calls run unrecorded, counted in n_left_out. */
uint32_t gyre_trace_add_programs(struct gyre_trace *trace,
                                 const struct gyre_trace_program *programs, uint32_t n_programs);

/** Writes the file and frees the trace; NULL does nothing. No source records any more. A failure
 * leaves the old file, with a warning. After config.close_ns it stops waiting, and the writing
 * thread frees the trace. */
void gyre_trace_close(struct gyre_trace *trace);

#endif
