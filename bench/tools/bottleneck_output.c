/* SPDX-License-Identifier: Apache-2.0
 *
 * Ratio = communication / computation, as if nothing overlapped.
 */
#include "bench/tools/bottleneck_output.h"

#include "core/foundation/base/status.h"

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

static double ratio_of(const struct bench_bottleneck_result *result,
                       const struct bench_bottleneck_strategy *strategy)
{
    return strategy->communication_us / result->compute_us;
}

static double share_of(const struct bench_bottleneck_result *result,
                       const struct bench_bottleneck_strategy *strategy)
{
    return strategy->communication_us / (strategy->communication_us + result->compute_us);
}

static const char *verdict_of(double ratio)
{
    return ratio > BENCH_TRAINING_RULE ? "communication" : "computation";
}

static void print_calls(const struct bench_bottleneck_strategy *strategy)
{
    for (int i = 0; i < strategy->n_calls; i++) {
        const struct bench_bottleneck_call *call = &strategy->calls[i];
        printf("#   %.0f x %s of %.0f bytes: %.3f ms each, %s\n", call->calls.n_calls,
               gyre_collectives[call->calls.coll].name, call->calls.n_bytes, call->us / 1e3,
               call->source);
    }
}

/* With more tokens the computation grows; tensor parallel communication grows with it, so tokens do
 * not help there. */
static void print_way_out(const struct bench_bottleneck_result *result, int strategy)
{
    const double ratio = ratio_of(result, &result->of[strategy]);
    if (ratio <= BENCH_TRAINING_RULE)
        return;
    printf("#   to reach 0.3: collectives %.1f times as fast", ratio / BENCH_TRAINING_RULE);
    if (strategy != BENCH_TENSOR_PARALLEL)
        printf(", or %.3g tokens a step",
               result->options->training.n_tokens * ratio / BENCH_TRAINING_RULE);
    fputs("\n", stdout);
}

void bench_bottleneck_print(const struct bench_bottleneck_result *result)
{
    const struct bench_training *training = &result->options->training;
    printf("# %g parameters in %u layers of %g, %s; %g tokens a step; %u ranks on %u host%s\n",
           training->n_params, training->n_layers, training->hidden,
           gyre_dtype_names[result->options->dtype], training->n_tokens, training->n_ranks,
           result->n_hosts, result->n_hosts == 1 ? "" : "s");
    printf("# computation: 6 x parameters x tokens / (%u ranks x %g TFLOP/s x %g) = %.3f ms\n",
           training->n_ranks, training->peak_tflops, training->utilisation,
           result->compute_us / 1e3);
    printf("# communication: %s; ratio = communication / computation, nothing overlapped\n",
           !result->is_predicted                   ? "measured"
           : result->options->request.cost == NULL ? "predicted with the constants h200"
                                                   : "predicted with the constants of --cost");
    printf("%-18s %16s %9s %9s  %s\n", "# training", "communication ms", "of step", "ratio",
           "bottleneck (rule: ratio > 0.3)");
    for (int i = 0; i < BENCH_N_STRATEGIES; i++) {
        const struct bench_bottleneck_strategy *strategy = &result->of[i];
        if (strategy->reason[0] != '\0') {
            printf("%-18s %16s %9s %9s  unknown: %s\n", bench_strategy_names[i], "-", "-", "-",
                   strategy->reason);
            continue;
        }
        const double ratio = ratio_of(result, strategy);
        printf("%-18s %16.3f %8.1f%% %9.3f  %s\n", bench_strategy_names[i],
               strategy->communication_us / 1e3, share_of(result, strategy) * 100, ratio,
               verdict_of(ratio));
        print_calls(strategy);
        print_way_out(result, i);
    }
}

#ifdef GYRE_BENCH_WITH_JSON

#include "bench/report/json_add.h"

static void add_calls(struct json_object *object, const struct bench_bottleneck_strategy *strategy)
{
    struct json_object *list = add_array(object, "calls");
    for (int i = 0; i < strategy->n_calls; i++) {
        const struct bench_bottleneck_call *call = &strategy->calls[i];
        struct json_object *entry = json_object_new_object();
        add_text(entry, "collective", gyre_collectives[call->calls.coll].name);
        add_number(entry, "bytes", call->calls.n_bytes);
        add_number(entry, "calls", call->calls.n_calls);
        add_number(entry, "us", call->us);
        add_text(entry, "source", call->source);
        json_object_array_add(list, entry);
    }
}

static void add_model(struct json_object *root, const struct bench_bottleneck_result *result)
{
    const struct bench_training *training = &result->options->training;
    struct json_object *model = add_object(root, "model");
    add_number(model, "params", training->n_params);
    add_number(model, "tokens", training->n_tokens);
    add_text(model, "type", gyre_dtype_names[result->options->dtype]);
    add_int(model, "layers", training->n_layers);
    add_number(model, "hidden", training->hidden);
    add_number(model, "micro_batch_tokens", training->micro_batch_tokens);
    add_number(model, "bucket_bytes", training->bucket_bytes);
    add_number(model, "peak_tflops", training->peak_tflops);
    add_number(model, "utilisation", training->utilisation);
}

gyre_status bench_bottleneck_write_json(const struct bench_bottleneck_result *result)
{
    struct json_object *root = json_object_new_object();
    add_int(root, "schema_version", 1);
    add_int(root, "ranks", result->options->training.n_ranks);
    add_int(root, "hosts", result->n_hosts);
    add_text(root, "communication", result->is_predicted ? "predicted" : "measured");
    add_model(root, result);
    add_number(root, "compute_us", result->compute_us);
    add_number(root, "rule", BENCH_TRAINING_RULE);
    struct json_object *list = add_array(root, "strategies");
    for (int i = 0; i < BENCH_N_STRATEGIES; i++) {
        const struct bench_bottleneck_strategy *strategy = &result->of[i];
        struct json_object *entry = json_object_new_object();
        add_text(entry, "name", bench_strategy_names[i]);
        if (strategy->reason[0] != '\0') {
            add_text(entry, "unknown", strategy->reason);
        } else {
            add_number(entry, "communication_us", strategy->communication_us);
            add_number(entry, "share", share_of(result, strategy));
            add_number(entry, "ratio", ratio_of(result, strategy));
            add_text(entry, "bottleneck", verdict_of(ratio_of(result, strategy)));
            add_calls(entry, strategy);
        }
        json_object_array_add(list, entry);
    }
    const gyre_status status = bench_json_write(root, result->options->json_path);
    json_object_put(root);
    return status;
}

#else

gyre_status bench_bottleneck_write_json(const struct bench_bottleneck_result *result)
{
    (void)result;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--json: built without json-c; install libjson-c-dev and build again");
}

#endif
