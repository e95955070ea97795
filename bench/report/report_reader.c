/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/report/report_reader.h"

#include <math.h>
#include <string.h>

double bench_time_curve_at(const struct bench_time_curve *curve, double n_bytes,
                           bool *is_beyond_out)
{
    const struct bench_time_point *points = curve->points;
    const int last = curve->n_points - 1;
    int next = 0;
    *is_beyond_out = n_bytes < (double)points[0].n_bytes || n_bytes > (double)points[last].n_bytes;
    if (n_bytes <= (double)points[0].n_bytes)
        return points[0].us;
    if (n_bytes >= (double)points[last].n_bytes)
        return points[last].us * n_bytes / (double)points[last].n_bytes;
    while ((double)points[next].n_bytes < n_bytes)
        next++;
    const struct bench_time_point *low = &points[next - 1], *high = &points[next];
    const double part =
        log(n_bytes / (double)low->n_bytes) / log((double)high->n_bytes / (double)low->n_bytes);
    return low->us * pow(high->us / low->us, part);
}

#ifdef GYRE_BENCH_WITH_JSON

#include "bench/report/json_add.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>

#define SCHEMA_VERSION 1

/* NULL = none of that type. */
static struct json_object *member(struct json_object *object, const char *key, json_type type)
{
    struct json_object *found = NULL;
    if (!json_object_is_type(object, json_type_object) ||
        !json_object_object_get_ex(object, key, &found) || !json_object_is_type(found, type))
        return NULL;
    return found;
}

static const char *text_of(struct json_object *object, const char *key)
{
    struct json_object *found = member(object, key, json_type_string);
    return found == NULL ? "" : json_object_get_string(found);
}

static int64_t int_of(struct json_object *object, const char *key)
{
    return json_object_get_int64(member(object, key, json_type_int));
}

/* 0 = none. */
static double us_of(struct json_object *row, const char *object, const char *key)
{
    struct json_object *found = NULL;
    struct json_object *timing = member(row, object, json_type_object);
    if (timing == NULL || !json_object_object_get_ex(timing, key, &found))
        return 0;
    const double us = json_object_get_double(found);
    return isfinite(us) && us > 0 ? us : 0;
}

/* Out of place or from --compare, 0 = none. */
static double time_of(struct json_object *row)
{
    const double us = us_of(row, "comparison", "gyre_us");
    return us > 0 ? us : us_of(row, "out_of_place", "time_us");
}

static unsigned count_hosts(struct json_object *places)
{
    const size_t n = places == NULL ? 0 : json_object_array_length(places);
    unsigned n_hosts = 0;
    for (size_t i = 0; i < n; i++) {
        const char *host = text_of(json_object_array_get_idx(places, i), "host");
        size_t before = 0;
        while (before < i &&
               strcmp(host, text_of(json_object_array_get_idx(places, before), "host")) != 0)
            before++;
        n_hosts += before == i;
    }
    return n_hosts;
}

static gyre_status add_report(struct json_object *root, struct bench_report_times *times)
{
    struct json_object *results = member(root, "results", json_type_array);
    struct json_object *settings = member(root, "settings", json_type_object);
    const int coll = gyre_collective_find(text_of(root, "collective"));
    const int64_t n_ranks = int_of(settings, "ranks");
    const unsigned n_hosts = count_hosts(member(root, "places", json_type_array));
    int n_rows = 0;
    if (results == NULL || coll < 0 || n_ranks < 1 || n_ranks > GYRE_MAX_RANKS || n_hosts == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "it is not the report of a bench (made by --json)");
    if (times->n_ranks > 0 && (times->n_ranks != n_ranks || times->n_hosts != n_hosts))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "it is of %lld ranks on %u hosts, the reports before are of %u on %u",
                         (long long)n_ranks, n_hosts, times->n_ranks, times->n_hosts);
    for (size_t i = 0; i < json_object_array_length(results); i++) {
        struct json_object *row = json_object_array_get_idx(results, i);
        const int64_t n_bytes = int_of(row, "bytes");
        const double us = time_of(row);
        if (n_bytes <= 0 || us <= 0)
            continue;
        if (int_of(member(row, "out_of_place", json_type_object), "wrong") > 0 ||
            int_of(member(row, "in_place", json_type_object), "wrong") > 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "the results of %lld bytes were wrong, so its times say nothing",
                             (long long)n_bytes);
        n_rows++;
        struct bench_time_curve *curve = &times->of[coll];
        struct bench_time_point *point = curve->points, *end = &point[curve->n_points];
        while (point < end && point->n_bytes < (uint64_t)n_bytes)
            point++;
        if (point < end && point->n_bytes == (uint64_t)n_bytes) {
            point->us = (point->us * point->n_rows + us) / (point->n_rows + 1);
            point->n_rows++;
            continue;
        }
        if (curve->n_points == BENCH_MAX_TIME_POINTS)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "it has more than %d sizes",
                             BENCH_MAX_TIME_POINTS);
        memmove(point + 1, point, (size_t)(end - point) * sizeof(*point));
        *point = (struct bench_time_point){.n_bytes = (uint64_t)n_bytes, .us = us, .n_rows = 1};
        curve->n_points++;
    }
    if (n_rows == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "it has no row with a time");
    times->n_ranks = (unsigned)n_ranks;
    times->n_hosts = n_hosts;
    return GYRE_SUCCESS;
}

gyre_status bench_report_times_add(const char *path, struct bench_report_times *times)
{
    struct json_object *root = NULL;
    GYRE_TRY(bench_json_read(path, &root));
    const gyre_status status = add_report(root, times);
    json_object_put(root);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "%s", path);
}

struct reading {
    struct gyre_tuner_facts *facts;
    struct bench_fit_row *rows;
    size_t most_rows;
    size_t n_rows;
    bool has_device;
};

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

static gyre_status read_report(struct reading *reading, struct json_object *root)
{
    struct json_object *settings = member(root, "settings", json_type_object);
    struct json_object *results = member(root, "results", json_type_array);
    const int coll = gyre_collective_find(text_of(root, "collective"));
    const int64_t n_ranks = int_of(settings, "ranks");
    const bool is_cuda = strcmp(text_of(settings, "device"), "cuda") == 0;
    const gyre_device_kind kind = is_cuda ? GYRE_DEVICE_CUDA : GYRE_DEVICE_HOST;
    const bool is_for_a_fit = coll == GYRE_COLL_ALL_REDUCE || coll == GYRE_COLL_ALL_GATHER ||
                              coll == GYRE_COLL_REDUCE_SCATTER;
    /* constants are fitted to one host */
    if (!is_for_a_fit || settings == NULL || results == NULL || n_ranks < 2 ||
        n_ranks > GYRE_MAX_RANKS || count_hosts(member(root, "places", json_type_array)) > 1)
        return GYRE_SUCCESS; /* not for fits */
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
    for (size_t i = 0; i < found.gl_pathc && status == GYRE_SUCCESS; i++) {
        struct json_object *root = NULL;
        status = bench_json_read(found.gl_pathv[i], &root);
        if (status != GYRE_SUCCESS)
            break;
        status = read_report(&reading, root);
        json_object_put(root);
        if (status != GYRE_SUCCESS)
            gyre_fail_context(status, "%s", found.gl_pathv[i]);
    }
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

gyre_status bench_report_times_add(const char *path, struct bench_report_times *times)
{
    (void)path;
    (void)times;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--from: built without json-c; install libjson-c-dev and build again");
}

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
