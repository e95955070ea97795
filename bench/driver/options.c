/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/driver/options.h"

#include "core/foundation/base/util.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCEPTED_HELP "taken for nccl-tests' sake, without effect"

const char *const bench_op_names[] = {
#define OP_NAME(id, name) [GYRE_##id] = #name,
    GYRE_OP_TABLE(OP_NAME)
#undef OP_NAME
        [BENCH_MULSUM] = "mulsum"};

const char *const bench_nccl_mode_names[] = {"plain",      "window",  "best",
                                             "registered", "zero-sm", "default"};

static const char *const device_names[] = {"auto", "host", "cuda"}; /* enum gyre_device_kind */
static const char *const engine_names[] = {"mpi", "nccl", "old"};

#define AT(field) .at = offsetof(struct bench_options, field)

const struct bench_option bench_option_rows[] = {
    {'t', "nthreads", "n", "threads of each process [1]", BENCH_NUMBER, AT(n_threads), 1, 1024},
    {'g', "ngpus", "n", "ranks of each thread, each on a device of its own [1]", BENCH_NUMBER,
     AT(n_gpus), 1, 1024},
    {'b', "minbytes", "bytes", "smallest size; K, M and G are powers of 1024 [32M]", BENCH_BYTES,
     AT(min_bytes)},
    {'e', "maxbytes", "bytes", "largest size [32M]", BENCH_BYTES, AT(max_bytes)},
    {'i', "stepbytes", "bytes", "add this to get the next size [1M]", BENCH_BYTES, AT(step_bytes)},
    {'f', "stepfactor", "n", "multiply by n to get the next size; 0 and 1 mean -i", BENCH_NUMBER,
     AT(step_factor), 0, 1 << 20},
    {'n', "iters", "n", "timed iterations of each size [20]", BENCH_NUMBER, AT(n_iters), 1,
     100000000},
    {'w', "warmup_iters", "n", "untimed iterations before them [5]", BENCH_NUMBER, AT(n_warmup), 0,
     100000000},
    {'m', "agg_iters", "n", "operations of each iteration, in one group [1]", BENCH_NUMBER,
     AT(n_aggregated), 1, 4096},
    {'N', "run_cycles", "n", "measure the whole table n times; 0 = until interrupted [1]",
     BENCH_NUMBER, AT(n_cycles), 0, INT_MAX},
    {'p', "parallel_init", "0|1", "accepted and ignored; ranks always start in parallel",
     BENCH_IGNORED, .high = 1},
    {'c', "check", "n", "checked iterations of each size [1]", BENCH_NUMBER, AT(n_checks), 0,
     INT_MAX},
    {'o', "op", "op", "sum, prod, max, min, avg, mulsum (factor 1) or all but mulsum [sum]",
     BENCH_WORD, AT(op), 0, GYRE_N_OPS + 1, bench_op_names, .has_all = true},
    {'d', "datatype", "type", "int8, uint8, int32, ..., half, float, bfloat16, ... or all [float]",
     BENCH_DTYPE, AT(dtype), .has_all = true},
    {'r', "root", "rank", "root rank, or all [0]", BENCH_NUMBER, AT(root), 0, INT_MAX,
     .has_all = true},
    {'z', "blocking", "0..3", "1 to 3: wait after each iteration [0]", BENCH_BOOL, AT(is_blocking),
     0, 3},
    {'y', "stream_null", "0|1", "use the default stream [0]", BENCH_BOOL, AT(is_stream_null), 0, 1},
    {'T', "timeout", "s", "an operation that takes longer fails; 0 = no limit [0]", BENCH_NUMBER,
     AT(timeout_s), 0, 1000000},
    {'G', "cudagraph", "n",
     "capture the iterations, replay them n times; with --compare for 1 ms [0]", BENCH_NUMBER,
     AT(n_graph_launches), 0, 1000000},
    {'C', "report_cputime", "0|1", "report the time of the calls without the wait [0]", BENCH_BOOL,
     AT(is_cputime), 0, 1},
    {0, "host-time", "0|1", "show the host's time to enqueue a call, beside its time [0]",
     BENCH_BOOL, AT(has_host_time), 0, 1, .agreement = BENCH_OWN},
    {'a', "average", "0..3", "time over the ranks: 0 rank 0, 1 mean, 2 min, 3 max [1]",
     BENCH_NUMBER, AT(average), 0, BENCH_MAX},
    {'S', "report_timestamps", "0|1", "print a time stamp at the end of each line [0]", BENCH_BOOL,
     AT(has_timestamps), 0, 1, .agreement = BENCH_OWN},
    {'u', "unalign", "0|1", "align buffers to one element only [0]", BENCH_BOOL, AT(is_unaligned),
     0, 1},
    {'R', "local_register", "0|1|2",
     "1: register buffers, 2: put the receive buffer in a window [0]", BENCH_NUMBER,
     AT(registration), 0, 2},
    {'J', "json", "file", "write a JSON report", BENCH_TEXT, AT(json_path),
     .agreement = BENCH_PRESENT},
    {'I', "iter-times", "n", ACCEPTED_HELP, BENCH_IGNORED, .high = INT_MAX,
     .why = "single iterations have no times here, only the batch of -n"},
    {'K', "iter-skip", "n", ACCEPTED_HELP, BENCH_IGNORED, .high = INT_MAX,
     .why = "it counts with -I alone"},
    {'M', "memory_report", "0|1", ACCEPTED_HELP, BENCH_IGNORED, .high = INT_MAX,
     .why = "there is no memory report"},
    {'D', "device_implementation", "n", ACCEPTED_HELP, BENCH_IGNORED, .high = INT_MAX,
     .why = "the bench has no kernels of its own beside gyre's"},
    {'V', "device_cta_count", "n", ACCEPTED_HELP, BENCH_IGNORED, .high = INT_MAX,
     .why = "it counts with -D alone"},
    {'x', "cta_policy", "0..2", ACCEPTED_HELP, BENCH_IGNORED, .high = 2,
     .why = "see --path copy_engine and GYRE_SMS instead"},
    {0, "csv", "file", "write a CSV table", BENCH_TEXT, AT(csv_path), .agreement = BENCH_PRESENT},
    {0, "algo", "names", "allow these algorithms only, in place of GYRE_ALGO", BENCH_TEXT,
     AT(algo)},
    {0, "algo-file", "file",
     "run the programs in this file, in place of GYRE_ALGO_FILE; see docs/schedule.md", BENCH_TEXT,
     AT(algo_file), .agreement = BENCH_PRESENT},
    {0, "proto", "names", "allow these protocols only, in place of GYRE_PROTO", BENCH_TEXT,
     AT(proto)},
    {0, "path", "names",
     "allow these of staged, placed, copy_engine, in place of GYRE_PATH; see -R", BENCH_TEXT,
     AT(result_path)},
    {0, "device", "kind", "host, cuda or auto [auto]", BENCH_WORD, AT(device), 0, 3, device_names,
     .agreement = BENCH_OWN},
    {0, "compare", "engine", "also time mpi, nccl or old, in turn with gyre", BENCH_TEXT,
     AT(compare), 0, 3, engine_names},
    {0, "compare-algos", "names",
     "time these algorithms in turns, each with or without \"@\" and a protocol; \"gyre\" is "
     "gyre's choice, \"file\" that of --algo-file, and the engine of --compare may be named",
     BENCH_TEXT, AT(compare_algos)},
    {0, "sizes", "list", "sizes of --compare-algos in this order, in place of -b and -e",
     BENCH_TEXT, AT(sizes)},
    {0, "rounds", "n", "rounds of --compare, --compare-algos, --predict and tune [9]", BENCH_NUMBER,
     AT(n_rounds), 1, 1000},
    {0, "sweep", "0|1",
     "run each of --algo x --proto x --channels; -J r.json: r.ring-ll-4.json [0]", BENCH_BOOL,
     AT(is_sweep), 0, 1},
    {0, "channels", "list", "numbers of channels for --sweep, each from 1 to 64", BENCH_TEXT,
     AT(channels)},
    {0, "predict", "0|1", "compare predictions with times, and the tuner with the best choice [0]",
     BENCH_BOOL, AT(is_predict), 0, 1},
    {0, "accuracy", "0|1", "compare errors of sums with --compare's; all types with -d all [0]",
     BENCH_BOOL, AT(is_accuracy), 0, 1},
    {0, "limits", "file", "show busbw as % of a ceiling that gyre limits measured", BENCH_TEXT,
     AT(limits_path), .agreement = BENCH_OWN},
    {0, "from", "folder", "tune: fit to the reports (--json) there instead of measuring",
     BENCH_TEXT, AT(from_folder), .agreement = BENCH_PRESENT},
    {0, "output", "file", "tune: write the constants to this file [standard output]", BENCH_TEXT,
     AT(output_path), .agreement = BENCH_OWN},
    {0, "nccl-lib", "file", "the NCCL library of --compare nccl [libnccl.so.2]", BENCH_TEXT,
     AT(nccl_library), .agreement = BENCH_OWN},
    {0, "nccl-algo", "names", "set NCCL_ALGO for the NCCL of --compare nccl", BENCH_TEXT,
     AT(nccl_algo)},
    {0, "nccl-proto", "names", "set NCCL_PROTO for the NCCL of --compare nccl", BENCH_TEXT,
     AT(nccl_proto)},
    {0, "nccl-channels", "n", "set NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS likewise", BENCH_TEXT,
     AT(nccl_channels)},
    {0, "nccl-mode", "mode",
     "how NCCL runs: plain, registered, window, zero-sm or best (the fastest) [plain]", BENCH_WORD,
     AT(nccl_mode), 0, BENCH_N_NCCL_MODES, bench_nccl_mode_names},
    {0, "old-lib", "file", "the libgyre.so of --compare old, as of an earlier version", BENCH_TEXT,
     AT(old_library), .agreement = BENCH_OWN},
    {0, "help-vars", NULL, "print the table of the library's variables", BENCH_FLAG,
     AT(wants_variables)},
    {'h', "help", NULL, "print this text", BENCH_FLAG, AT(wants_help)},
    {'J', "output_file", "file", NULL, BENCH_TEXT, AT(json_path)}, /* nccl-tests' other name */
    {'M', "memory", "0|1", NULL, BENCH_IGNORED, .high = INT_MAX,
     .why = "there is no memory report"}, /* nccl-tests' other name */
    {0},
};

