/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_BENCH_BOTTLENECK_OUTPUT_H
#define GYRE_BENCH_BOTTLENECK_OUTPUT_H

#include "bench/tools/shape_options.h"
#include "bench/tools/training.h"

/* Default --threshold, a rule of thumb of courses on training: communication is rarely hidden as a
 * whole. */
#define BENCH_TRAINING_RULE 0.3

#define BENCH_REASON_BYTES  256

struct bench_bottleneck_options {
    struct bench_training training; /* n_ranks follows later */
    gyre_dtype dtype;
    struct bench_shape_options shape;
    struct bench_schedule_request request;
    struct bench_texts from, tensor_from;
    const char *model; /* NULL = the nearest one's layers */
    const char *trace;
    double vocabulary, compute_ms, threshold;
    int n_tensor_ranks; /* 0 = one host's ranks */
    const char *json_path;
    bool wants_help;
};

struct bench_bottleneck_call {
    struct bench_training_calls calls;
    double us;
    char source[64];
};

struct bench_bottleneck_strategy {
    struct bench_bottleneck_call calls[BENCH_MAX_TRAINING_CALLS];
    int n_calls;
    const char *name;
    double communication_us, exposed_us;
    char reason[BENCH_REASON_BYTES]; /* "" = times are known */
};

struct bench_bottleneck_result {
    const struct bench_bottleneck_options *options;
    unsigned n_hosts;
    const char *source; /* predicted, measured or profiled */
    double compute_us;
    struct bench_profile profile; /* if profiled */
    int n_strategies;
    struct bench_bottleneck_strategy of[BENCH_N_STRATEGIES];
};

void bench_bottleneck_print(const struct bench_bottleneck_result *result);

/** Errors: UNSUPPORTED (no json-c), as gyre_file_replace(). */
gyre_status bench_bottleneck_write_json(const struct bench_bottleneck_result *result);

#endif
