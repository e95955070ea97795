/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema is bench/report/report.schema.json.
 */
#include "bench/report/output.h"

#include "bench/report/table_file.h"
#include "core/foundation/base/text.h"

#include <string.h>

bool bench_is_reported(const char *variable)
{
    static const char *const prefixes[] = {"GYRE_", "NCCL_", "OMPI_COMM_", "CUDA_VISIBLE_DEVICES="};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

bool bench_is_secret(const char *variable)
{
    static const char *const words[] = {"TOKEN", "KEY", "PASS", "SECRET"};
    char name[128];
    const size_t n_name = strcspn(variable, "=");
    if (n_name >= sizeof(name))
        return true; /* too long to check */
    for (size_t i = 0; i < n_name; i++)
        name[i] = gyre_text_upper(variable[i]);
    name[n_name] = '\0';
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strstr(name, words[i]) != NULL)
            return true;
    return false;
}

#ifdef GYRE_BENCH_WITH_JSON

#include "bench/report/json_add.h"
#include "core/foundation/base/file.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <time.h>

/* A bench's report has less than 100 KB, about 2 KB a row. */
#define MAX_FILE_BYTES ((size_t)64 << 20)

extern char **environ;

struct bench_json {
    const char *path;
    const struct bench_setting *setting;
    char gyre_version[32];
    struct json_object *root;
    struct json_object *results;
};

static void add_settings(struct json_object *root, const struct bench_setting *setting)
{
    const struct bench_options *options = setting->options;
    struct json_object *list = add_object(root, "settings");
    add_int(list, "ranks", setting->n_ranks);
    add_int(list, "threads", options->n_threads);
    add_int(list, "ranks_of_a_thread", options->n_gpus);
    add_int(list, "min_bytes", (int64_t)options->min_bytes);
    add_int(list, "max_bytes", (int64_t)options->max_bytes);
    add_int(list, "iterations", options->n_iters);
    add_int(list, "warmup_iterations", options->n_warmup);
    add_int(list, "operations_of_an_iteration", options->n_aggregated);
    add_int(list, "checked_iterations", options->n_checks);
    add_int(list, "average", options->average);
    add_bool(list, "blocking", options->is_blocking);
    add_bool(list, "unaligned", options->is_unaligned);
    add_int(list, "registration", options->registration);
    add_text(list, "algorithms", options->algo == NULL ? "" : options->algo);
    add_text(list, "algo_file", options->algo_file == NULL ? "" : options->algo_file);
    add_text(list, "protocols", options->proto == NULL ? "" : options->proto);
    add_text(list, "device", setting->device);
    add_text(list, "reference", setting->reference);
    if (setting->limit.gbytes_per_s > 0) {
        add_text(list, "limit", setting->limit.ceiling);
        add_number(list, "limit_gbytes_per_s", setting->limit.gbytes_per_s);
    }
}

gyre_status bench_json_write(struct json_object *root, const char *path)
{
    const int flags = JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE;
    const char *text = json_object_to_json_string_ext(root, flags);
    if (text == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "--json %s", path);
    if (bench_table_file_is_direct(path)) {
        GYRE_TRY(bench_table_file_append("--json", path, text));
        return bench_table_file_append("--json", path, "\n");
    }
    const gyre_status status = gyre_file_replace(path, text, strlen(text));
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "--json");
}

gyre_status bench_json_read(const char *path, struct json_object **root_out)
{
    char *text = NULL;
    enum json_tokener_error error = json_tokener_success;
    GYRE_TRY(gyre_file_read(path, MAX_FILE_BYTES, &text, NULL));
    struct json_object *root = json_tokener_parse_verbose(text, &error);
    free(text);
    if (root == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: is not JSON: %s", path,
                         error == json_tokener_success ? "nothing in it"
                                                       : json_tokener_error_desc(error));
    *root_out = root;
    return GYRE_SUCCESS;
}

