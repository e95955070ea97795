/* SPDX-License-Identifier: Apache-2.0
 *
 * bottleneck: does communication or computation bound the training of a model?
 *
 *    bottleneck --params 7e9 --tokens 4e6 --hosts 2x8 --nic-rate 50
 */
#include "bench/driver/streams.h"
#include "bench/report/report_reader.h"
#include "bench/tools/bottleneck_output.h"

#include <math.h>

#define MOST_CALL_BYTES 1e15

/* H100 and H200, dense bfloat16 (NVIDIA's data sheets). */
#define DEFAULT_PEAK_TFLOPS 989
/* Large models reach 0.3 to 0.5 of the peak (Narayanan et al., SC 2021, table 1). */
#define DEFAULT_UTILISATION 0.4
#define DEFAULT_LAYERS      32
/* DistributedDataParallel's bucket_cap_mb=25. */
#define DEFAULT_BUCKET_BYTES (25.0 * 1024 * 1024)
/* Beyond these no time has a meaning, and no number overflows. */
#define MOST_AMOUNT 10000000000000000

#define AT(field)   .at = offsetof(struct bench_bottleneck_options, field)

static const struct bench_option table[] = {
    {0, "params", "P", "parameters of the model: 7e9", BENCH_AMOUNT, AT(training.n_params),
     .high = MOST_AMOUNT},
    {0, "tokens", "T", "tokens of one training step, over all ranks: 4e6", BENCH_AMOUNT,
     AT(training.n_tokens), .high = MOST_AMOUNT},
    {0, "dtype", "NAME", "type of parameters and gradients: bf16 (default), fp16, f32, ...",
     BENCH_DTYPE, AT(dtype)},
    {0, "layers", "N", "transformer layers of the model (default 32)", BENCH_NUMBER,
     AT(training.n_layers), 1, 100000},
    {0, "hidden", "N", "elements of one token between layers (default: from P and the layers)",
     BENCH_AMOUNT, AT(training.hidden), .high = 1000000000},
    {0, "micro-batch", "T", "tensor parallel: tokens of one forward pass (default: the whole step)",
     BENCH_AMOUNT, AT(training.micro_batch_tokens), .high = MOST_AMOUNT},
    {0, "bucket", "BYTES", "data parallel: bytes of one all-reduce (default 26214400, DDP's)",
     BENCH_AMOUNT, AT(training.bucket_bytes), .high = MOST_AMOUNT},
    {0, "peak", "TFLOPS", "peak of one rank's device for this type (default 989: H100, bf16)",
     BENCH_AMOUNT, AT(training.peak_tflops), .high = 1000000000},
    {0, "utilisation", "U", "part of the peak that computation reaches (default 0.4)", BENCH_AMOUNT,
     AT(training.utilisation), .high = 1},
    {0, "hosts", "LIST", "2x8 (2 hosts of 8 ranks) or 7+8 (the ranks of each host)", BENCH_TEXT,
     AT(shape.hosts)},
    {0, "ranks", "N", "ranks of one host", BENCH_NUMBER, AT(shape.n_ranks), 1, GYRE_MAX_RANKS},
    {0, "from", "FILE",
     "measured times: a bench's --json; give it once for each collective.\nWithout it times are "
     "predicted",
     BENCH_TEXTS, AT(from)},
    {0, "cost", "NAME",
     "the machine of predictions: host, h200 (default), or a file that\ngyre tune wrote",
     BENCH_TEXT, AT(request.cost)},
    {0, "nics", "N", "NICs of a host, for predictions (default: one for each rank)", BENCH_NUMBER,
     AT(shape.n_nics), 1, GYRE_MAX_RANKS},
    {0, "nic-rate", "R", "GB/s of one NIC in each direction, for predictions", BENCH_AMOUNT,
     AT(request.nic_gbytes_per_s), .high = 1000000},
    BENCH_NET_OPTION(struct bench_bottleneck_options, request,
                     "what is between hosts, for predictions: ib (RDMA, default) or socket (TCP)"),
    {0, "json", "FILE", "write the result as JSON, too", BENCH_TEXT, AT(json_path)},
    {'h', "help", NULL, "print this text", BENCH_FLAG, AT(wants_help)},
    {0},
};

static void print_usage(const char *program, FILE *out)
{
    fprintf(out,
            "usage: %s --params P --tokens T {--hosts 2x8 | --ranks N | --from FILE} [options]\n",
            program);
    bench_options_print(table, 21, out);
    fputs("Communication counts as the bottleneck if it takes more than 0.3 of the time of "
          "computation.\n"
          "Exit status: 0 a time was found; 1 no time is known, or a file cannot be used or "
          "written;\n"
          "2 wrong usage.\n",
          out);
}

