/* SPDX-License-Identifier: Apache-2.0
 *
 * One table of options: letter, long name, value and help text. The parser and the usage text read
 * it.
 */
#include "bench/driver/options.h"

#include "core/base/util.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ids of long options that have no letter. */
enum {
    ALGO = 256,
    PROTO,
    RESULT_PATH,
    DEVICE,
    COMPARE,
    CSV,
    ROUNDS,
    SWEEP,
    CHANNELS,
    PREDICT,
    ACCURACY,
    OUTPUT,
    FROM,
    LIMITS,
    NCCL_LIB,
    NCCL_ALGO,
    NCCL_PROTO,
    NCCL_MODE,
    HELP_VARS
};

/* X(letter or id, long name, name of the value ("" = none), help) */
#define OPTION_TABLE(X)                                                                          \
    X('t', "nthreads", "n", "threads of each process [1]")                                       \
    X('g', "ngpus", "n", "ranks of each thread, each on a device of its own [1]")                \
    X('b', "minbytes", "bytes", "smallest size; K, M and G are powers of 1024 [32M]")            \
    X('e', "maxbytes", "bytes", "largest size [32M]")                                            \
    X('i', "stepbytes", "bytes", "add this to get the next size [1M]")                           \
    X('f', "stepfactor", "n", "multiply by n to get the next size; 0 and 1 mean -i")             \
    X('n', "iters", "n", "timed iterations of each size [20]")                                   \
    X('w', "warmup_iters", "n", "untimed iterations before them [5]")                            \
    X('m', "agg_iters", "n", "operations of each iteration, in one group [1]")                   \
    X('N', "run_cycles", "n", "measure the whole table n times; 0 = until interrupted [1]")      \
    X('p', "parallel_init", "0|1", "accepted and ignored; ranks always start in parallel")       \
    X('c', "check", "n", "checked iterations of each size [1]")                                  \
    X('o', "op", "op", "sum, prod, max, min, avg or all [sum]")                                  \
    X('d', "datatype", "type",                                                                   \
      "int8, uint8, int32, ..., half, float, bfloat16, ... or all [float]")                      \
    X('r', "root", "rank", "root rank, or all [0]")                                              \
    X('z', "blocking", "0|1", "wait after each iteration [0]")                                   \
    X('y', "stream_null", "0|1", "use the default stream [0]")                                   \
    X('T', "timeout", "s", "an operation that takes longer fails; 0 = no limit [0]")             \
    X('G', "cudagraph", "n",                                                                     \
      "capture the iterations, replay them n times; with --compare for 1 ms [0]")                \
    X('C', "report_cputime", "0|1", "report the time of the calls without the wait [0]")         \
    X('a', "average", "0..3", "time over the ranks: 0 rank 0, 1 mean, 2 min, 3 max [1]")         \
    X('S', "report_timestamps", "0|1", "print a time stamp at the end of each line [0]")         \
    X('u', "unalign", "0|1", "align buffers to one element only [0]")                            \
    X('R', "local_register", "0|1|2",                                                            \
      "1: register buffers, 2: put the receive buffer in a window [0]")                          \
    X('J', "json", "file", "write a JSON report")                                                \
    X(CSV, "csv", "file", "write a CSV table")                                                   \
    X(ALGO, "algo", "names", "allow these algorithms only, in place of GYRE_ALGO")               \
    X(PROTO, "proto", "names", "allow these protocols only, in place of GYRE_PROTO")             \
    X(RESULT_PATH, "path", "names",                                                              \
      "allow these of staged, placed, copy_engine, in place of GYRE_PATH; see -R")               \
    X(DEVICE, "device", "kind", "host, cuda or auto [auto]")                                     \
    X(COMPARE, "compare", "engine", "also time mpi or nccl, in turn with gyre")                  \
    X(ROUNDS, "rounds", "n", "rounds of --compare, --predict and tune [9]")                      \
    X(SWEEP, "sweep", "0|1",                                                                     \
      "run each of --algo x --proto x --channels; -J r.json: r.ring-ll-4.json [0]")              \
    X(CHANNELS, "channels", "list", "numbers of channels for --sweep, each from 1 to 64")        \
    X(PREDICT, "predict", "0|1",                                                                 \
      "compare predictions with times, and the tuner with the best choice [0]")                  \
    X(ACCURACY, "accuracy", "0|1",                                                               \
      "compare errors of sums with --compare's; all types with -d all [0]")                      \
    X(LIMITS, "limits", "file", "show busbw as % of a ceiling that build/bench/limits measured") \
    X(FROM, "from", "folder", "tune: fit to the reports (--json) there instead of measuring")    \
    X(OUTPUT, "output", "file", "tune: write the constants to this file [standard output]")      \
    X(NCCL_LIB, "nccl-lib", "file", "the NCCL library of --compare nccl [libnccl.so.2]")         \
    X(NCCL_ALGO, "nccl-algo", "names", "set NCCL_ALGO for the NCCL of --compare nccl")           \
    X(NCCL_PROTO, "nccl-proto", "names", "set NCCL_PROTO for the NCCL of --compare nccl")        \
    X(NCCL_MODE, "nccl-mode", "mode",                                                            \
      "NCCL's buffers: plain, window, or best (the faster one) [plain]")                         \
    X(HELP_VARS, "help-vars", "", "print the table of the library's variables")                  \
    X('h', "help", "", "print this text")

