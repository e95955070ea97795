/* SPDX-License-Identifier: Apache-2.0
 *
 * The result of `bottleneck`: as text, and as JSON.
 */
#ifndef GYRE_BENCH_BOTTLENECK_OUTPUT_H
#define GYRE_BENCH_BOTTLENECK_OUTPUT_H

#include "bench/tools/shape_options.h"
#include "bench/tools/training.h"

#define BENCH_REASON_BYTES 256

/* The command line. */
struct bench_bottleneck_options {
    struct bench_training training; /* n_ranks is set when the ranks are known */
    gyre_dtype dtype;
    struct bench_shape_options shape;
    struct bench_schedule_request request;
    struct bench_texts from; /* reports of benches */
    const char *json_path;
    bool wants_help;
};

/* Calls of one size, and how long one of them takes. */
struct bench_bottleneck_call {
    struct bench_training_calls calls;
    double us; /* of one call */
    char source[64];
};

struct bench_bottleneck_strategy {
    struct bench_bottleneck_call calls[BENCH_MAX_TRAINING_CALLS];
    int n_calls;
    double communication_us;         /* of one step */
    char reason[BENCH_REASON_BYTES]; /* why the times are unknown; "" = they are known */
};

struct bench_bottleneck_result {
    const struct bench_bottleneck_options *options;
    unsigned n_hosts;
    bool is_predicted;
    double compute_us;
    struct bench_bottleneck_strategy of[BENCH_N_STRATEGIES];
};

void bench_bottleneck_print(const struct bench_bottleneck_result *result);

/** bench_bottleneck_write_json - write the result to options->json_path.
 * Errors: UNSUPPORTED if the build has no json-c; as gyre_file_replace(). */
gyre_status bench_bottleneck_write_json(const struct bench_bottleneck_result *result);

#endif
