/* SPDX-License-Identifier: Apache-2.0
 *
 * One HTML file without scripts, that loads nothing. The matrices are heat maps, from red for the
 * slowest pair to green for the fastest one.
 */
#include "bench/command/version.h"
#include "bench/doctor/doctor.h"
#include "core/foundation/base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>gyre doctor</title>\n"
    "<style>\n"
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;"
    "color:#1c2330;background:#fff}\n"
    "table{border-collapse:collapse;margin:1em 0}th,td{border:1px solid #d5dae2;padding:.35em .6em;"
    "text-align:left;vertical-align:top}th{background:#f2f4f8}\n"
    "pre{margin:0;white-space:pre-wrap;font:13px/1.4 ui-monospace,monospace}\n"
    ".s{font-weight:600;white-space:nowrap}.ok .s{color:#18794e}.skipped{color:#6b7280}"
    ".unknown .s{color:#8e4ec6}.warn .s{color:#ad5700}.fail .s{color:#c62a2f}"
    ".warn{background:#fff8ec}.fail{background:#fff0ef}\n"
    ".heat td{text-align:right;font-variant-numeric:tabular-nums}\n"
    "</style></head><body>\n";

/* With line ends, which gyre_text_put_markup() would make blanks. */
static void put_lines(const char *text, FILE *file)
{
    char line[sizeof(((struct bench_finding *)NULL)->evidence)];
    for (;;) {
        const size_t n_line = strcspn(text, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)n_line, text);
        gyre_text_put_markup(file, line);
        if (text[n_line] == '\0')
            return;
        fputc('\n', file);
        text += n_line + 1;
    }
}

static void put_finding(FILE *file, const struct bench_finding *finding)
{
    char doc[96];
    const char *severity = bench_severity_name(finding->severity);
    fprintf(file, "<tr class=\"%s\" id=\"%s\"><td class=\"s\">%s</td><td>%s<br><small>", severity,
            bench_checks[finding->check].id, severity, bench_checks[finding->check].id);
    gyre_text_put_markup(file, bench_checks[finding->check].title);
    fprintf(file, "</small></td><td>%s</td><td>", finding->ranks);
    gyre_text_put_markup(file, finding->subject);
    fputs("</td><td><pre>", file);
    put_lines(finding->evidence, file);
    fputs("</pre></td><td><pre>", file);
    put_lines(finding->fix, file);
    fputs("</pre>", file);
    if (finding->severity >= BENCH_UNKNOWN)
        gyre_text_put_markup(file, bench_finding_doc(finding, doc));
    fputs("</td></tr>\n", file);
}

/* @goodness: 0 = the worst pair, 1 = the best one. */
static void put_cell(FILE *file, double value, double goodness)
{
    fprintf(file, "<td style=\"background:hsl(%d,70%%,82%%)\">%.4g</td>", (int)(120 * goodness),
            value);
}

static void put_heat_map(FILE *file, const struct bench_matrix *matrix, const double *values,
                         const char *unit, bool more_is_better)
{
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < matrix->n * matrix->n; i++)
        if (i / matrix->n != i % matrix->n && !isnan(values[i])) {
            low = fmin(low, values[i]);
            high = fmax(high, values[i]);
        }
    fputs("<h2>", file);
    gyre_text_put_markup(file, matrix->what);
    fprintf(file, ": %s</h2>\n<table class=\"heat\"><tr><th>from \\ to</th>", unit);
    for (int j = 0; j < matrix->n; j++) {
        fputs("<th>", file);
        gyre_text_put_markup(file, matrix->names[j]);
        fputs("</th>", file);
    }
    for (int i = 0; i < matrix->n; i++) {
        fputs("</tr>\n<tr><th>", file);
        gyre_text_put_markup(file, matrix->names[i]);
        fputs("</th>", file);
        for (int j = 0; j < matrix->n; j++) {
            const double value = values[i * matrix->n + j];
            const double place = high > low ? (value - low) / (high - low) : 1;
            if (i == j || isnan(value))
                fputs(i == j ? "<td></td>" : "<td>?</td>", file);
            else
                put_cell(file, value, more_is_better || high <= low ? place : 1 - place);
        }
    }
    fputs("</tr></table>\n", file);
}

static void put_matrix(FILE *file, const struct bench_matrix *matrix)
{
    const int n = matrix->n, slow = bench_matrix_rates(matrix).slow;
    if (n == 0)
        return;
    put_heat_map(file, matrix, matrix->gbytes_per_s, "GB/s", true);
    put_heat_map(file, matrix, matrix->latency_us, "latency in microseconds", false);
    if (slow < 0)
        return;
    fputs("<p>Slowest pair: <b>", file);
    gyre_text_put_markup(file, matrix->names[slow / n]);
    fputs("</b> to <b>", file);
    gyre_text_put_markup(file, matrix->names[slow % n]);
    fputs("</b></p>\n", file);
}

void bench_doctor_put_html(FILE *file, const struct bench_doctor_report *report)
{
    static const enum bench_severity order[BENCH_N_SEVERITIES] = {
        BENCH_FAIL, BENCH_WARN, BENCH_UNKNOWN, BENCH_OK, BENCH_SKIPPED};
    const struct bench_findings *findings = &report->doctor->findings;
    char summary[128];
    fputs(head, file);
    fprintf(file, "<h1>gyre doctor: %s</h1>\n<p>gyre %s (%s) on ",
            bench_doctor_summary(report, summary, sizeof(summary)), bench_version_text(),
            bench_version_commit());
    gyre_text_put_markup(file, report->hosts);
    fputs("</p>\n<table><tr><th></th><th>check</th><th>rank</th><th>of</th><th>evidence</th>"
          "<th>fix</th></tr>\n",
          file);
    /* Problems first, the worst on top; within a severity in the order of checks. */
    for (size_t k = 0; k < BENCH_N_SEVERITIES; k++)
        for (int i = 0; i < findings->n; i++)
            if (findings->list[i].severity == (int32_t)order[k])
                put_finding(file, &findings->list[i]);
    fputs("</table>\n", file);
    put_matrix(file, &report->doctor->gpus);
    put_matrix(file, &report->doctor->hosts);
    put_matrix(file, &report->doctor->rails);
    fputs("</body></html>\n", file);
}
