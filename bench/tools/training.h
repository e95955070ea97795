/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of a training step: sizes of models, its collectives, and what computation hides;
 * and the same read from a profile of a step that ran.
 */
#ifndef GYRE_BENCH_TRAINING_H
#define GYRE_BENCH_TRAINING_H

#include "core/foundation/base/status.h"
#include "core/foundation/model/types.h"

#define BENCH_MAX_TRAINING_CALLS 2

struct bench_model {
    const char *name;
    unsigned n_layers, hidden, feed_forward;
    unsigned key_value; /* elements of a token's keys; less than hidden where heads share them */
    unsigned vocabulary;
    unsigned positions; /* learned ones; 0 = the Llama family: gated layers, no biases */
    bool is_tied;       /* the last layer uses the embedding's parameters */
    bool has_biases;    /* of queries, keys and values */
};

extern const struct bench_model bench_models[];
extern const int bench_n_models;

/** bench_model_params - all parameters, as the layers' matrices, biases and norms add up. */
double bench_model_params(const struct bench_model *model);

/** bench_model_find - NULL = no model has that name. */
const struct bench_model *bench_model_find(const char *name);

/** bench_model_nearest - by the ratio of the numbers of parameters. */
const struct bench_model *bench_model_nearest(double n_params);

/** bench_training_params - 12 layers hidden^2 (1 + 13 / (12 hidden) + vocabulary / (12 layers
 * hidden)): equation 2 of Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
 * Clusters", SC 2021. @vocabulary: with learned positions. */
double bench_training_params(double n_layers, double hidden, double vocabulary);

/** bench_training_hidden - if n_layers of 12 hidden^2 hold all parameters; the nearest multiple of
 * 128. */
double bench_training_hidden(double n_params, unsigned n_layers);

struct bench_training {
    double n_params;
    double n_tokens;   /* of one step; 0 = not known */
    double compute_us; /* measured; 0 = from params and tokens */
    unsigned dtype_bytes;
    unsigned n_ranks;
    unsigned n_tensor_ranks; /* of one tensor-parallel group */
    unsigned n_layers;
    double hidden; /* of one token between two layers */
    double
        micro_batch_tokens; /* tensor parallel: of one forward pass; 0 = the group's whole step */
    double bucket_bytes;    /* data parallel: of one all-reduce */
    double peak_tflops;     /* of one rank's device */
    double utilisation;     /* of the peak, 0..1 */
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

/** bench_training_compute_us - of one step: measured, or 6 FLOPs a parameter and token (Kaplan et
 * al., "Scaling Laws for Neural Language Models", 2020, section 2.1), shared by all ranks. */
double bench_training_compute_us(const struct bench_training *training);

/** bench_training_calls - of one step. Data parallel: gradients are all-reduced in buckets.
 * Sharded: each layer's parameters are gathered in both passes, and its gradients are
 * reduce-scattered. Tensor parallel: each layer all-reduces its activations twice in each pass
 * (Shoeybi et al., "Megatron-LM", 2019, section 3). Returns how many entries were filled in. */
int bench_training_calls(const struct bench_training *training, enum bench_strategy strategy,
                         struct bench_training_calls calls_out[BENCH_MAX_TRAINING_CALLS]);

/** bench_training_exposed_us - what is left of the communication if all that can run beside
 * computation does. Data parallel: buckets beside the backward pass, which is 2/3 of the
 * computation, but for the last one. Sharded: all but the first all-gather and the last
 * reduce-scatter. Tensor parallel: nothing is hidden, as the next matrix needs the sum.
 * @first_us, @last_us: a call of the first and of the last entry of the calls. */
double bench_training_exposed_us(enum bench_strategy strategy, double compute_us,
                                 double communication_us, double first_us, double last_us);

/* Means over the steps of a profile. */
struct bench_profile {
    double n_steps;
    double step_us; /* from the first kernel to the last one */
    double compute_us;
    double communication_us;
    double exposed_us; /* the communication beside which no other kernel ran */
};

/** bench_profile_read - the JSON of PyTorch's profiler, of one rank. Kernels whose names have nccl
 * or gyre communicate. Errors, which name the path: INVALID_ARGUMENT, SYSTEM, OUT_OF_MEMORY,
 * UNSUPPORTED (this build has no json-c). */
gyre_status bench_profile_read(const char *path, struct bench_profile *profile_out);

#endif
