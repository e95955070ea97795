/* SPDX-License-Identifier: Apache-2.0
 *
 * Findings as text, Markdown, HTML and JSON (doctor.schema.json).
 */
#include "bench/command/version.h"
#include "bench/doctor/doctor.h"
#include "core/foundation/base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef GYRE_BENCH_WITH_JSON
#include "bench/report/json_add.h"
#endif

const char *bench_doctor_summary(const struct bench_doctor_report *report, char *text_out,
                                 size_t text_bytes)
{
    const int *n = report->n_by_severity;
    snprintf(text_out, text_bytes, "%d fail, %d warn, %d unknown, %d ok, %d skipped", n[BENCH_FAIL],
             n[BENCH_WARN], n[BENCH_UNKNOWN], n[BENCH_OK], n[BENCH_SKIPPED]);
    return text_out;
}

/* A link omits the heading's dots. */
const char *bench_finding_doc(const struct bench_finding *finding, char *text_out)
{
    size_t used = (size_t)snprintf(text_out, 96, "docs/doctor.md#");
    for (const char *at = bench_checks[finding->check].id; *at != '\0' && used + 1 < 96; at++)
        if (*at != '.')
            text_out[used++] = *at;
    text_out[used] = '\0';
    return text_out;
}

const char *bench_severity_name(int severity)
{
    static const char *const names[BENCH_N_SEVERITIES] = {"ok", "skipped", "unknown", "warn",
                                                          "fail"};
    return names[severity];
}

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
    fprintf(file, "%*ssee: %s\n", 13, "", bench_finding_doc(finding, doc));
}

static bool is_printed(const struct bench_finding *finding, enum bench_print which)
{
    return which == BENCH_PRINT_ALL || finding->severity >= BENCH_UNKNOWN ||
           (which == BENCH_PRINT_ROWS && finding->severity == BENCH_OK);
}

/* "host: memlock, nofile, shm". */
static void print_groups(const struct bench_findings *findings, FILE *file)
{
    char names[512] = "", group[16] = "";
    int n = 0;
    for (int check = 0; check <= BENCH_N_CHECKS; check++) {
        const char *id = check < BENCH_N_CHECKS ? bench_checks[check].id : "";
        const size_t n_group = strcspn(id, ".");
        if (strlen(group) != n_group || strncmp(group, id, n_group) != 0) {
            if (n > 0)
                fprintf(file, "  ok       %-22s %d check%s: %s\n", group, n, n == 1 ? "" : "s",
                        names);
            snprintf(group, sizeof(group), "%.*s", (int)n_group, id);
            names[0] = '\0';
            n = 0;
        }
        int worst = -1;
        for (int i = 0; i < findings->n; i++)
            if (findings->list[i].check == check && findings->list[i].severity > worst &&
                findings->list[i].severity != BENCH_SKIPPED)
                worst = findings->list[i].severity;
        if (worst != BENCH_OK)
            continue;
        bench_append(names, sizeof(names), "%s%s", n++ > 0 ? ", " : "", id + n_group + 1);
    }
}

void bench_doctor_print(const struct bench_doctor_report *report, enum bench_print which,
                        FILE *file)
{
    const struct bench_findings *findings = &report->doctor->findings;
    const int n_skipped = report->n_by_severity[BENCH_SKIPPED];
    /* Open MPI's processes have a terminal even if its output goes to a file. */
    const bool has_colours = report->doctor->launcher.n_processes == 1 &&
                             isatty(fileno(file)) == 1 && getenv("NO_COLOR") == NULL;
    char summary[128];
    fprintf(file, "gyre doctor on %s\n", report->hosts);
    for (int i = 0; i < findings->n; i++)
        if (is_printed(&findings->list[i], which))
            print_finding(&findings->list[i], has_colours, file);
    if (which == BENCH_PRINT_GROUPS)
        print_groups(findings, file);
    if ((which == BENCH_PRINT_GROUPS || which == BENCH_PRINT_ROWS) && n_skipped > 0)
        fprintf(file, "  skipped  %d checks do not apply here; --all prints each with its reason\n",
                n_skipped);
    bench_matrix_put(file, BENCH_AS_TEXT, &report->doctor->gpus);
    bench_matrix_put(file, BENCH_AS_TEXT, &report->doctor->hosts);
    bench_matrix_put(file, BENCH_AS_TEXT, &report->doctor->rails);
    fprintf(file, "%s\n", bench_doctor_summary(report, summary, sizeof(summary)));
}

