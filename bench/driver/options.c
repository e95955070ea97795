/* SPDX-License-Identifier: Apache-2.0
 *
 * One table of options: letter, long name, value and help text. The parser and the usage text read
 * it.
 */
#include "bench/driver/options.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ids of long options that have no letter. */
enum {
    ALGO = 256,
    ALGO_FILE,
    PROTO,
    RESULT_PATH,
    DEVICE,
    COMPARE,
    COMPARE_ALGOS,
    HOST_TIME,
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
    OLD_LIB,
    HELP_VARS
};

#define ACCEPTED_HELP "taken for nccl-tests' sake, without effect"

/* X(letter or id, long name, name of the value ("" = none), help, how the value is read) */
#define OPTION_TABLE(X)                                                                           \
    X('t', "nthreads", "n", "threads of each process [1]", NUMBER(n_threads, 1, 1024))            \
    X('g', "ngpus", "n", "ranks of each thread, each on a device of its own [1]",                 \
      NUMBER(n_gpus, 1, 1024))                                                                    \
    X('b', "minbytes", "bytes", "smallest size; K, M and G are powers of 1024 [32M]",             \
      BYTES(min_bytes))                                                                           \
    X('e', "maxbytes", "bytes", "largest size [32M]", BYTES(max_bytes))                           \
    X('i', "stepbytes", "bytes", "add this to get the next size [1M]", BYTES(step_bytes))         \
    X('f', "stepfactor", "n", "multiply by n to get the next size; 0 and 1 mean -i",              \
      NUMBER(step_factor, 0, 1 << 20))                                                            \
    X('n', "iters", "n", "timed iterations of each size [20]", NUMBER(n_iters, 1, 100000000))     \
    X('w', "warmup_iters", "n", "untimed iterations before them [5]",                             \
      NUMBER(n_warmup, 0, 100000000))                                                             \
    X('m', "agg_iters", "n", "operations of each iteration, in one group [1]",                    \
      NUMBER(n_aggregated, 1, 4096))                                                              \
    X('N', "run_cycles", "n", "measure the whole table n times; 0 = until interrupted [1]",       \
      NUMBER(n_cycles, 0, INT_MAX))                                                               \
    X('p', "parallel_init", "0|1", "accepted and ignored; ranks always start in parallel",        \
      ACCEPTED(1, NULL))                                                                          \
    X('c', "check", "n", "checked iterations of each size [1]", NUMBER(n_checks, 0, INT_MAX))     \
    X('o', "op", "op", "sum, prod, max, min, avg, mulsum (factor 1) or all but mulsum [sum]",     \
      WORD_OR_ALL(op, bench_op_names, GYRE_N_OPS + 1))                                            \
    X('d', "datatype", "type",                                                                    \
      "int8, uint8, int32, ..., half, float, bfloat16, ... or all [float]",                       \
      WORD_OR_ALL(dtype, gyre_dtype_names, GYRE_N_DTYPES))                                        \
    X('r', "root", "rank", "root rank, or all [0]", NUMBER_OR_ALL(root, 0, INT_MAX))              \
    X('z', "blocking", "0..3", "1 to 3: wait after each iteration [0]",                           \
      BOOLEAN_UP_TO(is_blocking, 3))                                                              \
    X('y', "stream_null", "0|1", "use the default stream [0]", BOOLEAN(is_stream_null))           \
    X('T', "timeout", "s", "an operation that takes longer fails; 0 = no limit [0]",              \
      NUMBER(timeout_s, 0, 1000000))                                                              \
    X('G', "cudagraph", "n",                                                                      \
      "capture the iterations, replay them n times; with --compare for 1 ms [0]",                 \
      NUMBER(n_graph_launches, 0, 1000000))                                                       \
    X('C', "report_cputime", "0|1", "report the time of the calls without the wait [0]",          \
      BOOLEAN(is_cputime))                                                                        \
    X(HOST_TIME, "host-time", "0|1",                                                              \
      "show the host's time to enqueue a call, beside its time [0]", BOOLEAN(has_host_time))      \
    X('a', "average", "0..3", "time over the ranks: 0 rank 0, 1 mean, 2 min, 3 max [1]",          \
      NUMBER(average, 0, BENCH_MAX))                                                              \
    X('S', "report_timestamps", "0|1", "print a time stamp at the end of each line [0]",          \
      BOOLEAN(has_timestamps))                                                                    \
    X('u', "unalign", "0|1", "align buffers to one element only [0]", BOOLEAN(is_unaligned))      \
    X('R', "local_register", "0|1|2",                                                             \
      "1: register buffers, 2: put the receive buffer in a window [0]",                           \
      NUMBER(registration, 0, 2))                                                                 \
    X('J', "json", "file", "write a JSON report", TEXT(json_path))                                \
    X('I', "iter-times", "n", ACCEPTED_HELP,                                                      \
      ACCEPTED(INT_MAX, "single iterations have no times here, only the batch of -n"))            \
    X('K', "iter-skip", "n", ACCEPTED_HELP, ACCEPTED(INT_MAX, "it counts with -I alone"))         \
    X('M', "memory_report", "0|1", ACCEPTED_HELP, ACCEPTED(INT_MAX, "there is no memory report")) \
    X('D', "device_implementation", "n", ACCEPTED_HELP,                                           \
      ACCEPTED(INT_MAX, "the bench has no kernels of its own beside gyre's"))                     \
    X('V', "device_cta_count", "n", ACCEPTED_HELP, ACCEPTED(INT_MAX, "it counts with -D alone"))  \
    X('x', "cta_policy", "0..2", ACCEPTED_HELP,                                                   \
      ACCEPTED(2, "see --path copy_engine and GYRE_SMS instead"))                                 \
    X(CSV, "csv", "file", "write a CSV table", TEXT(csv_path))                                    \
    X(ALGO, "algo", "names", "allow these algorithms only, in place of GYRE_ALGO", TEXT(algo))    \
    X(ALGO_FILE, "algo-file", "file",                                                             \
      "run the programs in this file, in place of GYRE_ALGO_FILE; see docs/schedule.md",          \
      TEXT(algo_file))                                                                            \
    X(PROTO, "proto", "names", "allow these protocols only, in place of GYRE_PROTO", TEXT(proto)) \
    X(RESULT_PATH, "path", "names",                                                               \
      "allow these of staged, placed, copy_engine, in place of GYRE_PATH; see -R",                \
      TEXT(result_path))                                                                          \
    X(DEVICE, "device", "kind", "host, cuda or auto [auto]", WORD(device, device_names, 3))       \
    X(COMPARE, "compare", "engine", "also time mpi, nccl or old, in turn with gyre",              \
      ENGINE(compare))                                                                            \
    X(COMPARE_ALGOS, "compare-algos", "names",                                                    \
      "time these algorithms in turns, each with \"@\" and a protocol or none with it; \"file\" " \
      "is "                                                                                       \
      "that of --algo-file",                                                                      \
      TEXT(compare_algos))                                                                        \
    X(ROUNDS, "rounds", "n", "rounds of --compare, --compare-algos, --predict and tune [9]",      \
      NUMBER(n_rounds, 1, 1000))                                                                  \
    X(SWEEP, "sweep", "0|1",                                                                      \
      "run each of --algo x --proto x --channels; -J r.json: r.ring-ll-4.json [0]",               \
      BOOLEAN(is_sweep))                                                                          \
    X(CHANNELS, "channels", "list", "numbers of channels for --sweep, each from 1 to 64",         \
      TEXT(channels))                                                                             \
    X(PREDICT, "predict", "0|1",                                                                  \
      "compare predictions with times, and the tuner with the best choice [0]",                   \
      BOOLEAN(is_predict))                                                                        \
    X(ACCURACY, "accuracy", "0|1",                                                                \
      "compare errors of sums with --compare's; all types with -d all [0]", BOOLEAN(is_accuracy)) \
    X(LIMITS, "limits", "file", "show busbw as % of a ceiling that gyre limits measured",         \
      TEXT(limits_path))                                                                          \
    X(FROM, "from", "folder", "tune: fit to the reports (--json) there instead of measuring",     \
      TEXT(from_folder))                                                                          \
    X(OUTPUT, "output", "file", "tune: write the constants to this file [standard output]",       \
      TEXT(output_path))                                                                          \
    X(NCCL_LIB, "nccl-lib", "file", "the NCCL library of --compare nccl [libnccl.so.2]",          \
      TEXT(nccl_library))                                                                         \
    X(NCCL_ALGO, "nccl-algo", "names", "set NCCL_ALGO for the NCCL of --compare nccl",            \
      TEXT(nccl_algo))                                                                            \
    X(NCCL_PROTO, "nccl-proto", "names", "set NCCL_PROTO for the NCCL of --compare nccl",         \
      TEXT(nccl_proto))                                                                           \
    X(NCCL_MODE, "nccl-mode", "mode",                                                             \
      "how NCCL runs: plain, registered, window, zero-sm or best (the fastest) [plain]",          \
      WORD(nccl_mode, bench_nccl_mode_names, BENCH_N_NCCL_MODES))                                 \
    X(OLD_LIB, "old-lib", "file", "the libgyre.so of --compare old, as of an earlier version",    \
      TEXT(old_library))                                                                          \
    X(HELP_VARS, "help-vars", "", "print the table of the library's variables",                   \
      FLAG(wants_variables))                                                                      \
    X('h', "help", "", "print this text", FLAG(wants_help))

