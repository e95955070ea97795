/* SPDX-License-Identifier: Apache-2.0
 *
 * Which collectives one training step makes, and how long its computation takes. Pure arithmetic:
 * `bottleneck` finds the times of the collectives elsewhere.
 */
#ifndef GYRE_BENCH_TRAINING_H
#define GYRE_BENCH_TRAINING_H

#include "core/foundation/model/types.h"

/* With a larger communication / compute, communication is the bottleneck. A rule of thumb of
 * courses on training: communication is rarely hidden behind computation as a whole. */
#define BENCH_TRAINING_RULE      0.3

#define BENCH_MAX_TRAINING_CALLS 2

/* A model of transformer layers, and one step of its training. */
struct bench_training {
    double n_params;
    double n_tokens; /* of one step, over all ranks */
    unsigned dtype_bytes;
    unsigned n_ranks;
    unsigned n_layers;
    double hidden;             /* elements of one token between two layers */
    double micro_batch_tokens; /* tensor parallel: the tokens of one forward pass */
    double bucket_bytes;       /* data parallel: the bytes of one all-reduce */
    double peak_tflops;        /* of one rank's device */
    double utilisation;        /* part of the peak that computation reaches, 0..1 */
};

enum bench_strategy {
    BENCH_DATA_PARALLEL,
    BENCH_SHARDED,
    BENCH_TENSOR_PARALLEL,
    BENCH_N_STRATEGIES
};

extern const char *const bench_strategy_names[BENCH_N_STRATEGIES];

/* Calls of one collective and one size. */
struct bench_training_calls {
    enum gyre_collective coll;
    double n_bytes; /* of the whole vector or of all blocks */
    double n_calls; /* in one step */
};

/** bench_training_hidden - the elements of a token in a transformer of n_layers whose layers hold
 * all parameters: a layer has 12 hidden^2 of them (Narayanan et al., "Efficient Large-Scale
 * Language Model Training on GPU Clusters", SC 2021, section 2). The next multiple of 128. */
double bench_training_hidden(double n_params, unsigned n_layers);

/** bench_training_compute_us - the time of the computation of one step: 6 FLOPs a parameter and
 * token (Kaplan et al., "Scaling Laws for Neural Language Models", 2020, section 2.1), shared by
 * all ranks. */
double bench_training_compute_us(const struct bench_training *training);

/** bench_training_calls - the collectives of one step.
 * Data parallel: gradients are all-reduced in buckets. Sharded: each layer's parameters are
 * gathered in the forward and in the backward pass, and its gradients are reduce-scattered. Tensor
 * parallel: each layer all-reduces its activations twice in each pass (Shoeybi et al.,
 * "Megatron-LM", 2019, section 3).
 * Returns how many entries of calls_out were filled in. */
int bench_training_calls(const struct bench_training *training, enum bench_strategy strategy,
                         struct bench_training_calls calls_out[BENCH_MAX_TRAINING_CALLS]);

#endif
