/* SPDX-License-Identifier: Apache-2.0
 *
 * A collective library that is measured beside gyre (--compare): one table of operations for each
 * such engine. Each engine lives in one file, which is the only bench file that includes the
 * engine's header.
 */
#ifndef GYRE_BENCH_ENGINE_H
#define GYRE_BENCH_ENGINE_H

#include "bench/driver/rank.h"

#define BENCH_MAX_MODES 2

/* One way to measure an engine: where the buffers of its calls are. */
struct bench_mode {
    const char *name;
    const struct bench_buffers *buffers; /* its own; NULL = those of gyre's calls */
};

struct bench_engine_ops {
    const char *name; /* as in --compare */
    /* @state_out: one per rank. Collective. */
    gyre_status (*open)(const struct bench_rank *rank, void **state_out);
    /* The engine's name and version, for people. */
    gyre_status (*version)(void *state, char *text_out, size_t n_bytes);
    /* The modes that are to be measured; 1 to BENCH_MAX_MODES of them. */
    int (*modes)(void *state, struct bench_mode *modes_out);
    /* Could it run this case? Errors: UNSUPPORTED with the reason. */
    gyre_status (*check)(void *state, const struct bench_call *call);
    /* run() only enqueues on the rank's stream; else it waits until the call is done. */
    bool is_on_stream;
    /* Carry out the call. */
    gyre_status (*run)(void *state, const struct bench_call *call);
    /* Values of this call were wrong: what is known to do that and what helps, as the end of the
     * sentence that says so; "" = nothing is known. Pure. */
    const char *(*wrong_value_hint)(const struct bench_call *call);
    void (*close)(void *state);
};

#ifdef GYRE_BENCH_WITH_MPI
extern const struct bench_engine_ops bench_engine_mpi;
#endif

#ifdef GYRE_BENCH_WITH_NCCL
extern const struct bench_engine_ops bench_engine_nccl;
#endif

/** bench_engine_find - by name. Errors: UNSUPPORTED with the reason (not built in). */
gyre_status bench_engine_find(const char *name, const struct bench_engine_ops **ops_out);

struct bench_engine {
    const struct bench_engine_ops *ops; /* NULL = none */
    void *state;
};

#endif
