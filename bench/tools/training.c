/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of one training step.
 */
#include "bench/tools/training.h"

#include <math.h>

#define HIDDEN_UNIT              128
#define FLOPS_OF_PARAM_AND_TOKEN 6
#define ALL_REDUCES_OF_LAYER     4 /* tensor parallel: two forward, two backward */

const char *const bench_strategy_names[BENCH_N_STRATEGIES] = {
    [BENCH_DATA_PARALLEL] = "data parallel",
    [BENCH_SHARDED] = "sharded (FSDP)",
    [BENCH_TENSOR_PARALLEL] = "tensor parallel",
};

double bench_training_hidden(double n_params, unsigned n_layers)
{
    const double units = round(sqrt(n_params / (12.0 * n_layers)) / HIDDEN_UNIT);
    return units < 1 ? HIDDEN_UNIT : units * HIDDEN_UNIT;
}

double bench_training_compute_us(const struct bench_training *training)
{
    const double flops = FLOPS_OF_PARAM_AND_TOKEN * training->n_params * training->n_tokens;
    const double flops_per_us = training->peak_tflops * 1e6 * training->utilisation;
    return flops / (training->n_ranks * flops_per_us);
}

/* Splits `total` into parts of at most `part`. Each part is moved by `times` calls. */
static int split(enum gyre_collective coll, double total, double part, double times,
                 struct bench_training_calls calls_out[BENCH_MAX_TRAINING_CALLS])
{
    const double n_whole = floor(total / part);
    const double rest = total - n_whole * part;
    int n = 0;
    if (n_whole > 0)
        calls_out[n++] = (struct bench_training_calls){coll, part, n_whole * times};
    if (rest > 0)
        calls_out[n++] = (struct bench_training_calls){coll, rest, times};
    return n;
}

int bench_training_calls(const struct bench_training *training, enum bench_strategy strategy,
                         struct bench_training_calls calls_out[BENCH_MAX_TRAINING_CALLS])
{
    const double model_bytes = training->n_params * training->dtype_bytes;
    const double token_bytes = training->hidden * training->dtype_bytes;
    const double layer_bytes = model_bytes / training->n_layers;
    switch (strategy) {
    case BENCH_DATA_PARALLEL:
        return split(GYRE_COLL_ALL_REDUCE, model_bytes, training->bucket_bytes, 1, calls_out);
    case BENCH_TENSOR_PARALLEL:
        return split(GYRE_COLL_ALL_REDUCE, training->n_tokens * token_bytes,
                     training->micro_batch_tokens * token_bytes,
                     (double)ALL_REDUCES_OF_LAYER * training->n_layers, calls_out);
    default: /* BENCH_SHARDED */
        calls_out[0] = (struct bench_training_calls){GYRE_COLL_ALL_GATHER, layer_bytes,
                                                     2.0 * training->n_layers};
        calls_out[1] = (struct bench_training_calls){GYRE_COLL_REDUCE_SCATTER, layer_bytes,
                                                     training->n_layers};
        return 2;
    }
}
