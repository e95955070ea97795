/* SPDX-License-Identifier: Apache-2.0
 *
 * bottleneck: does communication or computation bound the training of a model?
 *
 *    bottleneck --params 7e9 --tokens 4e6 --hosts 2x8 --nic-rate 50
 */
#include "bench/driver/option_table.h"
#include "bench/report/report_reader.h"
#include "bench/tools/training.h"

#include <math.h>
#include <string.h>

#define MOST_CALL_BYTES 1e15

/* H100 and H200, dense bfloat16 (NVIDIA's data sheets). */
#define DEFAULT_PEAK_TFLOPS 989
/* Large models reach 0.3 to 0.5 of the peak (Narayanan et al., SC 2021, table 1). */
#define DEFAULT_UTILISATION 0.4
/* Kaplan et al., "Scaling Laws for Neural Language Models", 2020, section 2.1. */
#define FLOPS_OF_PARAM_AND_TOKEN 6
#define BACKWARD_PART            (2.0 / 3) /* 4 of these 6 */
/* DistributedDataParallel's bucket_cap_mb=25. */
#define DEFAULT_BUCKET_BYTES (25.0 * 1024 * 1024)
/* Times and numbers stay meaningful below it. */
#define MOST_AMOUNT 10000000000000000

#define AT(field)   .at = offsetof(struct bench_bottleneck_options, field)

static const struct bench_option table[] = {
    {0, "model", "NAME", "a published model, in place of --params, --layers and --hidden",
     BENCH_TEXT, AT(model)},
    {0, "params", "P",
     "parameters of the model: 7e9; without it they follow from --layers,\n--hidden and --vocab",
     BENCH_AMOUNT, AT(training.n_params), .high = MOST_AMOUNT},
    {0, "tokens", "T", "tokens of one training step, over all ranks: 4e6", BENCH_AMOUNT,
     AT(training.n_tokens), .high = MOST_AMOUNT},
    {0, "dtype", "NAME", "type of parameters and gradients: bf16 (default), fp16, f32, ...",
     BENCH_DTYPE, AT(dtype)},
    {0, "layers", "N", "transformer layers (default: those of the published model nearest to P)",
     BENCH_NUMBER, AT(training.n_layers), 1, 100000},
    {0, "hidden", "N", "elements of one token between layers (default: as the layers)",
     BENCH_AMOUNT, AT(training.hidden), .high = 1000000000},
    {0, "vocab", "V", "rows of the embedding: the vocabulary, and learned positions", BENCH_AMOUNT,
     AT(vocabulary), .high = 1000000000},
    {0, "compute-ms", "MS", "the measured computation of a step, in place of --tokens and --peak",
     BENCH_AMOUNT, AT(compute_ms), .high = 1000000000},
    {0, "trace", "FILE",
     "a profile of a step that PyTorch's profiler wrote, in place of all of\nthese", BENCH_TEXT,
     AT(trace)},
    {0, "threshold", "R",
     "communication / computation from which communication is the bottleneck\n"
     "(default 0.3)",
     BENCH_AMOUNT, AT(threshold), .high = 1000},
    {0, "tensor", "N",
     "ranks of a tensor-parallel group: a divisor of a host's ranks, which is\nthe default, or all "
     "ranks",
     BENCH_NUMBER, AT(n_tensor_ranks), 2, GYRE_MAX_RANKS},
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
    {0, "tensor-from", "FILE", "measured times of the ranks of one tensor-parallel group",
     BENCH_TEXTS, AT(tensor_from)},
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
            "usage: %s {--params P | --model NAME} --tokens T {--hosts 2x8 | --ranks N | --from "
            "FILE} [options]\n       %s --trace FILE [--threshold R] [--json FILE]\n",
            program, program);
    bench_options_print(table, 21, out);
    fputs("Models:", out);
    for (int i = 0; i < bench_n_models; i++)
        fprintf(out, " %s%s", bench_models[i].name, i == 8 ? "\n       " : "");
    fputs("\nExit status: 0 a time was found; 1 no time is known, or a file cannot be used or "
          "written;\n"
          "2 wrong usage.\n",
          out);
}

