/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes traces in Chrome's trace event format, which Perfetto opens. Measured and simulated traces
 * have the same tracks: a process for each rank, a thread for each worker, one for calls, one for
 * launches and one for each proxy (docs/trace.md). Every event stands on a line of its own.
 */
#ifndef GYRE_TRACE_JSON_H
#define GYRE_TRACE_JSON_H

#include "core/foundation/trace/trace_event.h"

#include <stdio.h>

/* What a trace says of one step of a program. */
struct gyre_trace_step {
    char *text; /* the line of the text form */
    uint16_t chunk;
    uint16_t n_chunks;
    uint8_t n_ins;
    uint8_t n_outs;
};

/* The program of an event. */
struct gyre_trace_steps {
    char algorithm[16];
    enum gyre_collective coll;
    uint32_t n_steps;
    struct gyre_trace_step *steps;
};

/* Thread numbers in the file. Workers follow, GYRE_MAX_WORKERS of each channel. */
enum gyre_trace_track {
    GYRE_TRACE_TRACK_LAUNCH,
    GYRE_TRACE_TRACK_CALLS,
    GYRE_TRACE_TRACK_SOCKET,
    GYRE_TRACE_TRACK_IB,
    GYRE_TRACE_TRACK_WORKERS = 16
};

#define GYRE_TRACE_MAX_CHANNELS 1024
#define GYRE_TRACE_N_TRACKS     (GYRE_TRACE_TRACK_WORKERS + GYRE_TRACE_MAX_CHANNELS * GYRE_MAX_WORKERS)

/* A file that is being written. The fields are the same for all events of a rank. */
struct gyre_trace_writer {
    FILE *file;
    const char *flows; /* the communicator's part of the ids of flows */
    uint32_t pid;      /* the rank's process */
    uint32_t rank;
    int64_t clock_offset_ns; /* is subtracted from all times */
    bool is_continued;       /* an event was written before */
    uint8_t *has_track;      /* GYRE_TRACE_N_TRACKS entries: the name of the track was written */
};

/* A rank's own line. */
struct gyre_trace_rank {
    uint32_t n_ranks;
    const char *communicator;
    const char *host;
    bool shares_a_thread; /* all workers of the rank are run by one thread in turn */
    uint64_t n_lost;      /* events that were overwritten */
    uint64_t n_left_out;  /* launches that were not recorded */
    uint64_t complete_ns; /* nothing is missing after this time */
    uint64_t clock_error_ns;
};

/** gyre_trace_write_head - write what stands before the first event.
 * @source: "measured" or "simulated". @process: names the writing process. */
void gyre_trace_write_head(FILE *file, const char *source, const char *process);

/** gyre_trace_write_rank - write who the rank is. Before the rank's events. */
void gyre_trace_write_rank(struct gyre_trace_writer *writer, const struct gyre_trace_rank *rank);

/** gyre_trace_write_event - write an event, and the names of its tracks if they are new.
 * @program: of a STEP or RUN; else NULL.
 * @proxy: the track of a proxy's event; not read for other events. */
void gyre_trace_write_event(struct gyre_trace_writer *writer, const struct gyre_trace_event *event,
                            const struct gyre_trace_steps *program, enum gyre_trace_track proxy);

/** gyre_trace_write_foot - write what stands behind the last event. Its last
 * GYRE_TRACE_FOOT_END_BYTES bytes say how long it is, so that a later writer finds its beginning.
 * @communicators: for later writers (trace_file.c); "" = there are none. */
void gyre_trace_write_foot(FILE *file, const char *communicators);

/* The end of the foot: the length of the foot in 8 digits, a quotation mark, a brace and a line
 * feed. */
#define GYRE_TRACE_FOOT_END_BYTES 11

/** gyre_trace_describe - fill in what a trace says of a step. Errors: OUT_OF_MEMORY. */
gyre_status gyre_trace_describe(const struct gyre_step *step,
                                const struct gyre_connection *connections, uint32_t n_scratch_parts,
                                struct gyre_trace_step *described_out);

#endif
