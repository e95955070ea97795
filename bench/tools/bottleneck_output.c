/* SPDX-License-Identifier: Apache-2.0
 *
 * Ratio = communication / computation. "Overlapped" excludes communication that computation can
 * hide.
 */
#include "bench/tools/training.h"

#include <string.h>

static double share_of(double communication_us, double compute_us)
{
    return communication_us / (communication_us + compute_us);
}

static bool is_bound(const struct bench_bottleneck_result *result, double communication_us)
{
    return communication_us / result->compute_us > result->options->threshold;
}

static bool is_profiled(const struct bench_bottleneck_result *result)
{
    return result->options->trace != NULL;
}

/* Across hosts every layer's activations would cross the network. */
static bool is_over_hosts(const struct bench_bottleneck_result *result, int strategy)
{
    return !is_profiled(result) && strategy == BENCH_TENSOR_PARALLEL && result->n_hosts > 1 &&
           result->options->training.n_tensor_ranks == result->options->training.n_ranks;
}

static void print_remarks(const struct bench_bottleneck_result *result, int at)
{
    const struct bench_bottleneck_strategy *strategy = &result->of[at];
    const double times = strategy->communication_us / result->compute_us;
    const double threshold = result->options->threshold;
    for (int i = 0; i < strategy->n_calls; i++) {
        const struct bench_bottleneck_call *call = &strategy->calls[i];
        printf("#   %.0f x %s of %.0f bytes: %.3f ms each, %s\n", call->calls.n_calls,
               gyre_collectives[call->calls.coll].name, call->calls.n_bytes, call->us / 1e3,
               call->source);
    }
    if (is_over_hosts(result, at))
        printf("#   finding: groups of %u ranks reach over %u hosts, and every layer waits for the "
               "network; keep --tensor within a host\n",
               result->options->training.n_tensor_ranks, result->n_hosts);
    if (times <= threshold)
        return;
    printf("#   to reach %g: collectives %.1f times as fast", threshold, times / threshold);
    /* Tensor parallel communication grows with tokens as computation does. */
    if (!is_profiled(result) && at != BENCH_TENSOR_PARALLEL && result->options->compute_ms <= 0)
        printf(", or %.3g tokens a step", result->options->training.n_tokens * times / threshold);
    fputs("\n", stdout);
}

static void print_head(const struct bench_bottleneck_result *result)
{
    const struct bench_training *training = &result->options->training;
    if (is_profiled(result)) {
        const struct bench_profile *profile = &result->profile;
        printf("# %s: %g step%s of %.3f ms, in which kernels other than those of collectives ran "
               "for %.3f ms, and none for %.3f ms\n",
               result->options->trace, profile->n_steps, profile->n_steps == 1 ? "" : "s",
               profile->step_us / 1e3, result->compute_us / 1e3,
               (profile->step_us - result->compute_us - profile->exposed_us) / 1e3);
        return;
    }
    printf("# %g parameters in %u layers of %g%s%s, %s; ", training->n_params, training->n_layers,
           training->hidden, result->options->model == NULL ? "" : ", as in ",
           result->options->model == NULL ? "" : result->options->model,
           gyre_dtype_names[result->options->dtype]);
    if (training->n_tokens > 0)
        printf("%g tokens a step; ", training->n_tokens);
    printf("%u ranks on %u host%s\n", training->n_ranks, result->n_hosts,
           result->n_hosts == 1 ? "" : "s");
    if (result->options->compute_ms > 0)
        printf("# computation: %.3f ms, as --compute-ms says\n", result->compute_us / 1e3);
    else
        printf("# computation: 6 x parameters x tokens / (%u ranks x %g TFLOP/s x %g) = %.3f ms\n",
               training->n_ranks, training->peak_tflops, training->utilisation,
               result->compute_us / 1e3);
    printf("# communication: %s; ratio = communication / computation\n",
           strcmp(result->source, "measured") == 0 ? "measured"
           : result->options->request.cost == NULL ? "predicted with the constants h200"
                                                   : "predicted with the constants of --cost");
}