/* Finds the shape, unless --from alone says it. */
static bool check_together(const struct bench_bottleneck_options *options,
                           struct gyre_shape *shape_out)
{
    const struct bench_schedule_request *request = &options->request;
    const struct bench_training *training = &options->training;
    const bool is_about_predictions = request->cost != NULL || request->nic_gbytes_per_s > 0 ||
                                      options->shape.n_nics > 0 ||
                                      request->net != BENCH_NET_UNNAMED;
    const bool has_shape = options->shape.hosts != NULL || options->shape.n_ranks > 0;
    const bool has_sizes = training->n_layers > 0 && training->hidden > 0;
    const char *wrong = NULL;
    if (options->trace != NULL) {
        if (has_shape || options->from.n > 0 || training->n_params > 0 || options->model != NULL ||
            options->compute_ms > 0)
            wrong = "--trace has the times of a step, and takes only --threshold and --json";
    } else if (options->model != NULL && bench_model_find(options->model) == NULL)
        wrong = "--model: there is no such model (bottleneck --help lists them)";
    else if (options->model != NULL && (training->n_params > 0 || training->n_layers > 0 ||
                                        training->hidden > 0 || options->vocabulary > 0))
        wrong = "--model says what --params, --layers, --hidden and --vocab would";
    else if (options->model == NULL && training->n_params <= 0 && !has_sizes)
        wrong = "--params, --model, or --layers with --hidden is needed (bottleneck --help)";
    else if (options->vocabulary > 0 && training->n_params > 0)
        wrong = "--vocab is for finding --params, which is given";
    else if (training->n_tokens <= 0 && options->compute_ms <= 0)
        wrong = "--tokens or --compute-ms is needed (bottleneck --help)";
    else if (!has_shape && options->from.n == 0)
        wrong = "one of --hosts, --ranks and --from is needed (bottleneck --help)";
    else if (options->from.n > 0 && is_about_predictions)
        wrong =
            "--cost, --nics, --nic-rate and --net are for predictions, and do not go with --from";
    else if (options->tensor_from.n > 0 && options->from.n == 0)
        wrong = "--tensor-from needs --from";
    else if (options->shape.n_nics > 0 && options->shape.hosts == NULL)
        wrong = "--nics needs --hosts: NICs are between hosts";
    else if (request->net != BENCH_NET_UNNAMED && options->shape.hosts == NULL)
        wrong = "--net needs --hosts: it is the network between hosts";
    if (wrong != NULL) {
        fprintf(stderr, "bottleneck: %s\n", wrong);
        return false;
    }
    const struct gyre_algorithm *none;
    if (!has_shape)
        return true;
    if (!bench_shape_find(&options->shape, false, &none, shape_out))
        return false;
    if (shape_out->n_ranks < 2)
        fputs("bottleneck: one rank has nobody to communicate with\n", stderr);
    return shape_out->n_ranks >= 2;
}

struct source {
    struct bench_report_times *measured, *measured_group; /* NULL = predicted */
    struct bench_schedule_request request, request_group;
    unsigned ranks_of_host; /* 1 = hosts have no common divisor */
    bool has_group;
};

static gyre_status find_time(const struct source *source, bool is_group,
                             struct bench_bottleneck_call *call)
{
    struct bench_schedule_request request = is_group ? source->request_group : source->request;
    struct bench_schedule_fastest fastest;
    if (source->measured != NULL) {
        const struct bench_time_curve *curve =
            &(is_group ? source->measured_group : source->measured)->of[call->calls.coll];
        bool is_beyond;
        if (curve->n_points == 0)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED, "no --from has a report of %s",
                             gyre_collectives[call->calls.coll].name);
        call->us = bench_time_curve_at(curve, call->calls.n_bytes, &is_beyond);
        snprintf(call->source, sizeof(call->source), "%s",
                 is_beyond ? "extrapolated beyond the measured sizes" : "measured");
        return GYRE_SUCCESS;
    }
    if (call->calls.n_bytes > MOST_CALL_BYTES)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "a call of %g bytes is too large to predict",
                         call->calls.n_bytes);
    request.shape.coll = call->calls.coll;
    GYRE_TRY(bench_schedule_fastest(&request, (uint64_t)ceil(call->calls.n_bytes), &fastest));
    call->us = fastest.prediction.time_ns / 1e3;
    snprintf(call->source, sizeof(call->source), "predicted, %s", fastest.algorithm->name);
    return GYRE_SUCCESS;
}

