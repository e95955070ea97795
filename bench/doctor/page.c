/* SPDX-License-Identifier: Apache-2.0
 *
 * One HTML file without scripts, that loads nothing. The matrices are heat maps, from red for the
 * slowest pair to green for the fastest one.
 */
#include "bench/command/version.h"
#include "bench/doctor/doctor.h"
#include "core/foundation/base/text.h"

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
    bench_matrix_put(file, BENCH_AS_HTML, &report->doctor->gpus);
    bench_matrix_put(file, BENCH_AS_HTML, &report->doctor->hosts);
    bench_matrix_put(file, BENCH_AS_HTML, &report->doctor->rails);
    fputs("</body></html>\n", file);
}