static bool has_peers(const struct bench_bottleneck_options *options)
{
    const struct gyre_algorithm *none;
    struct gyre_shape shape;
    if (options->shape.hosts == NULL && options->shape.n_ranks == 0)
        return true;
    if (!bench_shape_find(&options->shape, false, &none, &shape))
        return false;
    if (shape.n_ranks < 2)
        fputs("bottleneck: one rank has nobody to communicate with\n", stderr);
    return shape.n_ranks >= 2;
}

/* Refuses options that have no effect together with the others. */
static bool check_together(const struct bench_bottleneck_options *options)
{
    const struct bench_schedule_request *request = &options->request;
    const bool is_about_predictions = request->cost != NULL || request->nic_gbytes_per_s > 0 ||
                                      options->shape.n_nics > 0 ||
                                      request->net != BENCH_NET_UNNAMED;
    const char *wrong = NULL;
    if (options->training.n_params <= 0 || options->training.n_tokens <= 0)
        wrong = "--params and --tokens are needed (bottleneck --help)";
    else if (options->shape.hosts == NULL && options->shape.n_ranks == 0 && options->from.n == 0)
        wrong = "one of --hosts, --ranks and --from is needed (bottleneck --help)";
    else if (options->from.n > 0 && is_about_predictions)
        wrong = "--cost, --nics, --nic-rate and --net are for predictions, and do not go with "
                "--from";
    else if (options->shape.n_nics > 0 && options->shape.hosts == NULL)
        wrong = "--nics needs --hosts: NICs are between hosts";
    else if (request->net != BENCH_NET_UNNAMED && options->shape.hosts == NULL)
        wrong = "--net needs --hosts: it is the network between hosts";
    if (wrong != NULL)
        fprintf(stderr, "bottleneck: %s\n", wrong);
    return wrong == NULL && has_peers(options);
}

static void set_defaults(struct bench_training *training)
{
    if (training->hidden <= 0)
        training->hidden = bench_training_hidden(training->n_params, training->n_layers);
    if (training->micro_batch_tokens <= 0 || training->micro_batch_tokens > training->n_tokens)
        training->micro_batch_tokens = training->n_tokens;
}

struct source {
    struct bench_report_times *measured; /* NULL = predicted */
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

static bool open_source(struct bench_bottleneck_options *options, struct bench_report_times *times,
                        struct source *source, unsigned *n_hosts_out)
{
    const struct gyre_algorithm *none;
    struct gyre_shape shape = {.n_ranks = 0};
    for (int i = 0; i < options->from.n; i++)
        if (bench_report_times_add(options->from.at[i], times) != GYRE_SUCCESS) {
            fprintf(stderr, "bottleneck: --from: %s\n", gyre_cause());
            return false;
        }
    const bool is_named = options->shape.hosts != NULL || options->shape.n_ranks > 0;
    if (is_named && !bench_shape_find(&options->shape, false, &none, &shape))
        return false;
    const unsigned n_hosts = shape.grouping == NULL ? 1 : shape.grouping->n_hosts;
    if (options->from.n > 0 && is_named &&
        (shape.n_ranks != times->n_ranks || n_hosts != times->n_hosts)) {
        fprintf(stderr,
                "bottleneck: --from has times of %u ranks on %u hosts, not of %u ranks on %u\n",
                times->n_ranks, times->n_hosts, shape.n_ranks, n_hosts);
        return false;
    }
    options->training.n_ranks = options->from.n > 0 ? times->n_ranks : shape.n_ranks;
    *n_hosts_out = options->from.n > 0 ? times->n_hosts : n_hosts;
    source->measured = options->from.n > 0 ? times : NULL;
    source->request = options->request;
    source->request.n_ranks = shape.n_ranks;
    source->request.grouping = shape.grouping;
    if (options->training.n_ranks >= 2)
        return true;
    fputs("bottleneck: one rank has nobody to communicate with\n", stderr);
    return false;
}

static int report(struct bench_bottleneck_options *options)
{
    static struct bench_report_times times;
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
    static const struct bench_command_line line = {.options = table, .user = "bottleneck"};
    struct bench_bottleneck_options options = {
        .dtype = GYRE_BFLOAT16,
        .shape = {.user = "bottleneck", .collective = "all_reduce", .variant = -1},
        .training = {.n_layers = DEFAULT_LAYERS,
                     .bucket_bytes = DEFAULT_BUCKET_BYTES,
                     .peak_tflops = DEFAULT_PEAK_TFLOPS,
                     .utilisation = DEFAULT_UTILISATION}};
    if (argc == 1) {
        print_usage(argv[0], stderr);
        return 2;
    }
    if (!bench_options_take(&line, argc, argv, &options))
        return 2;
    if (options.wants_help) {
        print_usage(argv[0], stdout);
        return 0;
    }
    if (!check_together(&options))
        return 2;
    options.training.dtype_bytes = gyre_dtype_bytes(options.dtype);
    set_defaults(&options.training);
    return report(&options);
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("bottleneck", run(argc, argv));
}