void bench_doctor_print_env(const struct bench_doctor_report *report, FILE *file)
{
    const struct bench_doctor *doctor = report->doctor;
    const struct bench_machine *machine = &doctor->machine;
    const struct bench_netdev *first = bench_net_first(machine);
    const char *ifname = NULL, *class = NULL;
    double most = 0;
    int n_taken = 0;
    fprintf(file, "# gyre doctor --emit-env on %s\n", report->hosts);
    for (int i = 0; i < doctor->findings.n; i++) {
        const struct bench_finding *finding = &doctor->findings.list[i];
        if (strncmp(finding->fix, "unset ", 6) == 0 &&
            strcspn(finding->fix + 6, " :,") == strlen(finding->fix + 6))
            fprintf(file, "%s # %s\n", finding->fix, bench_checks[finding->check].id);
        if (strncmp(finding->fix, "export GYRE_SOCKET_IFNAME=", 26) == 0)
            ifname = finding->fix + 26;
        if (strncmp(finding->fix, "export GYRE_IB_TC=", 18) == 0 && class == NULL)
            fprintf(file, "%s # %s\n", class = finding->fix, bench_checks[finding->check].id);
    }
    if (ifname != NULL || first != NULL)
        fprintf(file, "export GYRE_SOCKET_IFNAME==%s\n", ifname != NULL ? ifname : first->name);
    for (int i = 0; i < machine->n_ports; i++)
        if (machine->ports[i].is_active && machine->ports[i].why_unused[0] == '\0' &&
            machine->ports[i].gbit_per_s > most)
            most = machine->ports[i].gbit_per_s;
    for (int i = 0; i < machine->n_ports; i++) {
        const struct bench_rdma_port *port = &machine->ports[i];
        if (port->is_active && !port->is_soft && port->why_unused[0] == '\0' &&
            port->gbit_per_s >= most)
            fprintf(file, "%s%s", n_taken++ == 0 ? "export GYRE_IB_HCA==" : ",", port->name);
    }
    if (n_taken > 0)
        fputs("\n", file);
}

/* A bar would end the cell, a newline the table. */
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
            bench_finding_doc(finding, doc));
}

void bench_doctor_put_markdown(FILE *file, const struct bench_doctor_report *report)
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
    bench_matrix_put(file, BENCH_AS_MARKDOWN, &report->doctor->gpus);
    bench_matrix_put(file, BENCH_AS_MARKDOWN, &report->doctor->hosts);
    bench_matrix_put(file, BENCH_AS_MARKDOWN, &report->doctor->rails);
}

/* One HTML file that loads nothing. */

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width\"><title>gyre doctor</title>\n"
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
    "@media(max-width:60em){table{display:block;overflow-x:auto}}\n"
    "</style></head><body>\n";

/* gyre_text_put_markup() would make line ends blanks. */
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

static void put_row(FILE *file, const struct bench_finding *finding)
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
    /* The worst on top, then by check. */
    for (size_t k = 0; k < BENCH_N_SEVERITIES; k++)
        for (int i = 0; i < findings->n; i++)
            if (findings->list[i].severity == (int32_t)order[k])
                put_row(file, &findings->list[i]);
    fputs("</table>\n", file);
    bench_matrix_put(file, BENCH_AS_HTML, &report->doctor->gpus);
    bench_matrix_put(file, BENCH_AS_HTML, &report->doctor->hosts);
    bench_matrix_put(file, BENCH_AS_HTML, &report->doctor->rails);
    fputs("</body></html>\n", file);
}

#ifdef GYRE_BENCH_WITH_JSON

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
    add_text(object, "doc", bench_finding_doc(finding, doc));
    json_object_array_add(list, object);
}

/* null = not measured. */
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
    const int n = matrix->n, slow = bench_matrix_rates(matrix).slow;
    if (n == 0) {
        json_object_object_add(object, key, NULL);
        return;
    }
    struct json_object *child = add_object(object, key);
    struct json_object *names = add_array(child, "names");
    for (int i = 0; i < n; i++)
        json_object_array_add(names, json_text(matrix->names[i]));
    struct json_object *rails = add_array(child, "rails");
    struct json_object *lines = add_array(child, "line_gbytes_per_s");
    for (int i = 0; i < n; i++) {
        json_object_array_add(rails, json_object_new_int(matrix->rails[i]));
        json_object_array_add(lines, matrix->line_gbytes_per_s[i] > 0
                                         ? json_object_new_double(matrix->line_gbytes_per_s[i])
                                         : NULL);
    }
    add_rows(child, "gbytes_per_s", matrix->gbytes_per_s, matrix->n);
    add_rows(child, "latency_us", matrix->latency_us, matrix->n);
    struct json_object *slowest = add_array(child, "slowest");
    if (slow >= 0) {
        json_object_array_add(slowest, json_text(matrix->names[slow / n]));
        json_object_array_add(slowest, json_text(matrix->names[slow % n]));
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
