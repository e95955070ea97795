/* SPDX-License-Identifier: Apache-2.0
 *
 * Another engine beside gyre: the same calls over the same buffers in the same run, in turns. An
 * engine is one table; each lives in one file, the only one that includes that engine's header.
 */
#ifndef GYRE_BENCH_COMPARE_H
#define GYRE_BENCH_COMPARE_H

#include "bench/driver/rank.h"

#define BENCH_MAX_MODES 2

/* One way to measure an engine: where the buffers of its calls are. */
struct bench_mode {
    const char *name;
    const struct bench_buffers *buffers; /* its own; NULL = those of gyre's calls */
};

struct bench_reference_ops {
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
    const char *(*suspicion)(const struct bench_call *call);
    void (*close)(void *state);
};

#ifdef GYRE_BENCH_WITH_MPI
extern const struct bench_reference_ops bench_reference_mpi;
#endif

#ifdef GYRE_BENCH_WITH_NCCL
extern const struct bench_reference_ops bench_reference_nccl;
#endif

/** bench_reference_find - by name. Errors: UNSUPPORTED with the reason (not built in). */
gyre_status bench_reference_find(const char *name, const struct bench_reference_ops **ops_out);

struct bench_reference {
    const struct bench_reference_ops *ops; /* NULL = none */
    void *state;
};

struct bench_comparison {
    bool is_present;
    double gyre_us; /* median over rounds of the round's median */
    int n_modes;
    const char *mode_names[BENCH_MAX_MODES];
    double mode_us[BENCH_MAX_MODES]; /* as gyre_us */
    int mode;                        /* of the reference: the fastest; what follows is of it */
    double reference_us;
    double ratio;     /* median over rounds of reference / gyre: above 1, gyre is faster */
    double ratio_low; /* about 95 % confidence, by the order of the rounds' ratios */
    double ratio_high;
    double gyre_min_us;
    double reference_min_us;
    double gyre_p99_us; /* of all samples of all rounds */
    double reference_p99_us;
    int n_rounds;
    int n_calls; /* samples of one engine in one round */
    int n_batch; /* calls of a sample: 1, or as many as one wait covers */
};

/** bench_comparison_judge - the reference is the mode with the lowest median, so that having
 * several never flatters gyre; then the ratios. Pure.
 * @medians: us; rows of comparison->n_rounds: gyre's, one for each of comparison->n_modes, and one
 * of scratch. Sorted afterwards.
 * @comparison: times, mode and ratios are filled in. */
void bench_comparison_judge(double *medians, struct bench_comparison *comparison);

/** bench_compare - collective; the result is the same on all ranks. Samples are timed, each until
 * it is done, and count as the longest over the ranks: a call, or -n of them on a stream, or (-G)
 * replays of a graph of -n of them, as many as a millisecond has, whatever -G says. Errors:
 * UNSUPPORTED (the engine cannot run this), INTERNAL (the engine's own result is wrong). */
gyre_status bench_compare(struct bench_rank *rank, const struct bench_reference *reference,
                          const struct bench_call *call, struct bench_comparison *comparison_out);

#endif