void bench_options_print_help(const char *program)
{
    printf("usage: %s [options]\n", program);
    for (const struct bench_option *row = bench_option_rows; row->name != NULL; row++)
        if (row->help != NULL)
            printf(row->letter != 0 ? "  -%c,--%-18s %-7s %s\n" : "   %c --%-18s %-7s %s\n",
                   row->letter != 0 ? row->letter : ' ', row->name,
                   row->value != NULL ? row->value : "", row->help);
}

size_t bench_options_next_bytes(const struct bench_options *options, size_t n_bytes)
{
    if (options->step_factor <= 1)
        return n_bytes + options->step_bytes;
    return n_bytes == 0 ? 1 : n_bytes * (size_t)options->step_factor;
}

gyre_status bench_options_take_size(const char **at, size_t *n_bytes_out)
{
    char text[32];
    const size_t n_bytes = strcspn(*at, ",");
    snprintf(text, sizeof(text), "%.*s", (int)n_bytes, *at);
    *at += n_bytes + ((*at)[n_bytes] == ',');
    return bench_parse_bytes(text, n_bytes_out);
}

static gyre_status read_sizes(struct bench_options *options)
{
    const char *at = options->sizes;
    options->min_bytes = at != NULL ? SIZE_MAX : options->min_bytes;
    options->max_bytes = at != NULL ? 0 : options->max_bytes;
    while (at != NULL) {
        size_t n_bytes;
        const gyre_status status = bench_options_take_size(&at, &n_bytes);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "--sizes %s", options->sizes);
        options->min_bytes = n_bytes < options->min_bytes ? n_bytes : options->min_bytes;
        options->max_bytes = n_bytes > options->max_bytes ? n_bytes : options->max_bytes;
        if (*at == '\0')
            break;
    }
    return GYRE_SUCCESS;
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

