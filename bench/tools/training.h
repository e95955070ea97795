/* SPDX-License-Identifier: Apache-2.0
 *
 * A training step's model sizes, collectives and hidden communication, computed or from a profile.
 */
#ifndef GYRE_BENCH_TRAINING_H
#define GYRE_BENCH_TRAINING_H

#include "bench/tools/programs.h"
#include "core/foundation/base/status.h"

#define BENCH_MAX_TRAINING_CALLS 2

struct bench_model {
    const char *name;
    unsigned n_layers, hidden, feed_forward;
    unsigned key_value; /* a token's keys, less than hidden where heads share them */
    unsigned vocabulary;
    unsigned positions; /* learned, 0 = Llama family: gated layers, no biases */
    bool is_tied;       /* last layer uses the embedding's parameters */
    bool has_biases;    /* queries, keys and values */
};

extern const struct bench_model bench_models[];
extern const int bench_n_models;

/** NULL = unknown name. */
const struct bench_model *bench_model_find(const char *name);

struct bench_training {
    double n_params;
    double n_tokens; /* a step, 0 = unknown */

    unsigned dtype_bytes;
    unsigned n_ranks;
    unsigned n_tensor_ranks; /* of one group */
    unsigned n_layers;
    double hidden;             /* of a token between layers */
    double micro_batch_tokens; /* tensor parallel: of a forward pass, 0 = the group's whole step */
    double bucket_bytes;       /* data parallel: of an all-reduce */
    double peak_tflops;        /* of a rank's device */
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
    double n_bytes; /* of the vector or all blocks */
    double n_calls;
};

/** Data parallel: buckets of gradients are all-reduced. Sharded: each layer's parameters are
 * gathered in both passes, its gradients reduce-scattered. Tensor parallel: each layer all-reduces
 * activations twice a pass (Shoeybi et al., "Megatron-LM", 2019, section 3). Returns the number of
 * entries. */
int bench_training_calls(const struct bench_training *training, enum bench_strategy strategy,
                         struct bench_training_calls calls_out[BENCH_MAX_TRAINING_CALLS]);

/* Means over steps. */
struct bench_profile {
    double n_steps;
    double step_us; /* first to last kernel */
    double compute_us;
    double communication_us;
    double exposed_us; /* without another kernel beside it */
};

/** Reads one rank's JSON of PyTorch's profiler. Kernels named nccl or gyre communicate. Errors name
 * the path: INVALID_ARGUMENT, SYSTEM, OUT_OF_MEMORY, UNSUPPORTED (no json-c). */
gyre_status bench_profile_read(const char *path, struct bench_profile *profile_out);

/* gyre bottleneck */
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

/** Sizes that are not given: as the nearest published model has them, all parameters by
 * 12 layers hidden^2 (1 + 13 / (12 hidden) + vocabulary / (12 layers hidden)) (Narayanan et al.,
 * "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021, equation 2; vocabulary
 * with learned positions), and the hidden size by 12 layers hidden^2, to a multiple of 128. */
void bench_training_set_sizes(struct bench_bottleneck_options *options);

void bench_bottleneck_print(const struct bench_bottleneck_result *result);

/** Errors: UNSUPPORTED (no json-c), as gyre_file_replace(). */
gyre_status bench_bottleneck_write_json(const struct bench_bottleneck_result *result);

#endif
