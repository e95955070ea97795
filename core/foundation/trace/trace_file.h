/* SPDX-License-Identifier: Apache-2.0
 *
 * Chrome's trace event format (docs/trace.md), an event a line. Ranks of several processes add
 * parts in turn. The foot lists communicators, so that each rank gets its own process number.
 */
#ifndef GYRE_TRACE_FILE_H
#define GYRE_TRACE_FILE_H

#include "core/foundation/trace/trace.h"

#include <sys/stat.h>
#include <stdio.h>

struct gyre_trace_step {
    char *text;
    uint16_t chunk;
    uint16_t n_chunks;
    uint8_t n_ins;
    uint8_t n_outs;
};

struct gyre_trace_steps {
    char algorithm[16];
    enum gyre_collective coll;
    uint32_t n_steps;
    struct gyre_trace_step *steps;
};

/* Then GYRE_MAX_WORKERS of each channel. */
enum gyre_trace_track {
    GYRE_TRACE_TRACK_LAUNCH,
    GYRE_TRACE_TRACK_CALLS,
    GYRE_TRACE_TRACK_SOCKET,
    GYRE_TRACE_TRACK_IB,
    GYRE_TRACE_TRACK_WORKERS = 16
};

#define GYRE_TRACE_MAX_CHANNELS 1024
#define GYRE_TRACE_N_TRACKS     (GYRE_TRACE_TRACK_WORKERS + GYRE_TRACE_MAX_CHANNELS * GYRE_MAX_WORKERS)

struct gyre_trace_writer {
    FILE *file;
    const char *flows;
    uint32_t pid;
    uint32_t rank;
    int64_t clock_offset_ns; /* subtracted from all times */
    bool is_continued;
    uint8_t *has_track;
};

struct gyre_trace_rank {
    uint32_t n_ranks;
    const char *communicator;
    const char *host;
    bool shares_a_thread;
    uint64_t n_lost;
    uint64_t n_left_out;
    uint64_t complete_ns;
    uint64_t clock_error_ns;
};

/** @source: "measured" or "simulated". @process: the writing one. */
void gyre_trace_write_head(FILE *file, const char *source, const char *process);

void gyre_trace_write_rank(struct gyre_trace_writer *writer, const struct gyre_trace_rank *rank);

/** Names new tracks, too. @program: of STEP and RUN; else NULL. @proxy: a proxy's track. */
void gyre_trace_write_event(struct gyre_trace_writer *writer, const struct gyre_trace_event *event,
                            const struct gyre_trace_steps *program, enum gyre_trace_track proxy);

/** Its last bytes are its length, so that later writers find it. @communicators: "" = none. */
void gyre_trace_write_foot(FILE *file, const char *communicators);

/* 8 digits of the foot's length, a quotation mark, a brace, a line feed */
#define GYRE_TRACE_FOOT_END_BYTES 11

gyre_status gyre_trace_describe(const struct gyre_step *step,
                                const struct gyre_connection *connections, uint32_t n_scratch_parts,
                                struct gyre_trace_step *described_out);

/* Compared only for equality, so clocks of hosts and file servers do not matter. */
struct gyre_trace_file_state {
    bool exists;
    ino_t inode;
    off_t n_bytes;
    struct timespec written;
    uint64_t head_hash; /* names the process that made the file */
};

/** An irregular or unreadable file counts as absent. */
void gyre_trace_file_look(const char *path, struct gyre_trace_file_state *state_out);

void gyre_trace_file_warn_missing_folder(const char *path, int rank);

struct gyre_trace_part {
    const char *path;
    uint32_t rank;
    uint64_t process_id;
    uint64_t job;    /* the communicator's, as the next */
    uint64_t number; /* may be shared if made at the same time */
    int64_t clock_offset_ns;
    struct gyre_trace_file_state before; /* when the rank began */
    void (*write)(const void *context, struct gyre_trace_writer *writer);
    const void *context;
};

/** Replaces an earlier run's file; a failure keeps other parts. Waits seconds for other writers.
 * Errors: SYSTEM, TIMEOUT (locked), INVALID_ARGUMENT (not a regular file), OUT_OF_MEMORY. */
gyre_status gyre_trace_file_add(const struct gyre_trace_part *part);

#endif