static gyre_status check_sizes(const struct bench_options *options)
{
    if (options->min_bytes > options->max_bytes)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "-b %zu is larger than -e %zu; give both",
                         options->min_bytes, options->max_bytes);
    if (options->step_factor <= 1 && options->step_bytes == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "with -i 0 the size never reaches -e %zu",
                         options->max_bytes);
    if (options->n_graph_launches > 0 && options->device == GYRE_DEVICE_HOST)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "-G: the host device has no graphs to capture");
    if (options->n_threads * options->n_gpus > 1024)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "-t %d times -g %d is more than 1024, the most ranks of a process",
                         options->n_threads, options->n_gpus);
    return GYRE_SUCCESS;
}

static bool is_double(const char *list, const char *at)
{
    const size_t n_bytes = strcspn(at, ",");
    for (const char *other = list; other < at; other += strcspn(other, ",") + 1)
        if (strcspn(other, ",") == n_bytes && strncmp(other, at, n_bytes) == 0)
            return true;
    return false;
}

static gyre_status check_contenders(const char *list, bool has_file, const char *engine)
{
    int n = 0, n_engines = 0;
    for (const char *at = list; at != NULL; n++) {
        const size_t n_bytes = strcspn(at, ",");
        char name[BENCH_CONTENDER_BYTES];
        snprintf(name, sizeof(name), "%.*s", (int)n_bytes, at);
        char *protos = strchr(name, '@');
        const bool is_engine = engine != NULL && strcmp(name, engine) == 0;
        n_engines += is_engine;
        if (protos != NULL)
            *protos++ = '\0';
        const bool is_file = strcmp(name, "file") == 0;
        if (n_bytes >= sizeof(name) || (is_file ? !has_file
                                                : !is_engine && strcmp(name, "gyre") != 0 &&
                                                      gyre_algorithm_find(name) == NULL))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--compare-algos: \"%.*s\" is %s",
                             (int)n_bytes, at,
                             is_file ? "a word for programs, which --algo-file names"
                                     : "neither an algorithm nor the word file");
        if (is_double(list, at))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "--compare-algos %s: \"%.*s\" is named twice", list, (int)n_bytes, at);
        if (protos != NULL) {
            /* Refuses unknown protocols before the ranks meet. */
            struct gyre_filter filter;
            const struct gyre_filter_words words = {.protos = protos,
                                                    .proto_source = "--compare-algos"};
            GYRE_TRY(gyre_filter_parse("", "", "", &filter));
            const gyre_status status = gyre_filter_override(&words, &filter);
            if (status != GYRE_SUCCESS)
                return gyre_fail_context(status, "%s@%s", name, protos);
        }
        at = at[n_bytes] == ',' ? at + n_bytes + 1 : NULL;
    }
    if (engine != NULL && n_engines == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--compare-algos %s: with --compare %s, %s is one of the names", list,
                         engine, engine);
    if (n < 1 || n > BENCH_MAX_CONTENDERS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--compare-algos %s: expected 1 to %d names, separated by commas", list,
                         BENCH_MAX_CONTENDERS);
    return GYRE_SUCCESS;
}

