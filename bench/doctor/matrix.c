/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/text.h"

#include <math.h>
#include <string.h>

void bench_matrix_open(struct bench_matrix *matrix, int n, const char *what)
{
    const size_t n_rows = (size_t)n, n_cells = n_rows * n_rows;
    matrix->what = what;
    matrix->names = bench_keep(n_rows, sizeof(*matrix->names));
    matrix->rails = bench_keep(n_rows, sizeof(*matrix->rails));
    matrix->latency_us = bench_keep(n_cells, sizeof(double));
    matrix->gbytes_per_s = bench_keep(n_cells, sizeof(double));
    matrix->line_gbytes_per_s = bench_keep(n_rows, sizeof(double));
    for (size_t i = 0; i < n_cells; i++)
        matrix->latency_us[i] = matrix->gbytes_per_s[i] = (double)NAN;
}

/* GB/s of the slower of both lines, 0 = unknown. */
static double line_of(const struct bench_matrix *matrix, int pair)
{
    return fmin(matrix->line_gbytes_per_s[pair / matrix->n],
                matrix->line_gbytes_per_s[pair % matrix->n]);
}

/* If all lines are known, pairs are compared by their share of it, so that a slow port in full use
 * is not slow. */
struct bench_matrix_rates bench_matrix_rates(const struct bench_matrix *matrix)
{
    struct bench_matrix_rates rates = {.slow = -1, .fast = -1};
    double low = INFINITY, high = -INFINITY;
    bool has_lines = true;
    for (int i = 0; i < matrix->n * matrix->n; i++)
        has_lines = has_lines && (isnan(matrix->gbytes_per_s[i]) || line_of(matrix, i) > 0);
    for (int i = 0; i < matrix->n * matrix->n; i++) {
        const double rate = matrix->gbytes_per_s[i] / (has_lines ? line_of(matrix, i) : 1);
        if (isnan(matrix->gbytes_per_s[i]))
            continue;
        rates.n_measured++;
        rates.slow = rate < low ? i : rates.slow;
        rates.fast = rate > high ? i : rates.fast;
        low = fmin(low, rate);
        high = fmax(high, rate);
    }
    rates.is_slow = rates.slow >= 0 && (low < high / 2 || (has_lines && low < 0.5));
    return rates;
}

void bench_matrix_judge(struct bench_doctor *doctor, const struct bench_matrix *matrix,
                        const char *fix, const char *rest)
{
    const struct bench_matrix_rates rates = bench_matrix_rates(matrix);
    const int n = matrix->n, slow = rates.slow, fast = rates.fast;
    char bound[64] = "";
    if (slow < 0)
        return;
    const double rate = matrix->gbytes_per_s[slow], line = line_of(matrix, slow);
    if (line > 0)
        snprintf(bound, sizeof(bound), " (%.0f %% of %.4g that the line carries)",
                 100 * rate / line, line);
    bench_say(doctor, rates.is_slow ? BENCH_WARN : BENCH_OK, NULL, fix,
              "slowest: %s to %s, %.4g GB/s%s, %.4g us; fastest: %s to %s, %.4g GB/s; %s",
              matrix->names[slow / n], matrix->names[slow % n], rate, bound,
              matrix->latency_us[slow], matrix->names[fast / n], matrix->names[fast % n],
              matrix->gbytes_per_s[fast], rest);
}

/* Words around titles, names and cells. */
static const struct style {
    const char *begin, *colon, *corner, *heading, *behind_heading, *row, *behind_name, *end;
    const char *latency;
} styles[] = {
    [BENCH_AS_TEXT] = {"", ": ", "\n    ", " ", "", "\n    ", "", "\n", "latency in microseconds"},
    [BENCH_AS_MARKDOWN] = {"\n", ", ", ":\n\n| from \\\\ to |", " ", " |", "\n| ", " |", "\n",
                           "latency in us"},
    [BENCH_AS_HTML] = {"<h2>", ": ", "</h2>\n<table class=\"heat\"><tr><th>from \\ to</th>", "<th>",
                       "</th>", "</tr>\n<tr><th>", "</th>", "</tr></table>\n",
                       "latency in microseconds"},
};

static void put_name(FILE *file, enum bench_format format, const char *name, int width)
{
    if (format == BENCH_AS_HTML)
        gyre_text_put_markup(file, name);
    else
        fprintf(file, "%*s", format == BENCH_AS_TEXT ? width : 0, name);
}

/* "12.1", and for bandwidths with a known line "12.1 (97 %)". */
static const char *cell_text(const struct bench_matrix *matrix, const double *values, int pair,
                             char *text_out, size_t text_bytes)
{
    const double value = values[pair], line = line_of(matrix, pair);
    if (pair / matrix->n == pair % matrix->n)
        return "-";
    if (isnan(value))
        return "?";
    snprintf(text_out, text_bytes, "%.4g", value);
    if (values == matrix->gbytes_per_s && line > 0)
        gyre_text_append(text_out, text_bytes, " (%.0f %%)", 100 * value / line);
    return text_out;
}

