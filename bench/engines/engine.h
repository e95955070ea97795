/* SPDX-License-Identifier: Apache-2.0
 *
 * A collective library beside gyre (--compare).
 */
#ifndef GYRE_BENCH_ENGINE_H
#define GYRE_BENCH_ENGINE_H

#include "bench/driver/rank.h"

#define BENCH_MAX_MODES 4

struct bench_mode {
    const char *name;
    const struct bench_buffers *buffers; /* NULL = gyre's */
};

struct bench_engine_ops {
    const char *name; /* word of --compare */
    /* One state per rank. Collective. */
    gyre_status (*open)(const struct bench_rank *rank, void **state_out);
    gyre_status (*version)(void *state, char *text_out, size_t n_bytes);
    /* Returns their number, 1 to BENCH_MAX_MODES. */
    int (*modes)(void *state, struct bench_mode *modes_out);
    /* Errors: UNSUPPORTED with the reason. */
    gyre_status (*check)(void *state, const struct bench_call *call);
    /* True: run() enqueues on the rank's stream if that can be captured. False: run() returns when
     * the call is done. */
    bool is_on_stream;
    gyre_status (*run)(void *state, const struct bench_call *call);
    /* Until all that run() enqueued is done. */
    gyre_status (*wait)(void *state);
    /* Known reasons for wrong values and a remedy, as the end of a sentence. "" = none. Pure. */
    const char *(*wrong_value_hint)(const struct bench_call *call);
    void (*close)(void *state);
};

#ifdef GYRE_BENCH_WITH_MPI
extern const struct bench_engine_ops bench_engine_mpi;
#endif

extern const struct bench_engine_ops bench_engine_old;

#ifdef GYRE_BENCH_WITH_NCCL
extern const struct bench_engine_ops bench_engine_nccl;
#endif

/* For engines that have all that benches measure, and whose values need no hint. */
gyre_status bench_engine_takes_all(void *state, const struct bench_call *call);
const char *bench_engine_has_no_hint(const struct bench_call *call);

/** Errors: UNSUPPORTED (not in this build). */
gyre_status bench_engine_find(const char *name, const struct bench_engine_ops **ops_out);

struct bench_engine {
    const struct bench_engine_ops *ops; /* NULL = none */
    void *state;
};

#endif