/* Refuses contradictions, and options without effect. */
static gyre_status check_together(const struct bench_options *o, const struct bench_kind *kind)
{
    const bool reports = o->json_path != NULL || o->csv_path != NULL;
    const bool is_tune = kind->run != NULL;
    const bool is_nccl = o->compare != NULL && strcmp(o->compare, "nccl") == 0;
    const bool is_old = o->compare != NULL && strcmp(o->compare, "old") == 0;
    const struct {
        bool is_wrong;
        const char *cause;
    } rules[] = {
        {o->has_host_time && (o->n_graph_launches > 0 || o->is_blocking),
         "--host-time does not go with -G, whose launches enqueue many calls at once, or with -z "
         "1, which waits after each call"},
        {o->op == BENCH_MULSUM &&
             (o->compare != NULL || o->compare_algos != NULL || o->is_predict || o->is_accuracy),
         "-o mulsum does not go with --compare, --compare-algos, --predict or --accuracy"},
        {o->is_predict && (o->is_sweep || o->compare != NULL || reports),
         "--predict 1 does not go with --sweep, --compare, --json or --csv"},
        {o->is_accuracy && (o->is_sweep || o->is_predict || reports),
         "--accuracy 1 does not go with --sweep, --predict, --json or --csv"},
        {o->compare_algos != NULL && (o->is_sweep || o->is_predict || o->is_accuracy ||
                                      o->limits_path != NULL || o->algo != NULL),
         "--compare-algos does not go with --algo, --sweep, --predict, --accuracy or --limits"},
        {o->sizes != NULL && o->compare_algos == NULL, "--sizes needs --compare-algos"},
        {o->compare_algos != NULL &&
             (o->op == BENCH_ALL || o->dtype == BENCH_ALL || o->root == BENCH_ALL),
         "--compare-algos takes one type, operation and root, not all"},
        {o->is_predict && o->limits_path != NULL, "--limits does not go with --predict 1"},
        /* gyre's words would hold for one library only */
        {is_old != (o->old_library != NULL), "--compare old and --old-lib need each other"},
        {is_old && (o->algo != NULL || o->proto != NULL || o->algo_file != NULL ||
                    o->result_path != NULL || o->is_sweep),
         "--compare old does not go with --algo, --proto, --path, --algo-file or --sweep: set "
         "GYRE_ALGO and the like, which both libraries read"},
        {o->nccl_library != NULL && !is_nccl, "--nccl-lib needs --compare nccl"},
        {o->nccl_algo != NULL && !is_nccl, "--nccl-algo needs --compare nccl"},
        {o->nccl_proto != NULL && !is_nccl, "--nccl-proto needs --compare nccl"},
        {o->nccl_channels != NULL && !is_nccl, "--nccl-channels needs --compare nccl"},
        {o->nccl_mode != BENCH_NCCL_PLAIN && !is_nccl, "--nccl-mode needs --compare nccl"},
        {o->channels != NULL && !o->is_sweep,
         "--channels needs --sweep 1; for one number of channels set GYRE_MIN_NCHANNELS and "
         "GYRE_MAX_NCHANNELS"},
        {o->algo_file != NULL && o->algo != NULL,
         "--algo does not go with --algo-file, which says what runs"},
        {o->algo_file != NULL && (o->is_sweep || o->is_predict || is_tune),
         "--algo-file does not go with --sweep, --predict or tune (for predictions there is gyre "
         "schedule --predict --file)"},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(rules); i++)
        if (rules[i].is_wrong)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s", rules[i].cause);
    if (!is_tune && (o->from_folder != NULL || o->output_path != NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--from and --output do not go with %s: they are options of tune",
                         kind->name);
    if (is_tune && (reports || o->compare != NULL || o->limits_path != NULL || o->is_predict ||
                    o->is_accuracy || o->is_sweep || o->compare_algos != NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s does not go with --json, --csv, --compare, --limits, --predict, "
                         "--accuracy, --compare-algos or --sweep",
                         kind->name);
    return o->compare_algos == NULL
               ? GYRE_SUCCESS
               : check_contenders(o->compare_algos, o->algo_file != NULL, o->compare);
}

static gyre_status check_sweep(const struct bench_options *options)
{
    const char *const lists[][2] = {
        {"--algo", options->algo}, {"--proto", options->proto}, {"--channels", options->channels}};
    if (!options->is_sweep)
        return GYRE_SUCCESS;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(lists); i++)
        for (const char *at = lists[i][1]; at != NULL;) {
            if (*at == ',' || *at == '\0')
                return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s %s: a word of the list is empty",
                                 lists[i][0], lists[i][1]);
            at = strchr(at, ',');
            at = at == NULL ? NULL : at + 1;
        }
    for (const char *at = options->channels; at != NULL;) {
        char *end = NULL;
        const long n_channels = strtol(at, &end, 10);
        if ((*end != ',' && *end != '\0') || n_channels < 1 || n_channels > 64)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "--channels: \"%.*s\" is not a number from 1 to 64",
                             (int)strcspn(at, ","), at);
        at = *end == ',' ? end + 1 : NULL;
    }
    return GYRE_SUCCESS;
}

