/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of a trace. Ranks add their parts one after the other, from one process or from several.
 * The foot of the file lists the communicators of the parts, so that each rank gets a process
 * number that no other rank of the file has.
 */
#ifndef GYRE_TRACE_FILE_H
#define GYRE_TRACE_FILE_H

#include "core/foundation/trace/trace_json.h"

#include <sys/stat.h>

/* What a file was at some moment. Two looks at a file are compared only for equality, so the clocks
 * of hosts and of file servers have no part in it. */
struct gyre_trace_file_state {
    bool exists;
    ino_t inode;
    off_t n_bytes;
    struct timespec written; /* by the clock of the file system */
    uint64_t head_hash;      /* the head names the process that made the file */
};

/** gyre_trace_file_look - what the file is now. A file that is not regular, or cannot be read,
 * counts as absent. */
void gyre_trace_file_look(const char *path, struct gyre_trace_file_state *state_out);

/** gyre_trace_file_warn_missing_folder - warn if the folder of the file is none, because the file
 * could not be written at the end. @rank: named in the warning. */
void gyre_trace_file_warn_missing_folder(const char *path, int rank);

/* What one rank of one communicator adds. */
struct gyre_trace_part {
    const char *path;
    uint32_t rank;
    uint64_t process_id; /* of this process, unique in the job */
    uint64_t job;        /* the communicator's, as the next */
    uint64_t number;     /* communicators that are made at the same time can share it */
    int64_t clock_offset_ns;
    struct gyre_trace_file_state before; /* when the rank began to record. A file of another
                                          * process that is still the same is of an earlier run */
    /* Writes the rank's own line and its events. */
    void (*write)(const void *context, struct gyre_trace_writer *writer);
    const void *context;
};

/** gyre_trace_file_add - add a rank's part. A file of an earlier run is replaced. If writing fails,
 * the parts that the file had are still there. Waits a few seconds for other writers.
 * Errors: SYSTEM, TIMEOUT (another program keeps the file locked), INVALID_ARGUMENT (not a regular
 * file), OUT_OF_MEMORY. */
gyre_status gyre_trace_file_add(const struct gyre_trace_part *part);

#endif