void bench_bottleneck_print(const struct bench_bottleneck_result *result)
{
    char title[64];
    print_head(result);
    snprintf(title, sizeof(title), "bottleneck (rule: ratio > %g)", result->options->threshold);
    printf("%-18s %16s %8s %8s  %19s %8s  %s\n", "# training", "communication ms", "of step",
           "ratio", "overlapped: of step", "ratio", title);
    for (int i = 0; i < result->n_strategies; i++) {
        const struct bench_bottleneck_strategy *strategy = &result->of[i];
        const double all_us = strategy->communication_us, exposed_us = strategy->exposed_us;
        if (strategy->reason[0] != '\0') {
            printf("%-18s %16s %8s %8s  %19s %8s  unknown: %s\n", strategy->name, "-", "-", "-",
                   "-", "-", strategy->reason);
            continue;
        }
        printf("%-18s %16.3f %7.1f%% %8.3f  %18.1f%% %8.3f  %s\n", strategy->name, all_us / 1e3,
               share_of(all_us, result->compute_us) * 100, all_us / result->compute_us,
               share_of(exposed_us, result->compute_us) * 100, exposed_us / result->compute_us,
               is_bound(result, exposed_us) ? "communication"
               : is_bound(result, all_us)   ? "communication, unless it overlaps"
                                            : "computation");
        print_remarks(result, i);
    }
}

#ifdef GYRE_BENCH_WITH_JSON

#include "bench/report/json_add.h"

static void add_times(struct json_object *entry, const struct bench_bottleneck_result *result,
                      const struct bench_bottleneck_strategy *strategy)
{
    const double compute_us = result->compute_us, all_us = strategy->communication_us;
    const double exposed_us = strategy->exposed_us;
    static const char *const verdicts[] = {"computation", "communication"};
    add_number(entry, "communication_us", all_us);
    add_number(entry, "share", share_of(all_us, compute_us));
    add_number(entry, "ratio", all_us / compute_us);
    add_text(entry, "bottleneck", verdicts[is_bound(result, all_us)]);
    add_number(entry, "exposed_us", exposed_us);
    add_number(entry, "share_overlapped", share_of(exposed_us, compute_us));
    add_number(entry, "ratio_overlapped", exposed_us / compute_us);
    add_text(entry, "bottleneck_overlapped", verdicts[is_bound(result, exposed_us)]);
    struct json_object *list = add_array(entry, "calls");
    for (int i = 0; i < strategy->n_calls; i++) {
        const struct bench_bottleneck_call *call = &strategy->calls[i];
        struct json_object *item = json_object_new_object();
        add_text(item, "collective", gyre_collectives[call->calls.coll].name);
        add_number(item, "bytes", call->calls.n_bytes);
        add_number(item, "calls", call->calls.n_calls);
        add_number(item, "us", call->us);
        add_text(item, "source", call->source);
        json_object_array_add(list, item);
    }
}

gyre_status bench_bottleneck_write_json(const struct bench_bottleneck_result *result)
{
    struct json_object *root = json_object_new_object();
    add_int(root, "schema_version", 1);
    add_text(root, "communication", result->source);
    if (is_profiled(result)) {
        add_number(root, "steps", result->profile.n_steps);
        add_number(root, "step_us", result->profile.step_us);
    } else {
        add_int(root, "ranks", result->options->training.n_ranks);
        add_int(root, "hosts", result->n_hosts);
        const struct bench_training *training = &result->options->training;
        struct json_object *model = add_object(root, "model");
        add_text(model, "like", result->options->model == NULL ? "" : result->options->model);
        add_number(model, "params", training->n_params);
        add_number(model, "tokens", training->n_tokens);
        add_text(model, "type", gyre_dtype_names[result->options->dtype]);
        add_int(model, "layers", training->n_layers);
        add_number(model, "hidden", training->hidden);
        add_int(model, "tensor_ranks", training->n_tensor_ranks);
        add_number(model, "micro_batch_tokens", training->micro_batch_tokens);
        add_number(model, "bucket_bytes", training->bucket_bytes);
        add_number(model, "peak_tflops", training->peak_tflops);
        add_number(model, "utilisation", training->utilisation);
    }
    add_number(root, "compute_us", result->compute_us);
    add_number(root, "rule", result->options->threshold);
    struct json_object *list = add_array(root, "strategies");
    for (int i = 0; i < result->n_strategies; i++) {
        const struct bench_bottleneck_strategy *strategy = &result->of[i];
        struct json_object *entry = json_object_new_object();
        add_text(entry, "name", strategy->name);
        if (strategy->reason[0] != '\0')
            add_text(entry, "unknown", strategy->reason);
        else
            add_times(entry, result, strategy);
        if (is_over_hosts(result, i))
            add_text(entry, "finding", "tensor-parallel groups reach over hosts");
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