static const struct option long_options[] = {
#define OPTION_ROW(id, name, value, help) \
    {name, sizeof(value) > 1 ? required_argument : no_argument, NULL, id},
    OPTION_TABLE(OPTION_ROW)
#undef OPTION_ROW
        {NULL, 0, NULL, 0}};

const char *const bench_nccl_mode_names[] = {"plain", "window", "best"};

/* The largest value of -a (enum bench_average). */
#define MAX_AVERAGE 3

void bench_options_print_help(const char *program)
{
    printf("usage: %s [options]\n", program);
#define OPTION_HELP(id, name, value, help)                                     \
    printf((id) < 256 ? "  -%c,--%-18s %-7s %s\n" : "   %c --%-18s %-7s %s\n", \
           (id) < 256 ? (id) : ' ', name, value, help);
    OPTION_TABLE(OPTION_HELP)
#undef OPTION_HELP
}

gyre_status bench_parse_bytes(const char *text, size_t *n_bytes_out)
{
    char *end = NULL;
    errno = 0;
    const double number = strtod(text, &end);
    double unit = 1;
    if (end != text && *end != '\0') {
        static const char letters[] = "KMG";
        const char *letter = strchr(letters, toupper((unsigned char)*end));
        if (letter == NULL || *letter == '\0' || end[1] != '\0')
            end = NULL;
        else
            for (const char *at = letters; at <= letter; at++)
                unit *= 1024;
    }
    if (end == NULL || end == text || errno != 0 || !(number >= 0) || number * unit > 1e15)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "\"%s\" is not a size: a number, then nothing, K, M or G", text);
    *n_bytes_out = (size_t)(number * unit);
    return GYRE_SUCCESS;
}

size_t bench_options_next_bytes(const struct bench_options *options, size_t n_bytes)
{
    if (options->step_factor <= 1)
        return n_bytes + options->step_bytes;
    return n_bytes == 0 ? 1 : n_bytes * (size_t)options->step_factor;
}

struct gyre_filter_words bench_options_allowed(const struct bench_options *options)
{
    return (struct gyre_filter_words){
        .algos = options->is_sweep ? NULL : options->algo,
        .protos = options->is_sweep ? NULL : options->proto,
        .paths = options->result_path,
        .algo_source = "--algo",
        .proto_source = "--proto",
        .path_source = "--path",
    };
}

static gyre_status parse_int(const char *text, int low, int high, int *value_out)
{
    char *end = NULL;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < low || value > high)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\" is not a number from %d to %d", text,
                         low, high);
    *value_out = (int)value;
    return GYRE_SUCCESS;
}

static gyre_status parse_bool(const char *text, bool *value_out)
{
    int value = 0;
    GYRE_TRY(parse_int(text, 0, 1, &value));
    *value_out = value != 0;
    return GYRE_SUCCESS;
}

/* Reads a word of a table, or "all" where that is allowed. */
static gyre_status parse_name(const char *text, const char *const *names, int n_names,
                              bool is_all_legal, int *value_out)
{
    if (is_all_legal && strcmp(text, "all") == 0) {
        *value_out = BENCH_ALL;
        return GYRE_SUCCESS;
    }
    *value_out = gyre_name_find(names, n_names, text);
    if (*value_out >= 0)
        return GYRE_SUCCESS;
    char legal[256] = "";
    for (int i = 0; i < n_names; i++)
        snprintf(legal + strlen(legal), sizeof(legal) - strlen(legal), " %s", names[i]);
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\" is none of%s%s", text, legal,
                     is_all_legal ? " all" : "");
}

static gyre_status parse_compare(const char *text, const char **compare_out)
{
    static const char *const engines[] = {"mpi", "nccl"};
    int engine;
    GYRE_TRY(parse_name(text, engines, 2, false, &engine));
    *compare_out = engines[engine];
    return GYRE_SUCCESS;
}

