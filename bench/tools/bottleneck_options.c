/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the options of `bottleneck`. A function that finds a mistake prints it on standard error
 * and returns false.
 */
#include "bench/tools/bottleneck_options.h"

#include "bench/tools/predict_options.h"
#include "core/foundation/base/text.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* H100 and H200, dense bfloat16 (NVIDIA's data sheets). */
#define DEFAULT_PEAK_TFLOPS 989
/* Large models reach 0.3 to 0.5 of the peak (Narayanan et al., SC 2021, table 1). */
#define DEFAULT_UTILISATION 0.4
#define DEFAULT_LAYERS      32
/* DistributedDataParallel's bucket_cap_mb=25. */
#define DEFAULT_BUCKET_BYTES (25.0 * 1024 * 1024)
/* Beyond these no time has a meaning, and no number overflows. */
#define MOST_AMOUNT 1e16

void bench_bottleneck_print_usage(const char *program, FILE *out)
{
    fprintf(out,
            "usage: %s --params P --tokens T {--hosts 2x8 | --ranks N | --from FILE} [options]\n",
            program);
    fputs("  --params P         parameters of the model: 7e9\n"
          "  --tokens T         tokens of one training step, over all ranks: 4e6\n"
          "  --dtype NAME       type of parameters and gradients: bf16 (default), fp16, f32, ...\n"
          "  --layers N         transformer layers of the model (default 32)\n"
          "  --hidden N         elements of one token between layers (default: from P and the "
          "layers)\n"
          "  --micro-batch T    tensor parallel: tokens of one forward pass (default: the whole "
          "step)\n"
          "  --bucket BYTES     data parallel: bytes of one all-reduce (default 26214400, DDP's)\n"
          "  --peak TFLOPS      peak of one rank's device for this type (default 989: H100, bf16)\n"
          "  --utilisation U    part of the peak that computation reaches (default 0.4)\n"
          "  --hosts LIST       2x8 (2 hosts of 8 ranks) or 7+8 (the ranks of each host)\n"
          "  --ranks N          ranks of one host\n"
          "  --from FILE        measured times: a bench's --json; give it once for each "
          "collective.\n"
          "                     Without it times are predicted\n"
          "  --cost NAME        the machine of predictions: host, h200 (default), or a file that\n"
          "                     gyre tune wrote\n"
          "  --nics N           NICs of a host, for predictions (default: one for each rank)\n"
          "  --nic-rate R       GB/s of one NIC in each direction, for predictions\n"
          "  --net NAME         what is between hosts, for predictions: ib (RDMA, default) or "
          "socket (TCP)\n"
          "  --json FILE        write the result as JSON, too\n"
          "  -h, --help         print this text\n"
          "Communication counts as the bottleneck if it takes more than 0.3 of the time of "
          "computation.\n"
          "Exit status: 0 a time was found; 1 no time is known, or a file cannot be used or "
          "written;\n"
          "2 wrong usage.\n",
          out);
}

static bool parse_amount(const char *name, const char *text, double most, double *amount_out)
{
    char *end;
    const double amount = gyre_text_to_double(text, &end);
    if (end == text || *end != '\0' || !(amount > 0) || amount > most) {
        fprintf(stderr, "bottleneck: --%s %s: expected a number above 0, at most %g\n", name, text,
                most);
        return false;
    }
    *amount_out = amount;
    return true;
}

static bool parse_dtype(const char *text, gyre_dtype *dtype_out)
{
    static const struct {
        const char *name;
        gyre_dtype dtype;
    } short_names[] = {{"bf16", GYRE_BFLOAT16}, {"fp16", GYRE_FLOAT16}, {"f16", GYRE_FLOAT16},
                       {"f32", GYRE_FLOAT32},   {"fp32", GYRE_FLOAT32}, {"fp8", GYRE_FLOAT8_E4M3}};
    for (size_t i = 0; i < sizeof(short_names) / sizeof(short_names[0]); i++)
        if (strcmp(text, short_names[i].name) == 0) {
            *dtype_out = short_names[i].dtype;
            return true;
        }
    const int found = gyre_name_find(gyre_dtype_names, GYRE_N_DTYPES, text);
    if (found < 0)
        fprintf(stderr, "bottleneck: --dtype %s: there is no such type (bf16, fp16, f32, fp8)\n",
                text);
    *dtype_out = (gyre_dtype)found;
    return found >= 0;
}

enum {
    PARAMS = 256,
    TOKENS,
    DTYPE,
    LAYERS,
    HIDDEN,
    MICRO_BATCH,
    BUCKET,
    PEAK,
    UTILISATION,
    HOSTS,
    RANKS,
    FROM,
    COST,
    NICS,
    NIC_RATE,
    NET,
    JSON
};