/* Refuses unknown words, and lists that do not name the one algorithm of sends and receives, on
 * which they would have no effect. */
static gyre_status check_allowed(const struct bench_options *options, const struct bench_kind *kind)
{
    struct gyre_filter any, filter;
    struct gyre_filter_words words = bench_options_allowed(options);
    words.algos = options->algo; /* also as lists of --sweep */
    words.protos = options->proto;
    GYRE_TRY(gyre_filter_parse("", "", "", &any));
    filter = any;
    GYRE_TRY(gyre_filter_override(&words, &filter));
    if (kind->coll != GYRE_COLL_SEND_RECV || kind->run != NULL)
        return GYRE_SUCCESS;
    if (options->algo != NULL && filter.algorithms[kind->coll] == any.algorithms[kind->coll])
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--algo %s: sends and receives have one algorithm", options->algo);
    if (options->proto != NULL && filter.protos[kind->coll] == any.protos[kind->coll] &&
        filter.net_protos[kind->coll] == any.net_protos[kind->coll])
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--proto %s: that does not restrict sends and receives; name them: "
                         "--proto send_recv:%s",
                         options->proto, options->proto);
    return GYRE_SUCCESS;
}

static gyre_status check_paths(const struct bench_options *options)
{
    const struct {
        const char *option;
        const char *path;
    } written[] = {{"--json", options->json_path},
                   {"--csv", options->csv_path},
                   {"--output", options->output_path}};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(written); i++)
        if (written[i].path != NULL && strcmp(written[i].path, "-") == 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s -: give the path of a file",
                             written[i].option);
    if (options->json_path != NULL && options->csv_path != NULL &&
        bench_is_same_file(options->json_path, options->csv_path))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--json and --csv are the same file, %s",
                         options->csv_path);
    return GYRE_SUCCESS;
}