static const struct option long_options[] = {
#define OPTION_ROW(id, name, value, help, rule) \
    {name, sizeof(value) > 1 ? required_argument : no_argument, NULL, id},
    OPTION_TABLE(OPTION_ROW)
#undef OPTION_ROW
    /* nccl-tests' other names */
    {"output_file", required_argument, NULL, 'J'},
    {"memory", required_argument, NULL, 'M'},
    {NULL, 0, NULL, 0}};

const char *const bench_op_names[] = {
#define OP_NAME(id, name) [GYRE_##id] = #name,
    GYRE_OP_TABLE(OP_NAME)
#undef OP_NAME
        [BENCH_MULSUM] = "mulsum"};

/* Other names of types. */
static const struct {
    const char *name;
    gyre_dtype dtype;
} dtype_aliases[] = {{"char", GYRE_INT8},
                     {"int", GYRE_INT32},
                     {"float16", GYRE_FLOAT16},
                     {"fp16", GYRE_FLOAT16},
                     {"float32", GYRE_FLOAT32},
                     {"fp32", GYRE_FLOAT32},
                     {"float64", GYRE_FLOAT64},
                     {"fp64", GYRE_FLOAT64},
                     {"bf16", GYRE_BFLOAT16},
                     {"fp8_e4m3", GYRE_FLOAT8_E4M3},
                     {"float8_e4m3", GYRE_FLOAT8_E4M3},
                     {"fp8_e5m2", GYRE_FLOAT8_E5M2},
                     {"float8_e5m2", GYRE_FLOAT8_E5M2}};

