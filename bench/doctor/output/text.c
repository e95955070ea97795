/* SPDX-License-Identifier: Apache-2.0
 *
 * Findings for a terminal. A check without a problem takes one line; a problem is printed with its
 * evidence, its fix and the page that explains it.
 */
#include "bench/doctor/output/output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *bench_doctor_summary(const struct bench_doctor_report *report, char *text_out,
                                 size_t text_bytes)
{
    const int *n = report->n_by_severity;
    snprintf(text_out, text_bytes, "%d fail, %d warn, %d unknown, %d ok, %d skipped", n[BENCH_FAIL],
             n[BENCH_WARN], n[BENCH_UNKNOWN], n[BENCH_OK], n[BENCH_SKIPPED]);
    return text_out;
}

bool bench_matrix_slowest(const struct bench_matrix *matrix, int *from_out, int *to_out)
{
    double least = INFINITY;
    for (int i = 0; i < matrix->n; i++)
        for (int j = 0; j < matrix->n; j++) {
            const double rate = matrix->gbytes_per_s[i * matrix->n + j];
            if (i == j || isnan(rate) || rate >= least)
                continue;
            least = rate;
            *from_out = i;
            *to_out = j;
        }
    return least < INFINITY;
}

/* Prints text whose lines after the first one are indented. */
static void print_lines(FILE *file, int indent, const char *text)
{
    for (;;) {
        const size_t n_line = strcspn(text, "\n");
        fprintf(file, "%.*s\n", (int)n_line, text);
        if (text[n_line] == '\0')
            return;
        text += n_line + 1;
        fprintf(file, "%*s", indent, "");
    }
}

static void print_finding(const struct bench_finding *finding, bool has_colours, FILE *file)
{
    static const char *const colours[BENCH_N_SEVERITIES] = {"\033[32m", "\033[2m", "\033[35m",
                                                            "\033[33m", "\033[31m"};
    char doc[96];
    fprintf(file, "  %s%-8s%s %-22s ", has_colours ? colours[finding->severity] : "",
            bench_severity_name(finding->severity), has_colours ? "\033[0m" : "",
            bench_checks[finding->check].id);
    if (finding->ranks[0] != '\0')
        fprintf(file, "[rank %s] ", finding->ranks);
    if (finding->subject[0] != '\0')
        fprintf(file, "%s: ", finding->subject);
    print_lines(file, 13, finding->evidence);
    if (finding->severity < BENCH_UNKNOWN)
        return;
    if (finding->fix[0] != '\0') {
        fprintf(file, "%*sfix: ", 13, "");
        print_lines(file, 18, finding->fix);
    }
    fprintf(file, "%*ssee: %s\n", 13, "", bench_finding_doc(finding, doc, sizeof(doc)));
}

static void print_values(const struct bench_matrix *matrix, const double *values, FILE *file)
{
    int width = 12;
    for (int i = 0; i < matrix->n; i++)
        width = (int)strlen(matrix->names[i]) > width ? (int)strlen(matrix->names[i]) : width;
    fprintf(file, "    %-*s", width, "from \\ to");
    for (int j = 0; j < matrix->n; j++)
        fprintf(file, " %*s", width, matrix->names[j]);
    fputs("\n", file);
    for (int i = 0; i < matrix->n; i++) {
        fprintf(file, "    %-*s", width, matrix->names[i]);
        for (int j = 0; j < matrix->n; j++)
            if (i == j || isnan(values[i * matrix->n + j]))
                fprintf(file, " %*s", width, i == j ? "-" : "?");
            else
                fprintf(file, " %*.4g", width, values[i * matrix->n + j]);
        fputs("\n", file);
    }
}

static void print_matrix(const struct bench_matrix *matrix, FILE *file)
{
    int from = 0, to = 0;
    if (matrix->n == 0)
        return;
    fprintf(file, "\n%s: GB/s\n", matrix->what);
    print_values(matrix, matrix->gbytes_per_s, file);
    fprintf(file, "%s: latency in microseconds\n", matrix->what);
    print_values(matrix, matrix->latency_us, file);
    if (bench_matrix_slowest(matrix, &from, &to))
        fprintf(file, "slowest: %s to %s, %.4g GB/s\n", matrix->names[from], matrix->names[to],
                matrix->gbytes_per_s[from * matrix->n + to]);
}

static bool is_printed(const struct bench_finding *finding, enum bench_print which)
{
    return which == BENCH_PRINT_ALL || finding->severity >= BENCH_UNKNOWN ||
           (which == BENCH_PRINT_USUAL && finding->severity != BENCH_SKIPPED);
}

void bench_doctor_print(const struct bench_doctor_report *report, enum bench_print which,
                        FILE *file)
{
    const struct bench_findings *findings = &report->doctor->findings;
    /* Open MPI gives its processes a terminal even if its own output goes to a file. */
    const bool has_colours = report->doctor->launcher.n_processes == 1 &&
                             isatty(fileno(file)) == 1 && getenv("NO_COLOR") == NULL;
    char summary[128];
    fprintf(file, "gyre doctor on %s\n", report->hosts);
    for (int i = 0; i < findings->n; i++)
        if (is_printed(&findings->list[i], which))
            print_finding(&findings->list[i], has_colours, file);
    if (which == BENCH_PRINT_USUAL && report->n_by_severity[BENCH_SKIPPED] > 0)
        fprintf(file, "  skipped  %d checks do not apply here; --all prints each with its reason\n",
                report->n_by_severity[BENCH_SKIPPED]);
    print_matrix(&report->doctor->gpus, file);
    print_matrix(&report->doctor->hosts, file);
    print_matrix(&report->doctor->rails, file);
    fprintf(file, "%s\n", bench_doctor_summary(report, summary, sizeof(summary)));
}