static void fill_strategy(const struct bench_training *training, enum bench_strategy strategy,
                          const struct source *source, double compute_us,
                          struct bench_bottleneck_strategy *out)
{
    struct bench_training_calls calls[BENCH_MAX_TRAINING_CALLS];
    const bool is_group = strategy == BENCH_TENSOR_PARALLEL && source->has_group;
    out->name = bench_strategy_names[strategy];
    const char *problem = NULL;
    if (strategy == BENCH_TENSOR_PARALLEL && training->n_tensor_ranks < 2)
        problem = "no group of ranks fits within a host";
    else if (strategy == BENCH_TENSOR_PARALLEL && training->n_tokens <= 0)
        problem = "--tokens is needed";
    else if (is_group && source->measured != NULL && source->measured_group == NULL)
        problem = "no --tensor-from has times of the ranks of one host";
    out->n_calls = problem == NULL ? bench_training_calls(training, strategy, calls) : 0;
    for (int i = 0; i < out->n_calls; i++) {
        struct bench_bottleneck_call *call = &out->calls[i];
        call->calls = calls[i];
        if (find_time(source, is_group, call) != GYRE_SUCCESS) {
            problem = gyre_cause();
            break;
        }
        out->communication_us += call->us * call->calls.n_calls;
    }
    if (problem != NULL) {
        snprintf(out->reason, sizeof(out->reason), "%s", problem);
        return;
    }
    /* Data parallel: buckets hide in the backward pass, except the last. Sharded: the first
     * all-gather and last reduce-scatter stay. Tensor parallel: all stays, as the next matrix needs
     * the sum. */
    const double first_us = out->calls[0].us, last_us = out->calls[out->n_calls - 1].us;
    out->exposed_us = out->communication_us;
    if (strategy == BENCH_DATA_PARALLEL)
        out->exposed_us = fmax(out->communication_us - BACKWARD_PART * compute_us, last_us);
    else if (strategy == BENCH_SHARDED)
        out->exposed_us = fmax(out->communication_us - compute_us, first_us + last_us);
}

static bool read_times(const struct bench_texts *paths, const char *option,
                       struct bench_report_times *times)
{
    for (int i = 0; i < paths->n; i++)
        if (bench_report_times_add(paths->at[i], times) != GYRE_SUCCESS) {
            fprintf(stderr, "bottleneck: %s: %s\n", option, gyre_cause());
            return false;
        }
    return true;
}

static unsigned common_ranks(const struct gyre_shape *shape)
{
    static unsigned n_of[GYRE_MAX_RANKS];
    unsigned common = 0;
    if (shape->grouping == NULL)
        return shape->n_ranks;
    memset(n_of, 0, sizeof(n_of));
    for (unsigned rank = 0; rank < shape->n_ranks; rank++)
        n_of[shape->grouping->host_of[rank]]++;
    for (unsigned host = 0; host < shape->grouping->n_hosts; host++)
        for (unsigned n = n_of[host]; n != 0;) {
            const unsigned rest = common % n;
            common = n;
            n = rest;
        }
    return common;
}