const char *const bench_nccl_mode_names[] = {"plain",      "window",  "best",
                                             "registered", "zero-sm", "default"};

static const char *const device_names[] = {"auto", "host", "cuda"}; /* enum gyre_device_kind */
static const char *const engine_names[] = {"mpi", "nccl", "old"};

/* How the value of an option is read and which field of struct bench_options it sets. */
struct rule {
    int id;
    enum {
        READ_NUMBER,
        READ_NUMBER_OR_ALL,
        READ_BYTES,
        READ_BOOLEAN,
        READ_WORD,
        READ_WORD_OR_ALL,
        READ_ENGINE,
        READ_TEXT,
        SET_FLAG, /* the option has no value */
        READ_NOTHING
    } kind;
    size_t offset; /* of the field */
    int low;
    int high; /* the largest number, or the number of words */
    const char *const *words;
    const char *why; /* of an option without effect: the reason; NULL = none is told */
};

static const struct rule rules[] = {
#define RULE(kind, field, ...)                  kind, offsetof(struct bench_options, field), __VA_ARGS__, NULL
#define NUMBER(field, low, high)                RULE(READ_NUMBER, field, low, high, NULL)
#define NUMBER_OR_ALL(field, low, high)         RULE(READ_NUMBER_OR_ALL, field, low, high, NULL)
#define BYTES(field)                            RULE(READ_BYTES, field, 0, 0, NULL)
#define BOOLEAN(field)                          RULE(READ_BOOLEAN, field, 0, 1, NULL)
#define WORD(field, words, n)                   RULE(READ_WORD, field, 0, n, words)
#define WORD_OR_ALL(field, words, n)            RULE(READ_WORD_OR_ALL, field, 0, n, words)
#define ENGINE(field)                           RULE(READ_ENGINE, field, 0, 3, engine_names)
#define TEXT(field)                             RULE(READ_TEXT, field, 0, 0, NULL)
#define FLAG(field)                             RULE(SET_FLAG, field, 0, 0, NULL)
#define BOOLEAN_UP_TO(field, high)              RULE(READ_BOOLEAN, field, 0, high, NULL)
#define ACCEPTED(high, why)                     READ_NOTHING, 0, 0, high, NULL, why
#define OPTION_RULE(id, name, value, help, ...) {id, __VA_ARGS__},
    OPTION_TABLE(OPTION_RULE)
#undef OPTION_RULE
#undef ACCEPTED
#undef BOOLEAN_UP_TO
#undef FLAG
#undef TEXT
#undef ENGINE
#undef WORD_OR_ALL
#undef WORD
#undef BOOLEAN
#undef BYTES
#undef NUMBER_OR_ALL
#undef NUMBER
#undef RULE
};

