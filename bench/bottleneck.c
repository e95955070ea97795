/* SPDX-License-Identifier: Apache-2.0
 *
 * bottleneck: does communication or computation bound the training of a model? The times of
 * collectives are predicted by the simulator, or come from reports of benches.
 *
 *    bottleneck --params 7e9 --tokens 4e6 --hosts 2x8 --nic-rate 50
 */
#include "bench/driver/streams.h"
#include "bench/report/report_times.h"
#include "bench/tools/bottleneck_options.h"
#include "bench/tools/bottleneck_output.h"

#include <math.h>

/* The simulator, as users name sizes, takes at most so many bytes of one call. */
#define MOST_CALL_BYTES 1e15

/* Where times come from. */
struct source {
    struct bench_report_times *measured; /* NULL = they are predicted */
    struct bench_schedule_request request;
};

static gyre_status find_measured(const struct bench_report_times *times,
                                 struct bench_bottleneck_call *call)
{
    const struct bench_time_curve *curve = &times->of[call->calls.coll];
    bool is_beyond;
    if (curve->n_points == 0)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "no --from has a report of %s",
                         gyre_collectives[call->calls.coll].name);
    call->us = bench_time_curve_at(curve, call->calls.n_bytes, &is_beyond);
    snprintf(call->source, sizeof(call->source), "%s",
             is_beyond ? "extrapolated beyond the measured sizes" : "measured");
    return GYRE_SUCCESS;
}

static gyre_status find_predicted(const struct bench_schedule_request *common,
                                  struct bench_bottleneck_call *call)
{
    struct bench_schedule_request request = *common;
    struct bench_schedule_fastest fastest;
    if (call->calls.n_bytes > MOST_CALL_BYTES)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "a call of %g bytes is too large to predict",
                         call->calls.n_bytes);
    request.coll = call->calls.coll;
    GYRE_TRY(bench_schedule_fastest(&request, (uint64_t)ceil(call->calls.n_bytes), &fastest));
    call->us = fastest.prediction.time_ns / 1e3;
    snprintf(call->source, sizeof(call->source), "predicted, %s", fastest.algorithm->name);
    return GYRE_SUCCESS;
}

/* Fills in the times of one strategy, or the reason why they are unknown. */
static void fill_strategy(const struct bench_training *training, enum bench_strategy strategy,
                          const struct source *source, struct bench_bottleneck_strategy *out)
{
    struct bench_training_calls calls[BENCH_MAX_TRAINING_CALLS];
    out->n_calls = bench_training_calls(training, strategy, calls);
    for (int i = 0; i < out->n_calls; i++) {
        struct bench_bottleneck_call *call = &out->calls[i];
        call->calls = calls[i];
        const gyre_status status = source->measured != NULL
                                       ? find_measured(source->measured, call)
                                       : find_predicted(&source->request, call);
        if (status != GYRE_SUCCESS) {
            snprintf(out->reason, sizeof(out->reason), "%s", gyre_cause());
            return;
        }
        out->communication_us += call->us * call->calls.n_calls;
    }
}

/* Finds out how many ranks there are, on which hosts. */
static bool open_source(struct bench_bottleneck_options *options, struct bench_report_times *times,
                        struct source *source, unsigned *n_hosts_out)
{
    const struct gyre_algorithm *none;
    struct gyre_shape shape = {.n_ranks = 0};
    for (int i = 0; i < options->n_from; i++)
        if (bench_report_times_add(options->from[i], times) != GYRE_SUCCESS) {
            fprintf(stderr, "bottleneck: --from: %s\n", gyre_cause());
            return false;
        }
    const bool is_named = options->shape.hosts != NULL || options->shape.n_ranks > 0;
    if (is_named && !bench_shape_find(&options->shape, false, &none, &shape))
        return false;
    const unsigned n_hosts = shape.grouping == NULL ? 1 : shape.grouping->n_hosts;
    if (options->n_from > 0 && is_named &&
        (shape.n_ranks != times->n_ranks || n_hosts != times->n_hosts)) {
        fprintf(stderr,
                "bottleneck: --from has times of %u ranks on %u hosts, not of %u ranks on %u\n",
                times->n_ranks, times->n_hosts, shape.n_ranks, n_hosts);
        return false;
    }
    options->training.n_ranks = options->n_from > 0 ? times->n_ranks : shape.n_ranks;
    *n_hosts_out = options->n_from > 0 ? times->n_hosts : n_hosts;
    source->measured = options->n_from > 0 ? times : NULL;
    source->request = options->request;
    source->request.n_ranks = shape.n_ranks;
    source->request.grouping = shape.grouping;
    if (options->training.n_ranks >= 2)
        return true;
    fputs("bottleneck: one rank has nobody to communicate with\n", stderr);
    return false;
}

/* Returns the exit status: 1 if the times of every strategy are unknown. */
static int report(struct bench_bottleneck_options *options)
{
    static struct bench_report_times times; /* large; one result a process */
    struct bench_bottleneck_result result = {.options = options};
    struct source source;
    bool is_known = false;
    if (!open_source(options, &times, &source, &result.n_hosts))
        return 1;
    result.is_predicted = source.measured == NULL;
    result.compute_us = bench_training_compute_us(&options->training);
    for (int i = 0; i < BENCH_N_STRATEGIES; i++) {
        fill_strategy(&options->training, (enum bench_strategy)i, &source, &result.of[i]);
        is_known = is_known || result.of[i].reason[0] == '\0';
    }
    bench_bottleneck_print(&result);
    if (options->json_path != NULL && bench_bottleneck_write_json(&result) != GYRE_SUCCESS) {
        fprintf(stderr, "bottleneck: %s\n", gyre_cause());
        return 1;
    }
    return is_known ? 0 : 1;
}

static int run(int argc, char **argv)
{
    struct bench_bottleneck_options options;
    if (argc == 1) {
        bench_bottleneck_print_usage(argv[0], stderr);
        return 2;
    }
    if (!bench_bottleneck_parse(argc, argv, &options))
        return 2;
    if (options.wants_help) {
        bench_bottleneck_print_usage(argv[0], stdout);
        return 0;
    }
    return report(&options);
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("bottleneck", run(argc, argv));
}