/* Options about the data and the collective. */
static gyre_status take_data_option(int id, const char *text, struct bench_options *options)
{
    static const char *const devices[] = {"auto", "host", "cuda"}; /* enum gyre_device_kind */
    switch (id) {
    case 'b':
        return bench_parse_bytes(text, &options->min_bytes);
    case 'e':
        return bench_parse_bytes(text, &options->max_bytes);
    case 'i':
        return bench_parse_bytes(text, &options->step_bytes);
    case 'f':
        return parse_int(text, 0, 1 << 20, &options->step_factor);
    case 'o':
        return parse_name(text, gyre_op_names, GYRE_N_OPS, true, &options->op);
    case 'd':
        return parse_name(text, gyre_dtype_names, GYRE_N_DTYPES, true, &options->dtype);
    case 'r':
        if (strcmp(text, "all") == 0) {
            options->root = BENCH_ALL;
            return GYRE_SUCCESS;
        }
        return parse_int(text, 0, INT_MAX, &options->root);
    case 'u':
        return parse_bool(text, &options->is_unaligned);
    case 'R':
        return parse_int(text, 0, 2, &options->registration);
    case DEVICE:
        return parse_name(text, devices, 3, false, &options->device);
    case ALGO:
        options->algo = text;
        return GYRE_SUCCESS;
    case PROTO:
        options->proto = text;
        return GYRE_SUCCESS;
    case RESULT_PATH:
        options->result_path = text;
        return GYRE_SUCCESS;
    case COMPARE:
        return parse_compare(text, &options->compare);
    case SWEEP:
        return parse_bool(text, &options->is_sweep);
    case CHANNELS:
        options->channels = text;
        return GYRE_SUCCESS;
    case PREDICT:
        return parse_bool(text, &options->is_predict);
    case ACCURACY:
        return parse_bool(text, &options->is_accuracy);
    case FROM:
        options->from_folder = text;
        return GYRE_SUCCESS;
    case OUTPUT:
        options->output_path = text;
        return GYRE_SUCCESS;
    case LIMITS:
        options->limits_path = text;
        return GYRE_SUCCESS;
    case NCCL_LIB:
        options->nccl_library = text;
        return GYRE_SUCCESS;
    case NCCL_ALGO:
        options->nccl_algo = text;
        return GYRE_SUCCESS;
    case NCCL_PROTO:
        options->nccl_proto = text;
        return GYRE_SUCCESS;
    case NCCL_MODE:
        return parse_name(text, bench_nccl_mode_names, 3, false, &options->nccl_mode);
    case 'J':
        options->json_path = text;
        return GYRE_SUCCESS;
    default: /* CSV */
        options->csv_path = text;
        return GYRE_SUCCESS;
    }
}

/* Options about the run and its reports. */
static gyre_status take_option(int id, const char *text, struct bench_options *options)
{
    bool ignored;
    switch (id) {
    case 't':
        return parse_int(text, 1, 1024, &options->n_threads);
    case 'g':
        return parse_int(text, 1, 1024, &options->n_gpus);
    case 'n':
        return parse_int(text, 1, 100000000, &options->n_iters);
    case 'w':
        return parse_int(text, 0, 100000000, &options->n_warmup);
    case 'm':
        return parse_int(text, 1, 4096, &options->n_aggregated);
    case 'N':
        return parse_int(text, 0, INT_MAX, &options->n_cycles);
    case 'c':
        return parse_int(text, 0, INT_MAX, &options->n_checks);
    case 'p':
        return parse_bool(text, &ignored);
    case 'z':
        return parse_bool(text, &options->is_blocking);
    case 'y':
        return parse_bool(text, &options->is_stream_null);
    case 'T':
        return parse_int(text, 0, 1000000, &options->timeout_s);
    case 'G':
        return parse_int(text, 0, 1000000, &options->n_graph_launches);
    case 'C':
        return parse_bool(text, &options->is_cputime);
    case 'a':
        return parse_int(text, 0, MAX_AVERAGE, &options->average);
    case 'S':
        return parse_bool(text, &options->has_timestamps);
    case ROUNDS:
        return parse_int(text, 1, 1000, &options->n_rounds);
    case HELP_VARS:
        options->wants_variables = true;
        return GYRE_SUCCESS;
    case 'h':
        options->wants_help = true;
        return GYRE_SUCCESS;
    default:
        return take_data_option(id, text, options);
    }
}

gyre_status bench_options_parse(int argc, char **argv, const struct bench_kind *kind,
                                struct bench_options *options_out)
{
    *options_out = (struct bench_options){
        .n_threads = 1,
        .n_gpus = 1,
        .min_bytes = kind->min_bytes > 0 ? kind->min_bytes : 32 << 20,
        .max_bytes = kind->max_bytes > 0 ? kind->max_bytes : 32 << 20,
        .step_factor = kind->step_factor,
        .step_bytes = 1 << 20,
        .n_iters = 20,
        .n_warmup = 5,
        .n_aggregated = 1,
        .n_cycles = 1,
        .n_checks = 1,
        .average = BENCH_AVERAGE,
        .op = GYRE_SUM,
        .dtype = GYRE_FLOAT32,
        .device = GYRE_DEVICE_AUTO,
        .n_rounds = 9,
    };
    opterr = 0;
    optind = 1;
    for (;;) {
        const int at = optind;
        const int id = getopt_long(
            argc, argv, ":t:g:b:e:i:f:n:w:m:N:p:c:o:d:r:z:y:T:G:C:a:S:u:R:J:h", long_options, NULL);
        if (id == -1)
            break;
        if (id == '?' || id == ':')
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: %s", argv[at],
                             id == '?' ? "no such option (see --help)" : "needs a value");
        const gyre_status status = take_option(id, optarg, options_out);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "%s", argv[at]);
    }
    if (optind < argc)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: benches take options only (see --help)",
                         argv[optind]);
    return bench_options_check(options_out, kind);
}