static void put_cell(FILE *file, enum bench_format format, const char *text, int width, int hue)
{
    const bool is_own = strcmp(text, "-") == 0;
    if (format == BENCH_AS_TEXT)
        fprintf(file, " %*s", width, text);
    else if (format == BENCH_AS_MARKDOWN)
        fprintf(file, "%s%s |", is_own ? "" : " ", is_own ? "" : text);
    else if (is_own || hue < 0)
        fprintf(file, "<td>%s</td>", is_own ? "" : text);
    else
        fprintf(file, "<td style=\"background:hsl(%d,70%%,82%%)\">%s</td>", hue, text);
}

/* In HTML the worst pair is red, the best green. */
static void put_values(FILE *file, enum bench_format format, const struct bench_matrix *matrix,
                       int rail, bool is_rate)
{
    const struct style *style = &styles[format];
    const double *values = is_rate ? matrix->gbytes_per_s : matrix->latency_us;
    const int n = matrix->n;
    double low = INFINITY, high = -INFINITY;
    char text[64];
    int width = 12;
    for (int i = 0; i < n * n; i++) {
        if (matrix->rails[i / n] != rail || matrix->rails[i % n] != rail)
            continue;
        low = fmin(low, values[i]); /* takes the number of NAN and a number */
        high = fmax(high, values[i]);
        const int n_text = (int)strlen(cell_text(matrix, values, i, text, sizeof(text)));
        const int n_name = (int)strlen(matrix->names[i / n]);
        width = n_text > width ? n_text : n_name > width ? n_name : width;
    }
    fprintf(file, "%s%s", format == BENCH_AS_TEXT && is_rate ? "\n" : style->begin, matrix->what);
    if (matrix->has_rails)
        fprintf(file, ", rail %d", rail);
    fprintf(file, "%s%s%s%s", style->colon, is_rate ? "GB/s" : style->latency,
            is_rate && matrix->line_gbytes_per_s[0] > 0 ? " (of the line)" : "", style->corner);
    if (format == BENCH_AS_TEXT)
        fprintf(file, "%-*s", width, "from \\ to");
    for (int j = 0; j < n; j++)
        if (matrix->rails[j] == rail) {
            fputs(style->heading, file);
            put_name(file, format, matrix->names[j], width);
            fputs(style->behind_heading, file);
        }
    if (format == BENCH_AS_MARKDOWN) {
        fputs("\n|---|", file);
        for (int j = 0; j < n; j++)
            fputs(matrix->rails[j] == rail ? "---|" : "", file);
    }
    for (int i = 0; i < n; i++) {
        if (matrix->rails[i] != rail)
            continue;
        fputs(style->row, file);
        put_name(file, format, matrix->names[i], -width);
        fputs(style->behind_name, file);
        for (int j = 0; j < n; j++) {
            const int pair = i * n + j;
            const double place = high > low ? (values[pair] - low) / (high - low) : 1;
            if (matrix->rails[j] == rail)
                put_cell(file, format, cell_text(matrix, values, pair, text, sizeof(text)), width,
                         isnan(values[pair])
                             ? -1
                             : (int)(120 * (is_rate || high <= low ? place : 1 - place)));
        }
    }
    fputs(style->end, file);
}

void bench_matrix_put(FILE *file, enum bench_format format, const struct bench_matrix *matrix)
{
    const int n = matrix->n, slow = n == 0 ? -1 : bench_matrix_rates(matrix).slow;
    int n_rows[BENCH_MAX_RAILS] = {0};
    for (int i = 0; i < n; i++)
        n_rows[matrix->rails[i]]++;
    for (int rail = 0; rail < BENCH_MAX_RAILS; rail++) {
        if (n_rows[rail] < 2)
            continue;
        put_values(file, format, matrix, rail, true);
        put_values(file, format, matrix, rail, false);
    }
    if (slow < 0)
        return;
    const char *from = matrix->names[slow / n], *to = matrix->names[slow % n];
    if (format == BENCH_AS_TEXT) {
        fprintf(file, "slowest: %s to %s, %.4g GB/s\n", from, to, matrix->gbytes_per_s[slow]);
    } else if (format == BENCH_AS_MARKDOWN) {
        fprintf(file, "\nSlowest: %s to %s.\n", from, to);
    } else {
        fputs("<p>Slowest pair: <b>", file);
        gyre_text_put_markup(file, from);
        fputs("</b> to <b>", file);
        gyre_text_put_markup(file, to);
        fputs("</b></p>\n", file);
    }
}
