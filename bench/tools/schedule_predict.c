/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule's JSON file is written once at the end, even after a failed proof.
 */
#include "bench/tools/schedule_predict.h"

#include "bench/report/table_file.h"
#include "core/foundation/base/status.h"

#include <stdio.h>

#define MAX_PROTO_TEXT 20
#define MAX_BOUND_TEXT 16

static double percent_of_bound(const struct bench_table *table, uint64_t n_bytes, double time_ns)
{
    const struct gyre_shape *shape = &table->request->shape;
    return time_ns > 0 ? 100 * gyre_bound_ns(shape, &table->cost, n_bytes) / time_ns : 0;
}

/* "-" = no known bound, as for hosts that share memory. */
static const char *text_of_bound(const struct bench_table *table, uint64_t n_bytes, double time_ns,
                                 char text_out[MAX_BOUND_TEXT])
{
    const double percent = percent_of_bound(table, n_bytes, time_ns);
    if (percent <= 0)
        return "-";
    snprintf(text_out, MAX_BOUND_TEXT, "%.1f", percent);
    return text_out;
}

/* "ll", or "ll/simple" with another protocol between hosts. */
static void name_proto(const struct bench_table *table, const struct bench_table_cell *cell,
                       char text_out[MAX_PROTO_TEXT])
{
    const bool is_mixed = gyre_tuner_mixes_protos(&table->facts, &cell->choice);
    snprintf(text_out, MAX_PROTO_TEXT, "%s%s%s", gyre_proto_names[cell->choice.proto],
             is_mixed ? "/" : "", is_mixed ? gyre_proto_names[cell->choice.net_proto] : "");
}

static const char *busiest_of(const struct bench_table *table,
                              const struct gyre_prediction *prediction, char *name)
{
    if (prediction->bottleneck != GYRE_RESOURCE_FABRIC)
        return gyre_resource_names[prediction->bottleneck];
    gyre_fabric_link_name(table->request->fabric, prediction->fabric_link, name);
    return name;
}

static void add_to_json(const struct bench_table *table, int column, uint64_t n_bytes,
                        const struct bench_table_cell *cell);

static gyre_status print_line(struct bench_table *table, uint64_t n_bytes)
{
    const struct bench_schedule_request *request = table->request;
    const uint64_t n_call = bench_table_call_bytes(request, n_bytes);
    struct bench_table_cell cells[BENCH_TABLE_ALGORITHMS];
    char proto[MAX_PROTO_TEXT], bound[MAX_BOUND_TEXT];
    int best = 0;
    for (int i = 0; i < table->n_algorithms; i++) {
        GYRE_TRY(bench_table_predict(table, i, n_call, &cells[i]));
        add_to_json(table, i, n_bytes, &cells[i]);
        name_proto(table, &cells[i], proto);
        const struct bench_tidy_row row = {
            .engine = "predicted",
            .machine = request->cost == NULL ? "h200" : request->cost,
            .device = table->facts.device_kind == GYRE_DEVICE_CUDA ? "cuda" : "host",
            .fabric = request->fabric == NULL ? "" : request->fabric_path,
            .dtype = gyre_dtype_names[GYRE_FLOAT32],
            .n_ranks = request->shape.n_ranks,
            .n_hosts = table->facts.n_hosts,
            .coll = request->shape.coll,
            .algorithm = table->algorithms[i]->name,
            .proto = proto,
            .n_channels = cells[i].choice.n_channels,
            .n_bytes = n_bytes,
            .time_us = cells[i].prediction.time_ns / 1e3};
        GYRE_TRY(bench_tidy_row(request->csv, &row));
        if (cells[i].prediction.time_ns < cells[best].prediction.time_ns)
            best = i;
    }
    if (request->algorithm != NULL) {
        const double time_ns = cells[0].prediction.time_ns;
        const double algbw = time_ns > 0 ? (double)n_bytes / time_ns : 0;
        char link_name[GYRE_FABRIC_NAME_BYTES];
        name_proto(table, &cells[0], proto);
        printf("%14llu %14s %8u %10u %14.2f %10.2f %10.2f %9s  %s %.0f%%%s\n",
               (unsigned long long)n_bytes, proto, cells[0].choice.n_channels,
               cells[0].choice.tile_bytes, time_ns / 1e3, algbw,
               algbw * bench_bus_factor(request->shape.coll, request->shape.n_ranks),
               text_of_bound(table, n_bytes, time_ns, bound),
               busiest_of(table, &cells[0].prediction, link_name),
               cells[0].prediction.busy_share * 100,
               cells[0].prediction.is_extrapolated ? "" : ", all tiles");
        return GYRE_SUCCESS;
    }
    printf("%14llu", (unsigned long long)n_bytes);
    for (int i = 0; i < table->n_algorithms; i++)
        printf(" %14.2f", cells[i].prediction.time_ns / 1e3);
    printf(" %9s  %s\n", text_of_bound(table, n_bytes, cells[best].prediction.time_ns, bound),
           table->n_algorithms > 0 ? table->algorithms[best]->name : "");
    return GYRE_SUCCESS;
}