void bench_options_print_help(const char *program)
{
    printf("usage: %s [options]\n", program);
#define OPTION_HELP(id, name, value, help, rule)                               \
    printf((id) < 256 ? "  -%c,--%-18s %-7s %s\n" : "   %c --%-18s %-7s %s\n", \
           (id) < 256 ? (id) : ' ', name, value, help);
    OPTION_TABLE(OPTION_HELP)
#undef OPTION_HELP
}

gyre_status bench_parse_bytes(const char *text, size_t *n_bytes_out)
{
    char *end = NULL;
    errno = 0;
    const double number = gyre_text_to_double(text, &end);
    double unit = 1;
    if (end != text && *end != '\0') {
        static const char letters[] = "KMG";
        const char *letter = strchr(letters, gyre_text_upper(*end));
        const char *rest = letter != NULL && *letter != '\0' ? end + 1 : end;
        if (*rest != '\0' && !gyre_text_same(rest, "B") &&
            !(rest > end && gyre_text_same(rest, "iB")))
            end = NULL;
        else if (rest > end)
            for (const char *at = letters; at <= letter; at++)
                unit *= 1024;
    }
    if (end == NULL || end == text || errno != 0 || !(number >= 0) || number * unit > 1e15)
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT,
            "\"%s\" is not a size: a number, then nothing, K, M or G (KB and KiB, too)", text);
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
    /* Decimal or, as nccl-tests reads them, 0x10; never octal. */
    const bool is_hex = text[0] == '0' && gyre_text_lower(text[1]) == 'x';
    const long value = strtol(text, &end, is_hex ? 16 : 10);
    if (end == text || *end != '\0' || errno != 0 || value < low || value > high)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\" is not a number from %d to %d", text,
                         low, high);
    *value_out = (int)value;
    return GYRE_SUCCESS;
}

