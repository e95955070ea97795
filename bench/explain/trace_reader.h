/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the traces that GYRE_TRACE_FILE and schedule --trace write (docs/trace.md), as far as
 * `explain` and `draw` need them. Files are not trusted.
 */
#ifndef GYRE_BENCH_TRACE_READER_H
#define GYRE_BENCH_TRACE_READER_H

#include "core/foundation/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Times in microseconds. A step waited for data from begin to data, then for credit to ready. */
struct bench_trace_step {
    int64_t pid;
    int lane; /* worker of a channel */
    int call;
    int channel, worker, tile, step;
    double n_bytes; /* of each slot */
    bool reduces;
    double begin_us, data_us, ready_us, end_us;
    uint32_t first_in, n_ins; /* hashes of the ids of the slots, in `ids` */
    uint32_t first_out, n_outs;
};

struct bench_trace_call {
    int64_t pid;
    int call;
    double launch_us; /* when the caller began; below 0: it is not known */
    double begin_us;  /* of its first step */
    double end_us;
    double n_bytes;
    char collective[24];
    char algorithm[16]; /* "" = only the launch is known */
};

/* The process number of a rank is that of its file, unless an earlier file has the number, too.
 * Then all numbers of the later file are shifted. */
struct bench_trace_rank {
    int64_t pid;
    int rank;
    char communicator[16];
    bool shares_a_thread;
    double complete_from_us;
    double n_lost;
    double n_left_out; /* launches that were not recorded */
};

struct bench_trace {
    struct bench_trace_rank *ranks;
    struct bench_trace_call *calls;
    struct bench_trace_step *steps;
    uint64_t *ids;
    uint32_t n_ranks, n_calls, n_steps, n_ids;
    int64_t pid_shift; /* of the file that is being read */
    uint32_t ranks_capacity, calls_capacity, steps_capacity, ids_capacity;
};

/** bench_trace_read - add the events of a file to one of two traces, which are all zero at first.
 * @traces: the measured one, and the simulated one. @is_simulated_out: which of them.
 * Errors: INVALID_ARGUMENT (not a trace of gyre), UNSUPPORTED (built without json-c),
 * OUT_OF_MEMORY, SYSTEM. */
gyre_status bench_trace_read(const char *path, struct bench_trace *traces, bool *is_simulated_out);

void bench_trace_free(struct bench_trace *trace);

#endif
