/* SPDX-License-Identifier: Apache-2.0
 *
 * Records when one rank of a communicator did what, for GYRE_TRACE_FILE. Every thread that records
 * has a ring buffer of its own and writes fixed-size events into it. A full buffer loses its oldest
 * events. The communicator's end writes all buffers to the file (trace_json.h, docs/trace.md). A
 * communicator that is not traced has no struct gyre_trace; its pointers are NULL.
 */
#ifndef GYRE_TRACE_H
#define GYRE_TRACE_H

#include "core/foundation/model/schedule.h"
#include "core/foundation/trace/trace_event.h"

#include <stdbool.h>

/* One buffer for each thread, or group of threads under one lock, that records. */
enum gyre_trace_source {
    GYRE_TRACE_CALLER,   /* the thread that makes a call */
    GYRE_TRACE_EXECUTOR, /* all workers of the rank */
    GYRE_TRACE_SOCKET,   /* the proxy of the transport `socket` */
    GYRE_TRACE_IB,       /* the proxy of the transport `ib` */
    GYRE_TRACE_N_SOURCES
};

/* A ring of events with one writer at a time. The entry that is written next never holds an event
 * that is kept, so a writer may fill it in before it is known whether there is an event. */
struct gyre_trace_buffer {
    struct gyre_trace_event *events; /* capacity entries, of which one less is kept */
    uint64_t n_events;               /* ever recorded */
    uint64_t n_left_out;             /* launches that were not recorded */
    uint32_t capacity;               /* a power of two */
};

struct gyre_trace;

struct gyre_trace_config {
    const char *file;  /* %r = file_rank, %h = host, %p = process id */
    uint32_t n_events; /* of each buffer; rounded up to a power of two, one less is kept */
    int rank;
    int n_ranks;
    int file_rank; /* unlike `rank` the same for communicators that are made out of each other, so
                    * that two processes do not write one file */
    uint64_t close_ns; /* gyre_trace_close() waits so long for the file; 0 = a minute */
};

/* What is known of the rank only after its communicator was connected. */
struct gyre_trace_identity {
    const char *communicator;
    uint64_t job;            /* the same on all ranks of the communicator */
    uint64_t number;         /* likewise; 1 = the first communicator */
    uint64_t process_id;     /* of this process, unique in the job */
    bool shares_a_thread;    /* all workers of the rank are run by one thread in turn */
    int64_t clock_offset_ns; /* this host's clock minus that of rank 0's host */
    uint64_t clock_error_ns; /* the offset is wrong by at most this */
};

/** gyre_trace_open - begin to record. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT (the file's name is
 * too long). */
gyre_status gyre_trace_open(const struct gyre_trace_config *config, struct gyre_trace **trace_out);

/** gyre_trace_identify - set what the file says of this rank. */
void gyre_trace_identify(struct gyre_trace *trace, const struct gyre_trace_identity *identity);

/** gyre_trace_hash - a hash of the file's name if the name has neither %r nor %p, so that ranks of
 * several processes could write one file; 1 if it has one of them; 0 if `trace` is NULL. */
uint64_t gyre_trace_hash(const struct gyre_trace *trace);

/** gyre_trace_use - the buffer of a source, which is allocated for its first user. NULL if `trace`
 * is NULL or there is no memory for the buffer; then the source is not recorded, and a warning says
 * so. Not for two threads at a time. */
struct gyre_trace_buffer *gyre_trace_use(struct gyre_trace *trace, enum gyre_trace_source source);

/** gyre_trace_begin - the free entry of the buffer, to be filled in by the caller. It has old
 * contents. It becomes an event by gyre_trace_keep(). */
static inline struct gyre_trace_event *gyre_trace_begin(const struct gyre_trace_buffer *buffer)
{
    return &buffer->events[buffer->n_events & (buffer->capacity - 1)];
}

/** gyre_trace_keep - the free entry is an event now. The next entry is fetched into the cache while
 * the caller goes on, because a buffer is larger than the cache. Most events have at most 4 slots
 * and fit into the part that is fetched. */
static inline void gyre_trace_keep(struct gyre_trace_buffer *buffer)
{
    buffer->n_events++;
    const char *next = (const char *)gyre_trace_begin(buffer);
    for (int at = 0; at < 128; at += 64)
        __builtin_prefetch(next + at, 1);
}

/** gyre_trace_next - the next event of the buffer, to be filled in by the caller. It has old
 * contents. */
static inline struct gyre_trace_event *gyre_trace_next(struct gyre_trace_buffer *buffer)
{
    struct gyre_trace_event *event = gyre_trace_begin(buffer);
    gyre_trace_keep(buffer);
    return event;
}

/* Events of a source that had a buffer of its own, for example in GPU memory. */
struct gyre_trace_events {
    struct gyre_trace_event *events; /* malloc'ed */
    uint64_t n_events;
    uint64_t n_lost;         /* events that were overwritten */
    uint64_t n_left_out;     /* launches that were not recorded */
    uint64_t complete_ns;    /* nothing is missing after this time */
    uint64_t clock_error_ns; /* the events' times are wrong by at most this */
};

/** gyre_trace_give - give the trace the events of a source instead of a buffer. The trace frees
 * them. Once for each source, and not for a source in use. */
void gyre_trace_give(struct gyre_trace *trace, enum gyre_trace_source source,
                     const struct gyre_trace_events *events);

/** gyre_trace_capacity - how many events the configuration asks for; a power of two. */
uint32_t gyre_trace_capacity(const struct gyre_trace *trace);

/* A loaded program. Events of its steps name it by the number that gyre_trace_add_programs() gave
 * it. */
struct gyre_trace_program {
    const char *algorithm;
    enum gyre_collective coll;
    const struct gyre_step *steps;             /* of one variant */
    const struct gyre_connection *connections; /* with ranks of the communicator */
    uint32_t n_steps;
    uint32_t n_scratch_parts; /* gyre_program_n_parts() of scratch */
};

/** gyre_trace_add_programs - copy what the file will say of some programs. Any thread. Returns the
 * number of the first program; the other ones have the numbers behind it. Returns
 * GYRE_TRACE_NO_PROGRAM if the trace has no room or no memory for them, and a warning says so. Then
 * calls run unrecorded, and the recording source counts them (n_left_out). */
uint32_t gyre_trace_add_programs(struct gyre_trace *trace,
                                 const struct gyre_trace_program *programs, uint32_t n_programs);

/** gyre_trace_close - write the file and free the trace. No source records any more. A file that
 * another rank has written since this one was opened is continued. If this rank cannot write its
 * part, the file keeps what it had, and a warning says why. A thread writes the file; if it takes
 * longer than config.close_ns, a warning says so, and the thread frees the trace when it is done.
 * NULL does nothing. */
void gyre_trace_close(struct gyre_trace *trace);

#endif