/* Adds a line to the notes; one that does not fit is left out. */
static void note(struct bench_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note(struct bench_options *options, const char *format, ...)
{
    const size_t used = strlen(options->notes);
    va_list args;
    va_start(args, format);
    vsnprintf(options->notes + used, sizeof(options->notes) - used, format, args);
    va_end(args);
}

static gyre_status parse_bool(const char *text, const struct rule *rule,
                              struct bench_options *options)
{
    int value = 0;
    GYRE_TRY(parse_int(text, rule->low, rule->high, &value));
    *(bool *)((char *)options + rule->offset) = value != 0;
    if (value > 1)
        note(options, "-%c %d is taken as -%c 1\n", rule->id, value, rule->id);
    return GYRE_SUCCESS;
}

/* An option that has no effect. 0 turns it off, which is no news. */
static gyre_status parse_nothing(const char *text, const struct rule *rule,
                                 struct bench_options *options)
{
    int value = 0;
    GYRE_TRY(parse_int(text, rule->low, rule->high, &value));
    if (value != 0 && rule->why != NULL)
        note(options, "-%c %d has no effect: %s\n", rule->id, value, rule->why);
    return GYRE_SUCCESS;
}

/* Reads a word of a table, or "all" where that is allowed. */
static gyre_status parse_name(const char *text, const char *const *names, int n_names,
                              bool is_all_legal, int *value_out)
{
    if (is_all_legal && gyre_text_same(text, "all")) {
        *value_out = BENCH_ALL;
        return GYRE_SUCCESS;
    }
    *value_out = gyre_name_find(names, n_names, text);
    for (size_t i = 0; names == gyre_dtype_names && i < GYRE_ARRAY_LENGTH(dtype_aliases); i++)
        if (gyre_text_same(dtype_aliases[i].name, text))
            *value_out = (int)dtype_aliases[i].dtype;
    if (*value_out >= 0)
        return GYRE_SUCCESS;
    char legal[256] = "";
    for (int i = 0; i < n_names; i++)
        snprintf(legal + strlen(legal), sizeof(legal) - strlen(legal), " %s", names[i]);
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\" is none of%s%s", text, legal,
                     is_all_legal ? " all" : "");
}

static gyre_status parse_engine(const char *text, const struct rule *rule, const char **name_out)
{
    int engine;
    GYRE_TRY(parse_name(text, rule->words, rule->high, false, &engine));
    *name_out = rule->words[engine];
    return GYRE_SUCCESS;
}

static gyre_status take_value(const struct rule *rule, const char *text,
                              struct bench_options *options)
{
    void *field = (char *)options + rule->offset;
    switch (rule->kind) {
    case READ_NUMBER_OR_ALL:
        if (!gyre_text_same(text, "all") && strcmp(text, "-1") != 0)
            return parse_int(text, rule->low, rule->high, field);
        *(int *)field = BENCH_ALL;
        return GYRE_SUCCESS;
    case READ_BYTES:
        return bench_parse_bytes(text, field);
    case READ_BOOLEAN:
        return parse_bool(text, rule, options);
    case READ_WORD:
        return parse_name(text, rule->words, rule->high, false, field);
    case READ_WORD_OR_ALL:
        return parse_name(text, rule->words, rule->high, true, field);
    case READ_ENGINE:
        return parse_engine(text, rule, field);
    case READ_TEXT:
        *(const char **)field = text;
        return GYRE_SUCCESS;
    case SET_FLAG:
        *(bool *)field = true;
        return GYRE_SUCCESS;
    case READ_NOTHING:
        return parse_nothing(text, rule, options);
    default: /* READ_NUMBER */
        return parse_int(text, rule->low, rule->high, field);
    }
}

static gyre_status take_option(int id, const char *text, struct bench_options *options)
{
    const struct rule *rule = rules;
    while (rule->id != id) /* getopt_long() returns ids of the table only */
        rule++;
    return take_value(rule, text, options);
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
            argc, argv, ":t:g:b:e:i:f:n:w:m:N:p:c:o:d:r:z:y:T:G:C:a:S:u:R:J:I:K:M:D:V:x:h",
            long_options, NULL);
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
    if (options_out->nccl_mode == BENCH_NCCL_DEFAULT)
        options_out->nccl_mode = BENCH_NCCL_PLAIN;
    return bench_options_check(options_out, kind);
}
