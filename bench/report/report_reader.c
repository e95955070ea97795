/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading reports back for tune.
 */
#include "bench/report/report_reader.h"

#ifdef GYRE_BENCH_WITH_JSON

#include "algorithms/algorithm.h"
#include "bench/report/json_add.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

#define SCHEMA_VERSION 1

/* The result of reading, so far. */
struct reading {
    struct gyre_tuner_facts *facts;
    struct bench_fit_row *rows;
    size_t most_rows;
    size_t n_rows;
    bool has_device;
};

/* The member of an object, or NULL if there is none. */
static struct json_object *member(struct json_object *object, const char *key)
{
    struct json_object *found = NULL;
    return json_object_object_get_ex(object, key, &found) ? found : NULL;
}

static const char *text_of(struct json_object *object, const char *key)
{
    struct json_object *found = member(object, key);
    return json_object_is_type(found, json_type_string) ? json_object_get_string(found) : "";
}

static int64_t int_of(struct json_object *object, const char *key)
{
    return json_object_get_int64(member(object, key));
}

/* The time of a call out of place in microseconds; 0 if there is none. */
static double time_of(struct json_object *result)
{
    struct json_object *compared = member(result, "comparison");
    struct json_object *alone = member(result, "out_of_place");
    return compared != NULL ? json_object_get_double(member(compared, "gyre_us"))
                            : json_object_get_double(member(alone, "time_us"));
}

static bool is_for_a_fit(enum gyre_collective coll)
{
    return coll == GYRE_COLL_ALL_REDUCE || coll == GYRE_COLL_ALL_GATHER ||
           coll == GYRE_COLL_REDUCE_SCATTER;
}

static void read_result(struct reading *reading, struct json_object *result,
                        enum gyre_collective coll, uint32_t n_ranks)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[coll];
    const bool has_blocks = traits->in_blocks || traits->out_blocks;
    const int proto = gyre_name_find(gyre_proto_names, GYRE_N_PROTOS, text_of(result, "protocol"));
    const int net_proto =
        gyre_name_find(gyre_proto_names, GYRE_N_PROTOS, text_of(result, "protocol_between_hosts"));
    const char *path = text_of(result, "path");
    const struct bench_fit_row row = {
        .coll = coll,
        .choice = {.algorithm = gyre_algorithm_find(text_of(result, "algorithm")),
                   .proto = (enum gyre_proto)(proto < 0 ? 0 : proto),
                   .net_proto = net_proto < 0 ? GYRE_PROTO_SIMPLE : (enum gyre_proto)net_proto,
                   .n_channels = (uint32_t)int_of(result, "channels"),
                   .tile_bytes = (uint32_t)int_of(result, "slot_bytes")},
        .n_bytes = (uint64_t)int_of(result, "bytes") / (has_blocks ? n_ranks : 1),
        .n_ranks = n_ranks,
        .us = time_of(result),
    };
    const bool is_staged =
        path[0] == '\0' || strcmp(path, "staged") == 0; /* older reports have no path */
    if (proto >= 0 && row.choice.algorithm != NULL && row.choice.n_channels > 0 &&
        row.choice.tile_bytes > 0 && row.us > 0 && is_staged &&
        reading->n_rows < reading->most_rows)
        reading->rows[reading->n_rows++] = row;
}

/* Constants are fitted to one host only, so reports of several hosts are skipped. */
static bool is_one_host(struct json_object *places)
{
    const size_t n =
        json_object_is_type(places, json_type_array) ? json_object_array_length(places) : 0;
    for (size_t i = 1; i < n; i++)
        if (strcmp(text_of(json_object_array_get_idx(places, i), "host"),
                   text_of(json_object_array_get_idx(places, 0), "host")) != 0)
            return false;
    return true;
}

static gyre_status read_report(struct reading *reading, struct json_object *root)
{
    struct json_object *settings = member(root, "settings"), *results = member(root, "results");
    const int coll = gyre_collective_find(text_of(root, "collective"));
    const int64_t n_ranks = int_of(settings, "ranks");
    const bool is_cuda = strcmp(text_of(settings, "device"), "cuda") == 0;
    const gyre_device_kind kind = is_cuda ? GYRE_DEVICE_CUDA : GYRE_DEVICE_HOST;
    if (coll < 0 || settings == NULL || !json_object_is_type(results, json_type_array) ||
        !is_for_a_fit((enum gyre_collective)coll) || n_ranks < 2 || n_ranks > GYRE_MAX_RANKS ||
        !is_one_host(member(root, "places")))
        return GYRE_SUCCESS; /* not a report of calls that can be fitted */
    if (int_of(root, "schema_version") != SCHEMA_VERSION)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "its schema_version is not %d",
                         SCHEMA_VERSION);
    if (reading->has_device && reading->facts->device_kind != kind)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s",
                         "its ranks are on another kind of device than those of the files before");
    reading->has_device = true;
    reading->facts->device_kind = kind;
    if (n_ranks > reading->facts->n_ranks)
        reading->facts->n_ranks = (uint32_t)n_ranks;
    for (size_t i = 0; i < json_object_array_length(results); i++)
        read_result(reading, json_object_array_get_idx(results, i), (enum gyre_collective)coll,
                    (uint32_t)n_ranks);
    return GYRE_SUCCESS;
}

static gyre_status read_file(struct reading *reading, const char *path)
{
    struct json_object *root = NULL;
    GYRE_TRY(bench_json_read(path, &root));
    const gyre_status status = read_report(reading, root);
    json_object_put(root);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "%s", path);
}

gyre_status bench_reports_read(const char *folder, struct gyre_tuner_facts *facts_out,
                               struct bench_fit_row *rows_out, size_t most_rows, size_t *n_rows_out)
{
    struct gyre_tuner_facts facts = {.n_hosts = 1};
    struct reading reading = {.facts = &facts, .rows = rows_out, .most_rows = most_rows};
    char pattern[4096];
    glob_t found;
    if (snprintf(pattern, sizeof(pattern), "%s/*.json", folder) >= (int)sizeof(pattern))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--from: the path is too long");
    const int error = glob(pattern, 0, NULL, &found);
    if (error != 0)
        return error == GLOB_NOMATCH
                   ? gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--from %s: no *.json there", folder)
                   : gyre_fail_errno(ENOMEM, "--from %s", folder);
    gyre_status status = GYRE_SUCCESS;
    for (size_t i = 0; i < found.gl_pathc && status == GYRE_SUCCESS; i++)
        status = read_file(&reading, found.gl_pathv[i]);
    globfree(&found);
    GYRE_TRY(status);
    if (reading.n_rows == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "--from %s: no report there has calls that constants can be fitted to "
                         "(all_reduce, all_gather or reduce_scatter of two ranks or more, staged "
                         "through slots)",
                         folder);
    facts.spec = gyre_tuner_fifo_spec(facts.device_kind, facts.n_ranks, false, 0, UINT32_MAX);
    *facts_out = facts;
    *n_rows_out = reading.n_rows;
    return GYRE_SUCCESS;
}

#else

gyre_status bench_reports_read(const char *folder, struct gyre_tuner_facts *facts_out,
                               struct bench_fit_row *rows_out, size_t most_rows, size_t *n_rows_out)
{
    (void)folder;
    (void)facts_out;
    (void)rows_out;
    (void)most_rows;
    (void)n_rows_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--from: built without json-c; install libjson-c-dev and build again");
}

#endif
