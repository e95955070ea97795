/* SPDX-License-Identifier: Apache-2.0
 *
 * Refuses options that do not go together, and options that nothing would read, because a user who
 * gives an option expects an effect.
 */
#include "bench/driver/options.h"

#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The sizes, and what measuring them needs. */
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
    if (options->has_host_time && (options->n_graph_launches > 0 || options->is_blocking))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--host-time does not go with -G, whose launches enqueue many calls at "
                         "once, or with -z 1, which waits after each call");
    if (options->n_threads * options->n_gpus > 1024)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "-t %d times -g %d is more than 1024, the most ranks of a process",
                         options->n_threads, options->n_gpus);
    return GYRE_SUCCESS;
}

/* Refuses a protocol that does not exist, before the ranks meet. */
static gyre_status check_proto(const char *algorithm, const char *protos)
{
    struct gyre_filter filter;
    const struct gyre_filter_words words = {.protos = protos, .proto_source = "--compare-algos"};
    GYRE_TRY(gyre_filter_parse("", "", "", &filter));
    const gyre_status status = gyre_filter_override(&words, &filter);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "%s@%s", algorithm, protos);
}

/* Is the first name of `at` also one of the names before it in the list? */
static bool is_double(const char *list, const char *at)
{
    const size_t n_bytes = strcspn(at, ",");
    for (const char *other = list; other < at; other += strcspn(other, ",") + 1)
        if (strcspn(other, ",") == n_bytes && strncmp(other, at, n_bytes) == 0)
            return true;
    return false;
}

/* The list of --compare-algos: algorithms, and the word "file" if there is one. Each may be
 * followed by '@' and a protocol, as in GYRE_PROTO. */
static gyre_status check_contenders(const char *list, bool has_file)
{
    int n = 0, n_protos = 0;
    for (const char *at = list; at != NULL; n++) {
        const size_t n_bytes = strcspn(at, ",");
        char name[BENCH_CONTENDER_BYTES];
        snprintf(name, sizeof(name), "%.*s", (int)n_bytes, at);
        char *protos = strchr(name, '@');
        n_protos += protos != NULL;
        if (protos != NULL)
            *protos++ = '\0';
        const bool is_file = strcmp(name, "file") == 0;
        if (n_bytes >= sizeof(name) || (is_file ? !has_file : gyre_algorithm_find(name) == NULL))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--compare-algos: \"%.*s\" is %s",
                             (int)n_bytes, at,
                             is_file ? "a word for programs, which --algo-file names"
                                     : "neither an algorithm nor the word file");
        if (is_double(list, at))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "--compare-algos %s: \"%.*s\" is named twice", list, (int)n_bytes, at);
        if (protos != NULL)
            GYRE_TRY(check_proto(name, protos));
        at = at[n_bytes] == ',' ? at + n_bytes + 1 : NULL;
    }
    if (n_protos != 0 && n_protos != n)
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT,
            "--compare-algos %s: name a protocol behind each algorithm, or behind none", list);
    if (n < 2 || n > BENCH_MAX_CONTENDERS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--compare-algos %s: expected 2 to %d names, separated by commas", list,
                         BENCH_MAX_CONTENDERS);
    return GYRE_SUCCESS;
}

