/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON file of schedule. It is written once, at the end, even if a proof has failed.
 */
#include "bench/tools/schedule_json.h"

#include "core/foundation/base/status.h"

#ifdef GYRE_BENCH_WITH_JSON

#include "bench/report/bus_factor.h"
#include "bench/report/json_add.h"
#include "core/foundation/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA_VERSION 1

struct bench_schedule_json {
    struct json_object *root;
    struct json_object *proofs;
    struct json_object *predictions;
};

gyre_status bench_schedule_json_open(int argc, char **argv, struct bench_schedule_json **json_out)
{
    struct bench_schedule_json *json = calloc(1, sizeof(*json));
    char version[32];
    if (json == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "--json: out of memory");
    snprintf(version, sizeof(version), "%d.%d.%d", GYRE_VERSION / 10000, GYRE_VERSION / 100 % 100,
             GYRE_VERSION % 100);
    json->root = json_object_new_object();
    add_int(json->root, "schema_version", SCHEMA_VERSION);
    add_text(json->root, "gyre_version", version);
    struct json_object *command = add_array(json->root, "command");
    for (int i = 0; i < argc; i++)
        json_object_array_add(command, json_text(argv[i]));
    add_time(json->root, "written");
    json->proofs = add_array(json->root, "proofs");
    json->predictions = add_array(json->root, "predictions");
    *json_out = json;
    return GYRE_SUCCESS;
}

void bench_schedule_json_proof(struct bench_schedule_json *json,
                               const struct bench_schedule_proof *proof)
{
    if (json == NULL)
        return;
    const struct gyre_program *program = proof->program;
    const struct gyre_verify_report *report = proof->report;
    struct json_object *row = json_object_new_object();
    add_text(row, "algorithm", program->algorithm);
    add_text(row, "collective", gyre_collectives[program->coll].name);
    add_int(row, "ranks", program->n_ranks);
    add_int(row, "root", program->root);
    add_int(row, "variant", proof->variant);
    add_bool(row, "in_place", proof->in_place);
    add_bool(row, "proved", proof->is_proved);
    if (proof->is_proved) {
        add_int(row, "min_depth", report->min_depth);
        add_int(row, "steps", (int64_t)report->n_steps);
        add_bool(row, "credits_needed", !report->credits_elidable);
    } else {
        add_text(row, "reason", report->reason);
    }
    json_object_array_add(json->proofs, row);
}

void bench_schedule_json_prediction(struct bench_schedule_json *json,
                                    const struct bench_schedule_prediction *prediction)
{
    if (json == NULL)
        return;
    const double time_ns = prediction->prediction.time_ns;
    const double algbw = time_ns > 0 ? (double)prediction->n_bytes / time_ns : 0;
    struct json_object *row = json_object_new_object();
    add_text(row, "algorithm", prediction->algorithm);
    add_bool(row, "from_file", prediction->is_from_file);
    add_text(row, "collective", gyre_collectives[prediction->coll].name);
    add_int(row, "ranks", prediction->n_ranks);
    add_int(row, "hosts", prediction->n_hosts);
    add_int(row, "root", prediction->root);
    add_text(row, "constants", prediction->constants);
    if (prediction->fabric_path != NULL)
        add_text(row, "fabric", prediction->fabric_path);
    if (prediction->net != NULL)
        add_text(row, "network", prediction->net);
    add_int(row, "bytes", (int64_t)prediction->n_bytes);
    add_text(row, "protocol", gyre_proto_names[prediction->proto]);
    if (prediction->net_proto != NULL)
        add_text(row, "protocol_between_hosts", prediction->net_proto);
    add_int(row, "channels", prediction->n_channels);
    add_int(row, "tile_bytes", prediction->tile_bytes);
    add_number(row, "time_us", time_ns / 1e3);
    add_number(row, "algbw_gbytes_per_s", algbw);
    add_number(row, "busbw_gbytes_per_s",
               algbw * bench_bus_factor(prediction->coll, prediction->n_ranks));
    add_number(row, "percent_of_bound", prediction->percent_of_bound);
    add_text(row, "busiest", prediction->busiest);
    add_number(row, "busy_percent", prediction->prediction.busy_share * 100);
    add_bool(row, "extrapolated", prediction->prediction.is_extrapolated);
    json_object_array_add(json->predictions, row);
}

gyre_status bench_schedule_json_close(struct bench_schedule_json *json, const char *path)
{
    const int flags = JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE;
    if (json == NULL)
        return GYRE_SUCCESS;
    const char *text = json_object_to_json_string_ext(json->root, flags);
    const gyre_status status = text == NULL ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%s", path)
                                            : gyre_file_replace(path, text, strlen(text));
    json_object_put(json->root);
    free(json);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "--json");
}

#else

gyre_status bench_schedule_json_open(int argc, char **argv, struct bench_schedule_json **json_out)
{
    (void)argc;
    (void)argv;
    (void)json_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--json: built without json-c; install libjson-c-dev and build again");
}

void bench_schedule_json_proof(struct bench_schedule_json *json,
                               const struct bench_schedule_proof *proof)
{
    (void)json;
    (void)proof;
}

void bench_schedule_json_prediction(struct bench_schedule_json *json,
                                    const struct bench_schedule_prediction *prediction)
{
    (void)json;
    (void)prediction;
}

gyre_status bench_schedule_json_close(struct bench_schedule_json *json, const char *path)
{
    (void)json;
    (void)path;
    return GYRE_SUCCESS;
}

#endif
