/* SPDX-License-Identifier: Apache-2.0
 *
 * Says where the time of calls went. The time of a call on a rank begins when the caller launches
 * it, or when the rank's call before it has ended, if that is later. It ends with the rank's last
 * step.
 */
#ifndef GYRE_BENCH_ACCOUNT_H
#define GYRE_BENCH_ACCOUNT_H

#include "bench/explain/trace_reader.h"

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

/* One call on one rank. */
struct bench_account {
    const struct bench_trace_call *call;
    int rank;
    double measured_us;
    double spent_us[BENCH_N_SPENT]; /* of a rank with several threads: means over its workers */
};

struct bench_accounts {
    struct bench_account *accounts; /* by rank, then in the order of calls */
    uint32_t n;
    uint32_t n_left_out; /* calls with lost events */
    double n_unrecorded; /* launches of which the trace has no steps */
    uint32_t n_unpaired; /* slots whose sending step is not in the trace */
};

/** bench_account_all - account for all calls of a trace, whose order changes. The accounts point
 * into it. Errors: OUT_OF_MEMORY. */
gyre_status bench_account_all(struct bench_trace *trace, struct bench_accounts *accounts_out);

#endif