static bool open_source(struct bench_bottleneck_options *options, const struct gyre_shape *shape,
                        struct source *source, unsigned *n_hosts_out)
{
    static struct bench_report_times times;
    const bool is_measured = options->from.n > 0;
    if (!read_times(&options->from, "--from", &times))
        return false;
    const bool is_named = shape->n_ranks > 0;
    const unsigned n_hosts = shape->grouping == NULL ? 1 : shape->grouping->n_hosts;
    if (is_measured && is_named && (shape->n_ranks != times.n_ranks || n_hosts != times.n_hosts)) {
        fprintf(stderr,
                "bottleneck: --from has times of %u ranks on %u hosts, not of %u ranks on %u\n",
                times.n_ranks, times.n_hosts, shape->n_ranks, n_hosts);
        return false;
    }
    options->training.n_ranks = is_measured ? times.n_ranks : shape->n_ranks;
    *n_hosts_out = is_measured ? times.n_hosts : n_hosts;
    source->measured = is_measured ? &times : NULL;
    source->request = options->request;
    source->request.shape = *shape;
    source->ranks_of_host = is_named                             ? common_ranks(shape)
                            : times.n_ranks % times.n_hosts == 0 ? times.n_ranks / times.n_hosts
                                                                 : 1;
    if (options->training.n_ranks < 2) {
        fputs("bottleneck: one rank has nobody to communicate with\n", stderr);
        return false;
    }
    /* Within a host unless --tensor names all ranks. */
    static struct bench_report_times group_times;
    struct bench_training *training = &options->training;
    const unsigned wanted = (unsigned)options->n_tensor_ranks, n = training->n_ranks;
    training->n_tensor_ranks = wanted > 0 ? wanted : source->ranks_of_host;
    if (wanted > 0 && wanted != n && source->ranks_of_host % wanted != 0) {
        fprintf(stderr,
                "bottleneck: --tensor %u: expected a divisor of the %u ranks of a host, or all %u "
                "ranks\n",
                wanted, source->ranks_of_host, n);
        return false;
    }
    source->has_group = training->n_tensor_ranks != n;
    source->request_group = source->request;
    source->request_group.shape.n_ranks = (uint16_t)training->n_tensor_ranks;
    source->request_group.shape.grouping = NULL;
    source->request_group.nic_gbytes_per_s = 0;
    source->request_group.net = BENCH_NET_UNNAMED;
    if (options->tensor_from.n == 0)
        return true;
    if (!read_times(&options->tensor_from, "--tensor-from", &group_times))
        return false;
    if (group_times.n_hosts != 1 || group_times.n_ranks != training->n_tensor_ranks) {
        fprintf(
            stderr,
            "bottleneck: --tensor-from has times of %u ranks on %u hosts, not of %u ranks on one\n",
            group_times.n_ranks, group_times.n_hosts, training->n_tensor_ranks);
        return false;
    }
    source->measured_group = &group_times;
    return true;
}

static int report(struct bench_bottleneck_options *options, const struct gyre_shape *shape)
{
    struct bench_bottleneck_result result = {.options = options};
    struct source source = {0};
    bool is_known = false;
    if (options->trace != NULL) {
        if (bench_profile_read(options->trace, &result.profile) != GYRE_SUCCESS) {
            fprintf(stderr, "bottleneck: --trace: %s\n", gyre_cause());
            return 1;
        }
        result.source = "profiled";
        result.compute_us = result.profile.compute_us;
        result.n_strategies = 1;
        result.of[0].name = "as profiled";
        result.of[0].communication_us = result.profile.communication_us;
        result.of[0].exposed_us = result.profile.exposed_us;
    } else {
        bench_training_set_sizes(options);
        if (!open_source(options, shape, &source, &result.n_hosts))
            return 1;
        result.source = source.measured != NULL ? "measured" : "predicted";
        const struct bench_training *training = &options->training;
        const double flops_per_us = training->peak_tflops * 1e6 * training->utilisation;
        result.compute_us = options->compute_ms > 0
                                ? options->compute_ms * 1e3
                                : FLOPS_OF_PARAM_AND_TOKEN * training->n_params *
                                      training->n_tokens / (training->n_ranks * flops_per_us);
        result.n_strategies = BENCH_N_STRATEGIES;
        for (int i = 0; i < BENCH_N_STRATEGIES; i++)
            fill_strategy(&options->training, (enum bench_strategy)i, &source, result.compute_us,
                          &result.of[i]);
    }
    for (int i = 0; i < result.n_strategies; i++)
        is_known = is_known || result.of[i].reason[0] == '\0';
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
        .threshold = BENCH_TRAINING_RULE,
        .training = {.bucket_bytes = DEFAULT_BUCKET_BYTES,
                     .peak_tflops = DEFAULT_PEAK_TFLOPS,
                     .utilisation = DEFAULT_UTILISATION}};
    const int ended = bench_options_start(&line, argc, argv, &options, print_usage);
    if (ended >= 0)
        return ended;
    struct gyre_shape shape = {.n_ranks = 0};
    if (!check_together(&options, &shape))
        return 2;
    options.training.dtype_bytes = gyre_dtype_bytes(options.dtype);
    return report(&options, &shape);
}

int main(int argc, char **argv)
{
    bench_streams_open();
    return bench_streams_close("bottleneck", run(argc, argv));
}