static void print_header(const struct bench_table *table)
{
    const struct bench_schedule_request *request = table->request;
    const bool has_net = request->net != BENCH_NET_UNNAMED;
    printf("# %s of %u rank%s on %u host%s, constants: %s%s%s%s%s\n",
           gyre_collectives[request->shape.coll].name, request->shape.n_ranks,
           request->shape.n_ranks == 1 ? "" : "s", table->facts.n_hosts,
           table->facts.n_hosts == 1 ? "" : "s", request->cost == NULL ? "h200" : request->cost,
           request->fabric == NULL ? "" : ", fabric: ",
           request->fabric == NULL ? "" : request->fabric_path, has_net ? ", network: " : "",
           has_net ? bench_net_name(request->net) : "");
    if (request->algorithm != NULL) {
        printf("# %s\n#%13s %14s %8s %10s %14s %10s %10s %9s  %s\n", request->algorithm->name,
               "bytes", "proto", "channels", "tile", "predicted us", "algbw GB/s", "busbw GB/s",
               "of bound", "busiest");
        return;
    }
    printf("# us; %% of bound: what the bytes alone take, in %% of the fastest\n#%13s", "bytes");
    for (int i = 0; i < table->n_algorithms; i++)
        printf(" %14s", table->algorithms[i]->name);
    printf(" %9s  fastest\n", "% of bound");
}

gyre_status bench_schedule_predict(const struct bench_schedule_request *request)
{
    struct bench_table table = {.request = request};
    const uint64_t first_bytes = request->first_bytes > 0 ? request->first_bytes : 1024;
    const uint64_t last_bytes = request->last_bytes > 0 ? request->last_bytes : 1 << 30;
    if (request->trace != NULL &&
        (request->algorithm == NULL || first_bytes * BENCH_PREDICT_SIZE_FACTOR <= last_bytes))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--trace shows one call: name one algorithm (--algo or --file) and one "
                         "size (--bytes 1M)");
    gyre_status status = bench_table_open(&table);
    if (status == GYRE_SUCCESS && table.n_algorithms == 0)
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED,
                           "no algorithm can be predicted for %s: the lines \"left out\" say why",
                           gyre_collectives[request->shape.coll].name);
    if (status == GYRE_SUCCESS)
        print_header(&table);
    for (uint64_t n_bytes = first_bytes; n_bytes <= last_bytes && status == GYRE_SUCCESS;
         n_bytes *= BENCH_PREDICT_SIZE_FACTOR)
        status = print_line(&table, n_bytes);
    bench_table_close(&table);
    if (status == GYRE_SUCCESS && request->trace != NULL)
        status = bench_simulated_trace(request, first_bytes, NULL, request->trace);
    return status;
}

#ifdef GYRE_BENCH_WITH_JSON

#include "bench/report/json_add.h"
#include "core/foundation/base/file.h"

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
        add_bool(row, "same_bits", report->same_bits);
    } else {
        add_text(row, "reason", report->reason);
    }
    json_object_array_add(json->proofs, row);
}

static void add_to_json(const struct bench_table *table, int column, uint64_t n_bytes,
                        const struct bench_table_cell *cell)
{
    const struct bench_schedule_request *request = table->request;
    const double time_ns = cell->prediction.time_ns;
    const double algbw = time_ns > 0 ? (double)n_bytes / time_ns : 0;
    char link_name[GYRE_FABRIC_NAME_BYTES];
    if (request->json == NULL)
        return;
    struct json_object *row = json_object_new_object();
    add_text(row, "algorithm", table->algorithms[column]->name);
    add_bool(row, "from_file", table->algorithms[column]->given != NULL);
    add_text(row, "collective", gyre_collectives[request->shape.coll].name);
    add_int(row, "ranks", request->shape.n_ranks);
    add_int(row, "hosts", table->facts.n_hosts);
    add_int(row, "root", request->shape.root);
    add_text(row, "constants", request->cost == NULL ? "h200" : request->cost);
    if (request->fabric_path != NULL)
        add_text(row, "fabric", request->fabric_path);
    if (request->net != BENCH_NET_UNNAMED)
        add_text(row, "network", bench_net_name(request->net));
    add_int(row, "bytes", (int64_t)n_bytes);
    add_text(row, "protocol", gyre_proto_names[cell->choice.proto]);
    if (table->facts.is_proxied)
        add_text(row, "protocol_between_hosts", gyre_proto_names[cell->choice.net_proto]);
    add_int(row, "channels", cell->choice.n_channels);
    add_int(row, "tile_bytes", cell->choice.tile_bytes);
    add_number(row, "time_us", time_ns / 1e3);
    add_number(row, "algbw_gbytes_per_s", algbw);
    add_number(row, "busbw_gbytes_per_s",
               algbw * bench_bus_factor(request->shape.coll, request->shape.n_ranks));
    add_number(row, "percent_of_bound", percent_of_bound(table, n_bytes, time_ns));
    add_text(row, "busiest", busiest_of(table, &cell->prediction, link_name));
    add_number(row, "busy_percent", cell->prediction.busy_share * 100);
    add_bool(row, "extrapolated", cell->prediction.is_extrapolated);
    json_object_array_add(request->json->predictions, row);
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

static void add_to_json(const struct bench_table *table, int column, uint64_t n_bytes,
                        const struct bench_table_cell *cell)
{
    (void)table;
    (void)column;
    (void)n_bytes;
    (void)cell;
}

gyre_status bench_schedule_json_close(struct bench_schedule_json *json, const char *path)
{
    (void)json;
    (void)path;
    return GYRE_SUCCESS;
}

#endif
