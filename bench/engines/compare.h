/* SPDX-License-Identifier: Apache-2.0
 *
 * The same calls by gyre, its algorithms or another engine in one run, in turns, so that changes of
 * the machine affect all.
 */
#ifndef GYRE_BENCH_COMPARE_H
#define GYRE_BENCH_COMPARE_H

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

struct bench_comparison {
    bool is_present;
    double gyre_us; /* median over the rounds */
    int n_modes;
    const char *mode_names[BENCH_MAX_MODES];
    double mode_us[BENCH_MAX_MODES]; /* as gyre_us */
    int mode;                        /* fastest, subject of the fields below */
    double reference_us;
    double ratio;     /* median of engine / gyre, above 1 gyre is faster */
    double ratio_low; /* about 95 % confidence, from the rounds' ratios */
    double ratio_high;
    double gyre_host_us;      /* a call's enqueue on the slowest rank, mean */
    double reference_host_us; /* 0 = not measured (graphs, or no stream) */
    double gyre_min_us;
    double reference_min_us;
    double gyre_p99_us; /* over all samples */
    double reference_p99_us;
    int n_rounds;
    int n_calls; /* samples of an engine in a round */
    int n_batch; /* calls in a sample */
};

/** The mode with the lowest median stands for the engine, so that gyre gains nothing from an
 * engine's several modes. Pure. @turns: us a call, in rows of comparison->n_rounds: gyre's, which
 * becomes sorted, n_modes more, and one of scratch. @comparison: n_rounds and n_modes are read. */
void bench_comparison_judge(double *turns, struct bench_comparison *comparison);

struct bench_contender {
    const char *name; /* of --algo, a word below, or the engine of --compare */
    /* Of the latest compared call. */
    struct gyre_plan_summary plan; /* on rank 0, zero for an engine */
    double
        *us; /* n_rounds times of turns, then n_rounds * n_calls samples; the caller frees them */
    int n_rounds;
    int n_calls;
    int n_batch; /* calls in a sample */
};
#define BENCH_CONTENDER_FILE "file" /* programs of --algo-file */
#define BENCH_CONTENDER_GYRE "gyre" /* gyre's choice */

/** The engine, too, if a contender has its name. Collective, with one result on all ranks.
 * Afterwards the plan chooses the last contender. Rank 0 fills in the plans. @engine: may lack ops.
 * @comparisons_out: n_contenders - 1, at least one; in number i contender 0 stands for gyre and
 * contender i + 1 for the engine. Errors: the plan's for an impossible algorithm, UNSUPPORTED
 * (impossible for the engine, or several modes), INTERNAL (wrong values). */
gyre_status bench_compare_contenders(struct bench_rank *rank, const struct bench_engine *engine,
                                     struct bench_contender *contenders, int n_contenders,
                                     const struct bench_call *call,
                                     struct bench_comparison *comparisons_out);

/** Collective, with one result on all ranks. A sample is one call, -n calls on a stream, or with -G
 * replays of their graph, until they are done on the slowest rank. Errors: UNSUPPORTED (impossible
 * for the engine), INTERNAL (its result is wrong). */
gyre_status bench_compare(struct bench_rank *rank, const struct bench_engine *reference,
                          const struct bench_call *call, struct bench_comparison *comparison_out);

struct bench_setting;

/** --compare-algos. Rank 0 prints, and writes --json and --csv. Collective. @engine: of --compare,
 * may be in the list or lack ops. Errors: as bench_compare_contenders(), UNSUPPORTED (point to
 * point), SYSTEM (a file). */
gyre_status bench_compare_algos(struct bench_rank *rank, const struct bench_setting *setting,
                                const struct bench_engine *engine);

/* --accuracy: rounding errors of gyre's sums beside another engine's. */
struct bench_accuracy {
    double max;
    double mean;
};

/** Allows for the factor by which correct engines with different orders differ by chance. Pure. */
bool bench_is_as_accurate(const struct bench_accuracy *gyre,
                          const struct bench_accuracy *reference);

/** Rank 0 prints a line for each type, size and mode. Collective. @engine: ops NULL = gyre alone.
 * @n_failed_out: lines with an error above the engine's or above the bound. Errors: UNSUPPORTED
 * (not an all-reduce), INVALID_ARGUMENT (not a sum, or not floating-point). */
gyre_status bench_accuracy(struct bench_rank *rank, const struct bench_engine *engine,
                           int *n_failed_out);

#endif