static const struct option long_options[] = {{"params", required_argument, NULL, PARAMS},
                                             {"tokens", required_argument, NULL, TOKENS},
                                             {"dtype", required_argument, NULL, DTYPE},
                                             {"layers", required_argument, NULL, LAYERS},
                                             {"hidden", required_argument, NULL, HIDDEN},
                                             {"micro-batch", required_argument, NULL, MICRO_BATCH},
                                             {"bucket", required_argument, NULL, BUCKET},
                                             {"peak", required_argument, NULL, PEAK},
                                             {"utilisation", required_argument, NULL, UTILISATION},
                                             {"hosts", required_argument, NULL, HOSTS},
                                             {"ranks", required_argument, NULL, RANKS},
                                             {"from", required_argument, NULL, FROM},
                                             {"cost", required_argument, NULL, COST},
                                             {"nics", required_argument, NULL, NICS},
                                             {"nic-rate", required_argument, NULL, NIC_RATE},
                                             {"net", required_argument, NULL, NET},
                                             {"json", required_argument, NULL, JSON},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

static bool take_from(const char *path, struct bench_bottleneck_options *options)
{
    if (options->n_from == BENCH_MAX_FROM) {
        fprintf(stderr, "bottleneck: --from %s: at most %d files\n", path, BENCH_MAX_FROM);
        return false;
    }
    options->from[options->n_from++] = path;
    return true;
}

static bool take_training_option(int id, const char *value, struct bench_training *training)
{
    int n_layers = 0;
    switch (id) {
    case PARAMS:
        return parse_amount("params", value, MOST_AMOUNT, &training->n_params);
    case TOKENS:
        return parse_amount("tokens", value, MOST_AMOUNT, &training->n_tokens);
    case LAYERS:
        if (!bench_parse_number("bottleneck", "--layers", value, 1, 100000, &n_layers))
            return false;
        training->n_layers = (unsigned)n_layers;
        return true;
    case HIDDEN:
        return parse_amount("hidden", value, 1e9, &training->hidden);
    case MICRO_BATCH:
        return parse_amount("micro-batch", value, MOST_AMOUNT, &training->micro_batch_tokens);
    case BUCKET:
        return parse_amount("bucket", value, MOST_AMOUNT, &training->bucket_bytes);
    case PEAK:
        return parse_amount("peak", value, 1e9, &training->peak_tflops);
    default: /* UTILISATION */
        return parse_amount("utilisation", value, 1, &training->utilisation);
    }
}

static bool take_option(int id, const char *value, struct bench_bottleneck_options *options)
{
    switch (id) {
    case DTYPE:
        return parse_dtype(value, &options->dtype);
    case HOSTS:
        options->shape.hosts = value;
        return true;
    case RANKS:
        return bench_shape_take('n', value, &options->shape);
    case NICS:
        return bench_shape_take(BENCH_SHAPE_NICS, value, &options->shape);
    case FROM:
        return take_from(value, options);
    case COST:
        options->request.cost = value;
        return true;
    case NIC_RATE:
        return parse_amount("nic-rate", value, 1e6, &options->request.nic_gbytes_per_s);
    case NET:
        return bench_predict_net("bottleneck", value, &options->request.net);
    case JSON:
        options->json_path = value;
        return true;
    case 'h':
        options->wants_help = true;
        return true;
    case '?': /* getopt_long() has printed the reason */
        return false;
    default:
        return take_training_option(id, value, &options->training);
    }
}

/* Refuses ranks and hosts that do not exist, and a single rank. */
static bool has_peers(const struct bench_bottleneck_options *options)
{
    const struct gyre_algorithm *none;
    struct gyre_shape shape;
    if (options->shape.hosts == NULL && options->shape.n_ranks == 0)
        return true; /* the reports of --from say how many there are */
    if (!bench_shape_find(&options->shape, false, &none, &shape))
        return false;
    if (shape.n_ranks < 2)
        fputs("bottleneck: one rank has nobody to communicate with\n", stderr);
    return shape.n_ranks >= 2;
}

/* Refuses what is missing, and options that have no effect together with the other options. */
static bool check_together(const struct bench_bottleneck_options *options)
{
    const struct bench_schedule_request *request = &options->request;
    const bool is_about_predictions = request->cost != NULL || request->nic_gbytes_per_s > 0 ||
                                      options->shape.n_nics > 0 ||
                                      request->net != BENCH_NET_UNNAMED;
    const char *wrong = NULL;
    if (options->training.n_params <= 0 || options->training.n_tokens <= 0)
        wrong = "--params and --tokens are needed (bottleneck --help)";
    else if (options->shape.hosts == NULL && options->shape.n_ranks == 0 && options->n_from == 0)
        wrong = "one of --hosts, --ranks and --from is needed (bottleneck --help)";
    else if (options->n_from > 0 && is_about_predictions)
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

bool bench_bottleneck_parse(int argc, char **argv, struct bench_bottleneck_options *options_out)
{
    struct bench_bottleneck_options options = {
        .dtype = GYRE_BFLOAT16,
        .shape = {.user = "bottleneck", .collective = "all_reduce", .variant = -1},
        .training = {.n_layers = DEFAULT_LAYERS,
                     .bucket_bytes = DEFAULT_BUCKET_BYTES,
                     .peak_tflops = DEFAULT_PEAK_TFLOPS,
                     .utilisation = DEFAULT_UTILISATION}};
    for (;;) {
        const int id = getopt_long(argc, argv, "h", long_options, NULL);
        if (id == -1)
            break;
        if (!take_option(id, optarg, &options))
            return false;
        if (options.wants_help) {
            *options_out = options;
            return true;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "bottleneck: unexpected argument \"%s\"\n", argv[optind]);
        return false;
    }
    if (!check_together(&options))
        return false;
    options.training.dtype_bytes = gyre_dtype_bytes(options.dtype);
    set_defaults(&options.training);
    *options_out = options;
    return true;
}