gyre_status bench_options_parse(int argc, char **argv, const struct bench_kind *kind,
                                struct bench_options *options_out)
{
    static const struct bench_command_line line = {.options = bench_option_rows,
                                                   .unknown = "no such option (see --help)",
                                                   .valueless = "needs a value",
                                                   .has_arguments = true};
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
    GYRE_TRY(bench_options_read(&line, argc, argv, options_out, options_out->notes));
    if (options_out->wants_help || options_out->wants_variables)
        return GYRE_SUCCESS;
    if (optind < argc)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: benches take options only (see --help)",
                         argv[optind]);
    if (options_out->nccl_mode == BENCH_NCCL_DEFAULT)
        options_out->nccl_mode = BENCH_NCCL_PLAIN;
    GYRE_TRY(read_sizes(options_out));
    /* The init reports a failure to all ranks. Here an option may name what is missing. */
    char missing[GYRE_CAUSE_MAX_BYTES / 2] = "";
    if (gyre_plugins_load_own() != GYRE_SUCCESS)
        snprintf(missing, sizeof(missing), "%s", gyre_cause());
    GYRE_TRY(check_sizes(options_out));
    gyre_status status = check_together(options_out, kind);
    if (status == GYRE_SUCCESS)
        status = check_sweep(options_out);
    if (status == GYRE_SUCCESS)
        status = check_allowed(options_out, kind);
    if (status != GYRE_SUCCESS && missing[0] != '\0')
        return gyre_fail_context(status, "%s", missing);
    GYRE_TRY(status);
    return check_paths(options_out);
}
