/* SPDX-License-Identifier: Apache-2.0
 *
 * Findings as JSON; the schema is doctor.schema.json in this folder.
 */
#include "bench/doctor/output/output.h"

#ifdef GYRE_BENCH_WITH_JSON

#include "bench/command/version.h"
#include "bench/report/json_add.h"

#include <math.h>

static void add_finding(struct json_object *list, const struct bench_finding *finding)
{
    char doc[96];
    struct json_object *object = json_object_new_object();
    add_text(object, "id", bench_checks[finding->check].id);
    add_text(object, "severity", bench_severity_name(finding->severity));
    add_text(object, "subject", finding->subject);
    add_text(object, "ranks", finding->ranks);
    add_text(object, "evidence", finding->evidence);
    add_text(object, "fix", finding->fix);
    add_text(object, "doc", bench_finding_doc(finding, doc, sizeof(doc)));
    json_object_array_add(list, object);
}

/* Rows of numbers; null where nothing was measured. */
static void add_rows(struct json_object *object, const char *key, const double *values, int n)
{
    struct json_object *rows = add_array(object, key);
    for (int i = 0; i < n; i++) {
        struct json_object *row = json_object_new_array();
        for (int j = 0; j < n; j++)
            json_object_array_add(row, i == j || isnan(values[i * n + j])
                                           ? NULL
                                           : json_object_new_double(values[i * n + j]));
        json_object_array_add(rows, row);
    }
}

static void add_matrix(struct json_object *object, const char *key,
                       const struct bench_matrix *matrix)
{
    int from = 0, to = 0;
    if (matrix->n == 0) {
        json_object_object_add(object, key, NULL);
        return;
    }
    struct json_object *child = add_object(object, key);
    struct json_object *names = add_array(child, "names");
    for (int i = 0; i < matrix->n; i++)
        json_object_array_add(names, json_text(matrix->names[i]));
    add_rows(child, "gbytes_per_s", matrix->gbytes_per_s, matrix->n);
    add_rows(child, "latency_us", matrix->latency_us, matrix->n);
    struct json_object *slowest = add_array(child, "slowest");
    if (bench_matrix_slowest(matrix, &from, &to)) {
        json_object_array_add(slowest, json_text(matrix->names[from]));
        json_object_array_add(slowest, json_text(matrix->names[to]));
    }
}

gyre_status bench_doctor_write_json(const struct bench_doctor_report *report, const char *path)
{
    const struct bench_findings *findings = &report->doctor->findings;
    struct json_object *root = json_object_new_object();
    add_int(root, "schema_version", 1);
    add_text(root, "gyre_version", bench_version_text());
    add_text(root, "commit", bench_version_commit());
    add_time(root, "time");
    add_text(root, "hosts", report->hosts);
    add_int(root, "exit_status", report->exit_status);
    struct json_object *checks = add_array(root, "checks");
    for (int i = 0; i < findings->n; i++)
        add_finding(checks, &findings->list[i]);
    struct json_object *matrix = add_object(root, "matrix");
    add_matrix(matrix, "gpus", &report->doctor->gpus);
    add_matrix(matrix, "hosts", &report->doctor->hosts);
    add_matrix(matrix, "rails", &report->doctor->rails);
    const gyre_status status = bench_json_write(root, path);
    json_object_put(root);
    return status;
}

#else

gyre_status bench_doctor_write_json(const struct bench_doctor_report *report, const char *path)
{
    (void)report;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--json %s: built without json-c; install libjson-c-dev and build again",
                     path);
}

#endif
