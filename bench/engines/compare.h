/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of gyre and of another engine, or of gyre's algorithms, for the same calls in the same run.
 * They take turns, so that changes of the machine affect all.
 */
#ifndef GYRE_BENCH_COMPARE_H
#define GYRE_BENCH_COMPARE_H

#include "bench/engines/engine.h"
#include "core/engine/plan/plan.h"

struct bench_comparison {
    bool is_present;
    double gyre_us; /* of a call: median over the rounds */
    int n_modes;
    const char *mode_names[BENCH_MAX_MODES];
    double mode_us[BENCH_MAX_MODES]; /* as gyre_us */
    int mode;                        /* the fastest mode; the fields below are about it */
    double reference_us;
    double ratio;     /* median over the rounds of engine / gyre: above 1, gyre is faster */
    double ratio_low; /* interval of about 95 % confidence, from the order of the rounds' ratios */
    double ratio_high;
    double gyre_host_us;      /* mean time of a call's enqueue alone, of the slowest rank; */
    double reference_host_us; /* 0 = not measured (graphs, engines that are on no stream) */
    double gyre_min_us;
    double reference_min_us;
    double gyre_p99_us; /* over all samples of all rounds */
    double reference_p99_us;
    int n_rounds;
    int n_calls; /* samples of one engine in one round */
    int n_batch; /* calls in one sample: 1, or as many as one wait covers */
};

/** bench_comparison_judge - times, mode and ratios from the times of the rounds. The mode with the
 * lowest median stands for the engine, so that gyre never looks better because an engine has
 * several modes. Pure.
 * @turns: the time of a call in each turn, in us, in rows of comparison->n_rounds: one for gyre,
 * one for each of comparison->n_modes, and one of scratch space. gyre's row is sorted afterwards.
 * @comparison: n_rounds and n_modes are read, the results are filled in. */
void bench_comparison_judge(double *turns, struct bench_comparison *comparison);

struct bench_contender {
    const char *name; /* what --algo takes, a word below, or the engine of --compare */
    /* The fields below are of the latest call that was compared. */
    struct gyre_plan_summary plan; /* on rank 0; zero for an engine */
    double
        *us; /* n_rounds times of turns, then n_rounds * n_calls samples; the caller frees them */
    int n_rounds;
    int n_calls;
    int n_batch; /* calls in one sample */
};
#define BENCH_CONTENDER_FILE "file" /* the programs of --algo-file */
#define BENCH_CONTENDER_GYRE "gyre" /* what gyre chooses */

/** bench_compare_contenders - time a call by several algorithms of gyre, and by the engine if one
 * contender has its name, in turns. Collective; all ranks get the same result. Afterwards the plan
 * chooses the last contender. Rank 0 fills in how each contender carries out the call.
 * @engine: without ops if there is none.
 * @comparisons_out: n_contenders - 1, at least one. In comparison i, contender 0 stands for gyre
 * and contender i + 1 for the engine. Errors: those of the plan for an algorithm that cannot carry
 * out the call; UNSUPPORTED (the engine cannot run this case, or runs in several modes); INTERNAL
 * (wrong values). */
gyre_status bench_compare_contenders(struct bench_rank *rank, const struct bench_engine *engine,
                                     struct bench_contender *contenders, int n_contenders,
                                     const struct bench_call *call,
                                     struct bench_comparison *comparisons_out);

/** bench_compare - time a call of gyre and of the engine in turns. Collective; all ranks get the
 * same result. A sample is one call, or -n calls on a stream, or with -G replays of a graph of -n
 * calls. It lasts until its calls are done, and counts as long as its slowest rank.
 * Errors: UNSUPPORTED (the engine cannot run this case), INTERNAL (the engine's own result is
 * wrong). */
gyre_status bench_compare(struct bench_rank *rank, const struct bench_engine *reference,
                          const struct bench_call *call, struct bench_comparison *comparison_out);

struct bench_setting;

/** bench_compare_algos - --compare-algos: time all sizes by the algorithms of the list in turns,
 * and print a line for each. Rank 0 prints, and writes the files of --json and --csv. Collective.
 * @engine: of --compare, which may be one of the list; without ops if there is none.
 * Errors: as bench_compare_contenders(); UNSUPPORTED (point to point); SYSTEM (a file cannot be
 * written). */
gyre_status bench_compare_algos(struct bench_rank *rank, const struct bench_setting *setting,
                                const struct bench_engine *engine);

#endif