gyre_status bench_json_open(const struct bench_setting *setting, struct bench_json **json_out)
{
    if (!bench_table_file_is_direct(setting->options->json_path))
        GYRE_TRY(bench_table_file_check("--json", setting->options->json_path));
    struct bench_json *json = calloc(1, sizeof(*json));
    if (json == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for JSON report");
    int library = 0;
    (void)gyre_get_version(&library);
    snprintf(json->gyre_version, sizeof(json->gyre_version), "%d.%d.%d", library / 10000,
             library / 100 % 100, library % 100);
    json->setting = setting;
    json->path = setting->options->json_path;
    json->root = json_object_new_object();
    add_int(json->root, "schema_version", 1);
    add_text(json->root, "gyre_version", json->gyre_version);
    add_text(json->root, "bench", setting->kind->name);
    add_text(json->root, "collective", gyre_collectives[setting->kind->coll].name);
    struct json_object *command = add_array(json->root, "command");
    for (int i = 0; i < setting->argc; i++)
        json_object_array_add(command, json_text(setting->argv[i]));
    add_time(json->root, "started");
    add_settings(json->root, setting);
    struct json_object *places = add_array(json->root, "places");
    for (int i = 0; i < setting->n_ranks; i++) {
        const struct bench_place *place = &setting->places[i];
        struct json_object *entry = json_object_new_object();
        add_int(entry, "rank", place->rank);
        add_text(entry, "host", place->host);
        add_int(entry, "pid", place->pid);
        add_int(entry, "device", place->device);
        add_text(entry, "pci", place->pci);
        add_text(entry, "words", place->device_text);
        json_object_array_add(places, entry);
    }
    struct json_object *variables = add_object(json->root, "environment");
    for (char **at = environ; *at != NULL; at++) {
        char name[128], key[GYRE_TEXT_UTF8_BYTES(sizeof(name))];
        const size_t n_name = strcspn(*at, "=");
        if (!bench_is_reported(*at) || n_name >= sizeof(name) || (*at)[n_name] == '\0')
            continue;
        memcpy(name, *at, n_name);
        name[n_name] = '\0';
        gyre_text_to_utf8(name, key, sizeof(key));
        add_text(variables, key, bench_is_secret(*at) ? "(hidden)" : *at + n_name + 1);
    }
    json->results = add_array(json->root, "results");
    *json_out = json;
    return GYRE_SUCCESS;
}

/* /dev/stdout and the like get the report at the end. */
static gyre_status write_so_far(const struct bench_json *json)
{
    return bench_table_file_is_direct(json->path) ? GYRE_SUCCESS
                                                  : bench_json_write(json->root, json->path);
}

static void add_timing(struct json_object *row, const char *key, const struct bench_timing *timing)
{
    struct json_object *object = add_object(row, key);
    add_number(object, "time_us", timing->time_us);
    add_number(object, "algbw_gbytes_per_s", timing->algbw);
    add_number(object, "busbw_gbytes_per_s", timing->busbw);
    if (timing->host_us > 0)
        add_number(object, "host_us", timing->host_us);
    if (timing->launch_us > 0)
        add_number(object, "launch_us", timing->launch_us);
    if (timing->n_wrong >= 0)
        add_int(object, "wrong", timing->n_wrong);
    else
        json_object_object_add(object, "wrong", NULL);
    struct json_object *us = add_object(object, "single_calls_us");
    add_int(us, "samples", (int64_t)timing->us.n_samples);
    add_number(us, "min", timing->us.min);
    add_number(us, "median", timing->us.median);
    add_number(us, "mean", timing->us.mean);
    add_number(us, "p99", timing->us.p99);
    add_number(us, "max", timing->us.max);
}

static void add_number_or_null(struct json_object *object, const char *key, int64_t number)
{
    if (number > 0)
        add_int(object, key, number);
    else
        json_object_object_add(object, key, NULL);
}

static void add_text_or_null(struct json_object *object, const char *key, const char *text)
{
    if (text[0] != '\0')
        add_text(object, key, text);
    else
        json_object_object_add(object, key, NULL);
}

static void add_comparison(struct json_object *row, const char *key,
                           const struct bench_comparison *comparison)
{
    if (!comparison->is_present)
        return;
    struct json_object *object = add_object(row, key);
    add_int(object, "rounds", comparison->n_rounds);
    add_int(object, "calls_of_a_round", comparison->n_calls);
    add_number(object, "gyre_us", comparison->gyre_us);
    add_number(object, "reference_us", comparison->reference_us);
    add_text(object, "reference_mode", comparison->mode_names[comparison->mode]);
    struct json_object *modes = add_object(object, "reference_modes_us");
    for (int i = 0; i < comparison->n_modes; i++)
        add_number(modes, comparison->mode_names[i], comparison->mode_us[i]);
    add_number(object, "ratio", comparison->ratio);
    add_int(object, "calls_of_a_sample", comparison->n_batch);
    add_number(object, "ratio_low", comparison->ratio_low);
    add_number(object, "ratio_high", comparison->ratio_high);
    if (comparison->gyre_host_us > 0)
        add_number(object, "gyre_host_us", comparison->gyre_host_us);
    if (comparison->reference_host_us > 0)
        add_number(object, "reference_host_us", comparison->reference_host_us);
    add_number(object, "gyre_min_us", comparison->gyre_min_us);
    add_number(object, "reference_min_us", comparison->reference_min_us);
    add_number(object, "gyre_p99_us", comparison->gyre_p99_us);
    add_number(object, "reference_p99_us", comparison->reference_p99_us);
}

gyre_status bench_json_row(struct bench_json *json, const struct bench_row *row)
{
    const struct bench_machine *machine = json->setting->machine;
    const struct gyre_collective_traits *traits = &gyre_collectives[row->what.coll];
    struct json_object *object = json_object_new_object();
    add_int(object, "bytes", (int64_t)row->what.n_bytes);
    add_int(object, "count", (int64_t)row->what.count);
    add_text(object, "type", gyre_dtype_names[row->what.dtype]);
    if (traits->reduces)
        add_text(object, "op", bench_op_name(&row->what));
    if (traits->has_root && row->what.coll != GYRE_COLL_SEND_RECV)
        add_int(object, "root", row->what.root);
    add_int(object, "cycle", row->cycle);
    add_text(object, "algorithm", row->plan.algorithm);
    add_text(object, "protocol", row->plan.proto);
    if (row->plan.net_proto[0] != '\0')
        add_text(object, "protocol_between_hosts", row->plan.net_proto);
    add_int(object, "channels", row->plan.n_channels);
    add_int(object, "blocks", row->plan.n_blocks);
    add_int(object, "slot_bytes", row->plan.slot_bytes);
    add_text(object, "path", row->plan.path);
    add_text(object, "transports", row->plan.transports);
    /* A block of gyre has its own multiprocessor while there are enough. NCCL does not tell how
     * many it uses. */
    struct json_object *sms = add_object(object, "sms");
    add_number_or_null(sms, "gyre", gyre_min_u32(row->plan.n_blocks, machine->n_sms));
    json_object_object_add(sms, "reference", NULL);
    struct json_object *clocks = add_object(object, "clocks");
    add_number_or_null(clocks, "sm_mhz", row->clocks.sm_mhz);
    add_number_or_null(clocks, "memory_mhz", row->clocks.memory_mhz);
    struct json_object *versions = add_object(object, "versions");
    char reference[64];
    snprintf(reference, sizeof(reference), "%.*s", bench_n_reference_version(json->setting),
             json->setting->reference);
    add_text(versions, "gyre", json->gyre_version);
    add_text_or_null(versions, "reference", reference);
    add_text_or_null(versions, "cuda_driver", machine->cuda_driver);
    add_text_or_null(versions, "cuda_runtime", machine->cuda_runtime);
    if (row->plan.predicted_us > 0)
        add_number(object, "predicted_us", row->plan.predicted_us);
    add_timing(object, "out_of_place", &row->out_of_place);
    add_timing(object, "in_place", &row->in_place);
    add_comparison(object, "comparison", &row->comparison);
    add_comparison(object, "comparison_in_place", &row->comparison_in_place);
    json_object_array_add(json->results, object);
    return write_so_far(json);
}

gyre_status bench_json_contender(struct bench_json *json, const struct bench_case *what,
                                 const struct bench_contender *contender, double time_us,
                                 const struct bench_comparison *comparison)
{
    if (json == NULL)
        return GYRE_SUCCESS;
    struct json_object *object = json_object_new_object();
    struct json_object *list = NULL;
    if (!json_object_object_get_ex(json->root, "contenders", &list))
        list = add_array(json->root, "contenders");
    const double algbw = time_us > 0 ? (double)what->n_bytes / (time_us * 1e3) : 0;
    add_text(object, "algorithm", contender->name);
    add_text(object, "type", gyre_dtype_names[what->dtype]);
    if (contender->plan.n_channels > 0) { /* the plan is known */
        add_text(object, "protocol", contender->plan.proto);
        if (contender->plan.net_proto[0] != '\0')
            add_text(object, "protocol_between_hosts", contender->plan.net_proto);
        add_int(object, "channels", contender->plan.n_channels);
    }
    add_int(object, "bytes", (int64_t)what->n_bytes);
    add_number(object, "time_us", time_us);
    add_number(object, "algbw_gbytes_per_s", algbw);
    add_number(object, "busbw_gbytes_per_s",
               algbw * bench_bus_factor(what->coll, (unsigned)json->setting->n_ranks));
    if (contender->us != NULL) {
        struct json_object *turns = add_array(object, "turns_us");
        struct json_object *samples = add_array(object, "samples_us");
        add_int(object, "calls_in_sample", contender->n_batch);
        for (int i = 0; i < contender->n_rounds; i++)
            json_object_array_add(turns, json_object_new_double(contender->us[i]));
        for (int i = 0; i < contender->n_rounds * contender->n_calls; i++)
            json_object_array_add(samples,
                                  json_object_new_double(contender->us[contender->n_rounds + i]));
    }
    if (comparison != NULL) {
        add_int(object, "rounds", comparison->n_rounds);
        add_number(object, "ratio", comparison->ratio);
        add_number(object, "ratio_low", comparison->ratio_low);
        add_number(object, "ratio_high", comparison->ratio_high);
    }
    json_object_array_add(list, object);
    return write_so_far(json);
}

gyre_status bench_json_close(struct bench_json *json, const struct bench_summary *summary)
{
    gyre_status status = GYRE_SUCCESS;
    if (json == NULL)
        return status;
    if (summary != NULL) {
        struct json_object *object = add_object(json->root, "summary");
        add_int(object, "wrong", summary->n_wrong);
        add_number(object, "average_busbw_gbytes_per_s", summary->busbw);
        add_bool(object, "interrupted", summary->is_interrupted);
        add_time(json->root, "ended");
        /* Without a row the old file stays. */
        const bool is_cut_short = summary->has_failed || summary->is_interrupted;
        if (!is_cut_short || json_object_array_length(json->results) > 0)
            status = bench_json_write(json->root, json->path);
    }
    json_object_put(json->root);
    free(json);
    return status;
}

#else

gyre_status bench_json_contender(struct bench_json *json, const struct bench_case *what,
                                 const struct bench_contender *contender, double time_us,
                                 const struct bench_comparison *comparison)
{
    (void)json;
    (void)what;
    (void)contender;
    (void)time_us;
    (void)comparison;
    return GYRE_SUCCESS;
}

gyre_status bench_json_open(const struct bench_setting *setting, struct bench_json **json_out)
{
    (void)setting;
    (void)json_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--json: built without json-c; install libjson-c-dev and build again");
}

gyre_status bench_json_row(struct bench_json *json, const struct bench_row *row)
{
    (void)json;
    (void)row;
    return GYRE_SUCCESS;
}

gyre_status bench_json_close(struct bench_json *json, const struct bench_summary *summary)
{
    (void)json;
    (void)summary;
    return GYRE_SUCCESS;
}

#endif
