/* SPDX-License-Identifier: Apache-2.0
 *
 * Findings as Markdown, to paste into an issue: problems as a list, everything as a table.
 */
#include "bench/command/version.h"
#include "bench/doctor/output/output.h"
#include "core/foundation/base/file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Writes text that is to stand in a cell: a bar would end the cell, a newline the table. */
static void put_cell(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|' || *text == '\\' || *text == '`' || *text == '<' || *text == '*')
            fputc('\\', file);
        if (*text == '\n')
            fputs("<br>", file);
        else
            fputc(*text, file);
    }
}

static void put_problem(FILE *file, const struct bench_finding *finding)
{
    char doc[96];
    fprintf(file, "- **%s** `%s`%s%s", bench_severity_name(finding->severity),
            bench_checks[finding->check].id, finding->ranks[0] != '\0' ? ", rank " : "",
            finding->ranks);
    if (finding->subject[0] != '\0')
        fprintf(file, ", `%s`", finding->subject);
    fputs("\n\n", file);
    for (const char *line = finding->evidence; *line != '\0';) {
        const int n_line = (int)strcspn(line, "\n");
        fprintf(file, "      %.*s\n", n_line, line);
        line += n_line + (line[n_line] == '\n');
    }
    if (finding->fix[0] != '\0')
        fprintf(file, "\n  Fix: `%s`\n", finding->fix);
    fprintf(file, "\n  See [%s](%s)\n\n", bench_checks[finding->check].title,
            bench_finding_doc(finding, doc, sizeof(doc)));
}

static void put_values(FILE *file, const struct bench_matrix *matrix, const char *unit,
                       const double *values)
{
    fprintf(file, "\n%s, %s:\n\n| from \\\\ to |", matrix->what, unit);
    for (int j = 0; j < matrix->n; j++)
        fprintf(file, " %s |", matrix->names[j]);
    fputs("\n|---|", file);
    for (int j = 0; j < matrix->n; j++)
        fputs("---|", file);
    for (int i = 0; i < matrix->n; i++) {
        fprintf(file, "\n| %s |", matrix->names[i]);
        for (int j = 0; j < matrix->n; j++)
            if (i == j || isnan(values[i * matrix->n + j]))
                fputs(i == j ? " |" : " ? |", file);
            else
                fprintf(file, " %.4g |", values[i * matrix->n + j]);
    }
    fputs("\n", file);
}

static void put_matrix(FILE *file, const struct bench_matrix *matrix)
{
    int from = 0, to = 0;
    if (matrix->n == 0)
        return;
    put_values(file, matrix, "GB/s", matrix->gbytes_per_s);
    put_values(file, matrix, "latency in us", matrix->latency_us);
    if (bench_matrix_slowest(matrix, &from, &to))
        fprintf(file, "\nSlowest: %s to %s.\n", matrix->names[from], matrix->names[to]);
}

static void put_report(FILE *file, const struct bench_doctor_report *report)
{
    const struct bench_findings *findings = &report->doctor->findings;
    char summary[128];
    fprintf(file, "# gyre doctor: %s\n\ngyre %s (%s) on %s\n\n",
            bench_doctor_summary(report, summary, sizeof(summary)), bench_version_text(),
            bench_version_commit(), report->hosts);
    for (int i = 0; i < findings->n; i++)
        if (findings->list[i].severity >= BENCH_UNKNOWN)
            put_problem(file, &findings->list[i]);
    fputs("| check | | rank | of | evidence |\n|---|---|---|---|---|\n", file);
    for (int i = 0; i < findings->n; i++) {
        const struct bench_finding *finding = &findings->list[i];
        fprintf(file, "| `%s` | %s | %s | ", bench_checks[finding->check].id,
                bench_severity_name(finding->severity), finding->ranks);
        put_cell(file, finding->subject);
        fputs(" | ", file);
        put_cell(file, finding->evidence);
        fputs(" |\n", file);
    }
    put_matrix(file, &report->doctor->gpus);
    put_matrix(file, &report->doctor->hosts);
    put_matrix(file, &report->doctor->rails);
}

gyre_status bench_doctor_write_markdown(const struct bench_doctor_report *report, const char *path)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return gyre_fail_errno(errno, "--markdown %s", path);
    put_report(file, report);
    const bool is_bad = ferror(file) != 0;
    if (fclose(file) != 0 || is_bad) {
        free(text);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "--markdown %s: no memory", path);
    }
    const gyre_status status = gyre_file_replace(path, text, n_bytes);
    free(text);
    return status;
}
