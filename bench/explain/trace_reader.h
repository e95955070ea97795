/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the traces that GYRE_TRACE_FILE and schedule --trace write (docs/trace.md), and says where
 * the time of calls went. Files are not trusted.
 */
#ifndef GYRE_BENCH_TRACE_READER_H
#define GYRE_BENCH_TRACE_READER_H

#include "core/foundation/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* It waited for data from begin to data, then for credit to ready. */
struct bench_trace_step {
    int64_t pid;
    int lane;
    int call;
    int channel, worker, tile, step;
    double n_bytes;
    bool reduces;
    double begin_us, data_us, ready_us, end_us;
    uint32_t first_in, n_ins; /* hashes of the slots' ids, in `ids` */
    uint32_t first_out, n_outs;
};

struct bench_trace_call {
    int64_t pid;
    int call;
    double launch_us; /* below 0: not known */
    double begin_us;
    double end_us;
    double n_bytes;
    char collective[24];
    char algorithm[16]; /* "" = only the launch is known */
};

/* If an earlier file has a process number of a file, too, all numbers of the later file are
 * shifted. */
struct bench_trace_rank {
    int64_t pid;
    int rank;
    char communicator[16];
    bool shares_a_thread;
    double complete_from_us;
    double n_lost;
    double n_left_out; /* not recorded */
};

struct bench_trace {
    struct bench_trace_rank *ranks;
    struct bench_trace_call *calls;
    struct bench_trace_step *steps;
    uint64_t *ids;
    uint32_t n_ranks, n_calls, n_steps, n_ids;
    int64_t pid_shift;
    uint32_t ranks_capacity, calls_capacity, steps_capacity, ids_capacity;
};

/** bench_trace_read - add a file to one of two traces, the measured and the simulated one, which
 * are all zero at first. Errors: INVALID_ARGUMENT (not a trace of gyre), UNSUPPORTED (built without
 * json-c), OUT_OF_MEMORY, SYSTEM. */
gyre_status bench_trace_read(const char *path, struct bench_trace *traces, bool *is_simulated_out);

void bench_trace_free(struct bench_trace *trace);

/* ---- where the time went ------------------------------------------------------------------ */

/* X(enum suffix, name, meaning) */
#define BENCH_SPENT_TABLE(X)                                                     \
    X(LAUNCH, launch, "from the call to the start of its first step")            \
    X(PEER, peer, "waiting for a slot that the peer had not sent yet")           \
    X(CREDIT, credit, "waiting for a peer to free a slot, or to enter the call") \
    X(WIRE, wire, "waiting for a slot that the peer had sent")                   \
    X(REDUCE, reduce, "steps with several inputs")                               \
    X(COPY, copy, "steps with one input")                                        \
    X(OTHER, other, "no step ran and none had been found waiting")

enum bench_spent {
#define BENCH_SPENT_ENUM(id, name, meaning) BENCH_SPENT_##id,
    BENCH_SPENT_TABLE(BENCH_SPENT_ENUM)
#undef BENCH_SPENT_ENUM
        BENCH_N_SPENT
};

extern const char *const bench_spent_names[BENCH_N_SPENT];
extern const char *const bench_spent_meanings[BENCH_N_SPENT];

/* Of one call on one rank. Its time begins when the caller launches it, or when the rank's call
 * before it has ended, if that is later; it ends with the rank's last step. */
struct bench_account {
    const struct bench_trace_call *call;
    int rank;
    double measured_us;
    double spent_us[BENCH_N_SPENT]; /* with several threads: means over the workers */
};

struct bench_accounts {
    struct bench_account *accounts;
    uint32_t n;
    uint32_t n_left_out; /* calls with lost events */
    double n_unrecorded; /* launches without steps */
    uint32_t n_unpaired; /* slots without a sending step */
};

/** bench_account_all - changes the order of the trace's calls, into which the accounts point.
 * Errors: OUT_OF_MEMORY. */
gyre_status bench_account_all(struct bench_trace *trace, struct bench_accounts *accounts_out);

#endif
