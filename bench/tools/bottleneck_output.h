/* SPDX-License-Identifier: Apache-2.0
 *
 * The result of `bottleneck`, and the arithmetic of a training step.
 */
#ifndef GYRE_BENCH_BOTTLENECK_OUTPUT_H
#define GYRE_BENCH_BOTTLENECK_OUTPUT_H

#include "bench/tools/shape_options.h"
#include "core/foundation/model/types.h"

/* With a larger communication / computation, communication is the bottleneck: a rule of thumb of
 * courses on training, since communication is rarely hidden as a whole. */
#define BENCH_TRAINING_RULE      0.3

#define BENCH_MAX_TRAINING_CALLS 2

struct bench_training {
    double n_params;
    double n_tokens; /* of one step */
    unsigned dtype_bytes;
    unsigned n_ranks;
    unsigned n_layers;
    double hidden;             /* of one token between two layers */
    double micro_batch_tokens; /* tensor parallel: of one forward pass */
    double bucket_bytes;       /* data parallel: of one all-reduce */
    double peak_tflops;        /* of one rank's device */
    double utilisation;        /* of the peak, 0..1 */
};

enum bench_strategy {
    BENCH_DATA_PARALLEL,
    BENCH_SHARDED,
    BENCH_TENSOR_PARALLEL,
    BENCH_N_STRATEGIES
};

extern const char *const bench_strategy_names[BENCH_N_STRATEGIES];

struct bench_training_calls {
    enum gyre_collective coll;
    double n_bytes; /* of the whole vector or of all blocks */
    double n_calls;
};

/** bench_training_hidden - if n_layers hold all parameters: a layer has 12 hidden^2 of them
 * (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021,
 * section 2). The nearest multiple of 128. */
double bench_training_hidden(double n_params, unsigned n_layers);

/** bench_training_compute_us - of one step: 6 FLOPs a parameter and token (Kaplan et al., "Scaling
 * Laws for Neural Language Models", 2020, section 2.1), shared by all ranks. */
double bench_training_compute_us(const struct bench_training *training);

/** bench_training_calls - of one step. Data parallel: gradients are all-reduced in buckets.
 * Sharded: each layer's parameters are gathered in both passes, and its gradients are
 * reduce-scattered. Tensor parallel: each layer all-reduces its activations twice in each pass
 * (Shoeybi et al., "Megatron-LM", 2019, section 3). Returns how many entries were filled in. */
int bench_training_calls(const struct bench_training *training, enum bench_strategy strategy,
                         struct bench_training_calls calls_out[BENCH_MAX_TRAINING_CALLS]);

#define BENCH_REASON_BYTES 256

struct bench_bottleneck_options {
    struct bench_training training; /* n_ranks is set when the ranks are known */
    gyre_dtype dtype;
    struct bench_shape_options shape;
    struct bench_schedule_request request;
    struct bench_texts from;
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
    double communication_us;
    char reason[BENCH_REASON_BYTES]; /* "" = the times are known */
};

struct bench_bottleneck_result {
    const struct bench_bottleneck_options *options;
    unsigned n_hosts;
    bool is_predicted;
    double compute_us;
    struct bench_bottleneck_strategy of[BENCH_N_STRATEGIES];
};

void bench_bottleneck_print(const struct bench_bottleneck_result *result);

/** bench_bottleneck_write_json - errors: UNSUPPORTED if the build has no json-c; as
 * gyre_file_replace(). */
gyre_status bench_bottleneck_write_json(const struct bench_bottleneck_result *result);

#endif
