/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads traces of GYRE_TRACE_FILE and schedule --trace (docs/trace.md), which are not trusted.
 */
#ifndef GYRE_BENCH_TRACE_READER_H
#define GYRE_BENCH_TRACE_READER_H

#include "core/foundation/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Waits for data from begin to data, then for credit to ready. */
struct bench_trace_step {
    int64_t pid;
    int lane;
    int call;
    int channel, worker, tile, step;
    double n_bytes;
    bool reduces;
    double begin_us, data_us, ready_us, end_us;
    uint32_t first_in, n_ins; /* hashes of slots' ids, in `ids` */
    uint32_t first_out, n_outs;
};

struct bench_trace_call {
    int64_t pid;
    int call;
    double launch_us; /* below 0: unknown */
    double begin_us;
    double end_us;
    double n_bytes;
    char collective[24];
    char algorithm[16]; /* "" = only launched */
};

/* If an earlier file has a process number of this file, all numbers of this file are shifted. */
struct bench_trace_rank {
    int64_t pid;
    int rank;
    char communicator[16];
    bool shares_a_thread;
    double complete_from_us;
    double n_lost;
    double n_left_out;
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

/** Adds a file to the measured or the simulated trace, both zero at first. Errors: INVALID_ARGUMENT
 * (not gyre's trace), UNSUPPORTED (no json-c), OUT_OF_MEMORY, SYSTEM. */
gyre_status bench_trace_read(const char *path, struct bench_trace *traces, bool *is_simulated_out);

void bench_trace_free(struct bench_trace *trace);

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

/* One call on one rank, from its launch or the end of the rank's previous call, whichever is later,
 * to the rank's last step. */
struct bench_account {
    const struct bench_trace_call *call;
    int rank;
    double measured_us;
    double spent_us[BENCH_N_SPENT]; /* mean over the workers' threads */
};

struct bench_accounts {
    struct bench_account *accounts;
    uint32_t n;
    uint32_t n_left_out; /* calls that lost events */
    double n_unrecorded; /* launches without steps */
    uint32_t n_unpaired; /* slots without a sending step */
};

/** Reorders the trace's calls, into which the accounts point. Errors: OUT_OF_MEMORY. */
gyre_status bench_account_all(struct bench_trace *trace, struct bench_accounts *accounts_out);

#endif