static gyre_status check_compare_algos(const struct bench_options *options)
{
    if (options->compare_algos == NULL)
        return GYRE_SUCCESS;
    if (options->compare != NULL || options->is_sweep || options->is_predict ||
        options->is_accuracy || options->limits_path != NULL || options->algo != NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--compare-algos does not go with --compare, --algo, --sweep, --predict, "
                         "--accuracy or --limits");
    if (options->op == BENCH_ALL || options->dtype == BENCH_ALL || options->root == BENCH_ALL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--compare-algos takes one type, operation and root, not all");
    return check_contenders(options->compare_algos, options->algo_file != NULL);
}

/* Modes that replace the table or add to it. */
static gyre_status check_modes(const struct bench_options *options)
{
    if (options->op == BENCH_MULSUM &&
        (options->compare != NULL || options->compare_algos != NULL || options->is_predict ||
         options->is_accuracy))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "-o mulsum does not go with --compare, --compare-algos, --predict or "
                         "--accuracy");
    const bool reports = options->json_path != NULL || options->csv_path != NULL;
    if (options->is_predict && (options->is_sweep || options->compare != NULL || reports))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--predict 1 does not go with --sweep, --compare, --json or --csv");
    if (options->is_accuracy && (options->is_sweep || options->is_predict || reports))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--accuracy 1 does not go with --sweep, --predict, --json or --csv");
    GYRE_TRY(check_compare_algos(options));
    if (options->is_predict && options->limits_path != NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--limits does not go with --predict 1");
    return GYRE_SUCCESS;
}

/* Options of tune, and options of all other benches. */
static gyre_status check_kind(const struct bench_options *options, const struct bench_kind *kind)
{
    if (kind->run == NULL && (options->from_folder != NULL || options->output_path != NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--from and --output do not go with %s: they "
                         "are options of tune",
                         kind->name);
    if (kind->run != NULL &&
        (options->json_path != NULL || options->csv_path != NULL || options->compare != NULL ||
         options->limits_path != NULL || options->is_predict || options->is_accuracy ||
         options->is_sweep || options->compare_algos != NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s does not go with --json, --csv, --compare, --limits, --predict, "
                         "--accuracy, --compare-algos or --sweep",
                         kind->name);
    return GYRE_SUCCESS;
}

/* The words of gyre's side would hold for one of the two libraries only. */
static gyre_status check_old(const struct bench_options *options)
{
    const bool is_old = options->compare != NULL && strcmp(options->compare, "old") == 0;
    if (is_old != (options->old_library != NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--compare old and --old-lib need each other");
    if (is_old && (options->algo != NULL || options->proto != NULL || options->algo_file != NULL ||
                   options->result_path != NULL || options->is_sweep))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--compare old does not go with --algo, --proto, --path, --algo-file or "
                         "--sweep: set GYRE_ALGO and the like, which both libraries read");
    return GYRE_SUCCESS;
}

static gyre_status check_nccl(const struct bench_options *options)
{
    const struct {
        const char *option;
        bool is_given;
    } needy[] = {{"--nccl-lib", options->nccl_library != NULL},
                 {"--nccl-algo", options->nccl_algo != NULL},
                 {"--nccl-proto", options->nccl_proto != NULL},
                 {"--nccl-mode", options->nccl_mode != BENCH_NCCL_PLAIN}};
    if (options->compare != NULL && strcmp(options->compare, "nccl") == 0)
        return GYRE_SUCCESS;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(needy); i++)
        if (needy[i].is_given)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s needs --compare nccl",
                             needy[i].option);
    return GYRE_SUCCESS;
}

/* Refuses empty words in a list of --sweep, which would stand for the tuner's choice without a
 * name. */
static gyre_status check_list(const char *option, const char *list)
{
    const char *at = list;
    while (at != NULL) {
        if (*at == ',' || *at == '\0')
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s %s: a word of the list is empty",
                             option, list);
        at = strchr(at, ',');
        at = at == NULL ? NULL : at + 1;
    }
    return GYRE_SUCCESS;
}

static gyre_status check_sweep(const struct bench_options *options)
{
    if (options->channels != NULL && !options->is_sweep)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--channels needs --sweep 1; for one number of channels set "
                         "GYRE_MIN_NCHANNELS and GYRE_MAX_NCHANNELS");
    if (!options->is_sweep)
        return GYRE_SUCCESS;
    GYRE_TRY(check_list("--algo", options->algo));
    GYRE_TRY(check_list("--proto", options->proto));
    GYRE_TRY(check_list("--channels", options->channels));
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

/* Refuses words that are not the name of an algorithm, a protocol or a path, and lists that would
 * not count: they restrict sends and receives, which have one algorithm, only if they name them. */
static gyre_status check_allowed(const struct bench_options *options, const struct bench_kind *kind)
{
    struct gyre_filter any, filter;
    struct gyre_filter_words words = bench_options_allowed(options);
    words.algos = options->algo; /* also when they are lists of --sweep */
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

static gyre_status check_algo_file(const struct bench_options *options,
                                   const struct bench_kind *kind)
{
    if (options->algo_file == NULL)
        return GYRE_SUCCESS;
    if (options->algo != NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--algo does not go with --algo-file, which says what runs");
    if (options->is_sweep || options->is_predict || kind->run != NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--algo-file does not go with --sweep, --predict or tune (for predictions "
                         "there is gyre schedule --predict --file)");
    return GYRE_SUCCESS;
}

gyre_status bench_options_try_algo_file(const struct bench_options *options)
{
    struct gyre_algo_file file = {0};
    if (options->algo_file == NULL)
        return GYRE_SUCCESS;
    GYRE_TRY(gyre_algo_file_load(options->algo_file, "--algo-file", &file));
    gyre_algo_file_free(&file);
    return GYRE_SUCCESS;
}

bool bench_is_same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return strcmp(a, b) == 0 || (stat(a, &of_a) == 0 && stat(b, &of_b) == 0 &&
                                 of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino);
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

gyre_status bench_options_check(const struct bench_options *options, const struct bench_kind *kind)
{
    GYRE_TRY(check_sizes(options));
    GYRE_TRY(check_modes(options));
    GYRE_TRY(check_kind(options, kind));
    GYRE_TRY(check_old(options));
    GYRE_TRY(check_nccl(options));
    GYRE_TRY(check_sweep(options));
    GYRE_TRY(check_allowed(options, kind));
    GYRE_TRY(check_algo_file(options, kind));
    return check_paths(options);
}
