/* SPDX-License-Identifier: Apache-2.0
 *
 * Records when one rank of a communicator did what, for GYRE_TRACE_FILE. Every thread that records
 * has a ring buffer of fixed-size events; a full one loses its oldest. The communicator's end
 * writes the file. Without a trace the pointers are NULL. Events are valid as CUDA.
 */
#ifndef GYRE_TRACE_H
#define GYRE_TRACE_H

#include "core/foundation/model/schedule.h"

#include <stdbool.h>

#define GYRE_TRACE_MAX_SLOTS  (GYRE_STEP_MAX_RECVS + GYRE_STEP_MAX_SENDS)
#define GYRE_TRACE_NO_PROGRAM UINT32_MAX

/* X(enum suffix, name of its slice; NULL: the program or the step names it) */
#define GYRE_TRACE_KIND_TABLE(X)                                                          \
    X(STEP, NULL)           /* one step of a worker */                                    \
    X(RUN, NULL)            /* a launch, from its first step to its end */                \
    X(LAUNCH, "launch")     /* the caller's thread planned and enqueued the call */       \
    X(SEND, "send")         /* a proxy gave bytes to the kernel */                        \
    X(RECEIVE, "receive")   /* a proxy took bytes from the kernel, or slots from a NIC */ \
    X(POST, "post")         /* a proxy posted a slot to queue pairs */                    \
    X(COMPLETE, "complete") /* a NIC has completed sends of a FIFO */

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

/** The low bits of the slot's number in its FIFO, from 0, and the highest bit for a slot of LL,
 * which a FIFO between hosts numbers apart. */
static GYRE_HOST_DEVICE inline uint32_t gyre_trace_number(uint64_t number, bool is_lines)
{
    return ((uint32_t)number & 0x7fffffffU) | (is_lines ? 0x80000000U : 0);
}

/* Times are those of gyre_now_ns(). A step waits for data from begin_ns to data_ns, then for credit
 * to ready_ns, then works to end_ns. Other kinds use begin_ns and end_ns. */
struct gyre_trace_event {
    uint64_t begin_ns;
    uint64_t data_ns;
    uint64_t ready_ns;
    uint64_t end_ns;
    uint64_t call;           /* STEP, RUN, LAUNCH: works launched before the call */
    uint64_t sequence;       /* RUN, LAUNCH: number of the call in messages */
    uint64_t n_bytes;        /* STEP: of each slot; RUN, LAUNCH: of the call; proxies: that moved */
    uint32_t program;        /* STEP, RUN: gyre_trace_add_programs() */
    uint32_t step;           /* STEP: of the program; LAUNCH: enum gyre_collective */
    uint32_t step_of_worker; /* STEP */
    uint32_t tile;           /* STEP */
    uint16_t channel;        /* STEP */
    uint8_t worker;          /* STEP: of the channel */
    uint8_t kind;            /* enum gyre_trace_kind */
    uint8_t n_ins;           /* received: the first of `slots` */
    uint8_t n_outs;          /* sent: behind them */
    uint8_t pad[2];
    struct gyre_trace_slot slots[GYRE_TRACE_MAX_SLOTS];
};

/** Incoming slots first. A slot for which there is no room is left out. */
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

/* One for each thread, or group of threads under one lock, that records. */
enum gyre_trace_source {
    GYRE_TRACE_CALLER,
    GYRE_TRACE_EXECUTOR,
    GYRE_TRACE_SOCKET,
    GYRE_TRACE_IB,
    GYRE_TRACE_N_SOURCES
};

/* A ring with one writer at a time. The entry that is written next never holds an event that is
 * kept, so a writer may fill it in early. */
struct gyre_trace_buffer {
    struct gyre_trace_event *events; /* one less than capacity is kept */
    uint64_t n_events;
    uint64_t n_left_out; /* launches that were not recorded */
    uint32_t capacity;   /* a power of two */
};

struct gyre_trace;

struct gyre_trace_config {
    const char *file;  /* %r = file_rank, %h = host, %p = process id */
    uint32_t n_events; /* of each buffer; rounded up to a power of two */
    int rank;
    int n_ranks;
    int file_rank;     /* the same for communicators that are made out of each other, so that two
                        * processes do not write one file */
    uint64_t close_ns; /* wait for the file; 0 = a minute */
};

struct gyre_trace_identity {
    const char *communicator;
    uint64_t job;            /* the same on all ranks of the communicator, as the next */
    uint64_t number;         /* 1 = the first communicator */
    uint64_t process_id;     /* of this process, unique in the job */
    bool shares_a_thread;    /* one thread runs all workers of the rank */
    int64_t clock_offset_ns; /* this host's clock minus rank 0's */
    uint64_t clock_error_ns;
};

/** Errors: OUT_OF_MEMORY, INVALID_ARGUMENT (the file's name is too long). */
gyre_status gyre_trace_open(const struct gyre_trace_config *config, struct gyre_trace **trace_out);

void gyre_trace_identify(struct gyre_trace *trace, const struct gyre_trace_identity *identity);

/** Of the file's name if it has neither %r nor %p, so that several processes could write one file;
 * else 1; 0 if `trace` is NULL. */
uint64_t gyre_trace_hash(const struct gyre_trace *trace);

/** Allocated for its first user. NULL if `trace` is NULL, or, with a warning, if there is no
 * memory. Not for two threads at a time. */
struct gyre_trace_buffer *gyre_trace_use(struct gyre_trace *trace, enum gyre_trace_source source);

/** The free entry, with old contents. It becomes an event by gyre_trace_keep(). */
static inline struct gyre_trace_event *gyre_trace_begin(const struct gyre_trace_buffer *buffer)
{
    return &buffer->events[buffer->n_events & (buffer->capacity - 1)];
}

/** Fetches the next entry, as far as 4 slots need it, because a buffer is larger than the cache. */
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
    struct gyre_trace_event *events; /* malloc'ed */
    uint64_t n_events;
    uint64_t n_lost;     /* overwritten */
    uint64_t n_left_out; /* launches that were not recorded */
    uint64_t complete_ns;
    uint64_t clock_error_ns;
};

/** The trace frees the events. Once for each source, and not for a source in use. */
void gyre_trace_give(struct gyre_trace *trace, enum gyre_trace_source source,
                     const struct gyre_trace_events *events);

uint32_t gyre_trace_capacity(const struct gyre_trace *trace);

struct gyre_trace_program {
    const char *algorithm;
    enum gyre_collective coll;
    const struct gyre_step *steps;             /* of one variant */
    const struct gyre_connection *connections; /* peers are ranks of the communicator */
    uint32_t n_steps;
    uint32_t n_scratch_parts; /* gyre_program_n_parts() of scratch */
};

/** Copies what the file will say of some programs. Any thread. Returns the number of the first one.
 * GYRE_TRACE_NO_PROGRAM, with a warning, if there is no room or memory; then calls run unrecorded,
 * and the source counts them (n_left_out). */
uint32_t gyre_trace_add_programs(struct gyre_trace *trace,
                                 const struct gyre_trace_program *programs, uint32_t n_programs);

/** Write the file and free the trace. No source records any more. If this rank cannot write, the
 * file keeps what it had, and a warning says why. After config.close_ns it stops waiting, and the
 * writing thread frees the trace. NULL does nothing. */
void gyre_trace_close(struct gyre_trace *trace);

#endif
