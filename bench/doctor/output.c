/* SPDX-License-Identifier: Apache-2.0
 *
 * Findings as text, Markdown, HTML and JSON (doctor.schema.json).
 */
#include "bench/command/command.h"
#include "bench/doctor/doctor.h"
#include "core/foundation/base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef GYRE_BENCH_WITH_JSON
#include "bench/report/json_add.h"
#endif

static const char *const severity_names[] = {"ok", "skipped", "unknown", "warn", "fail"};
static const char *const colours[] = {"\033[32m", "\033[2m", "\033[35m", "\033[33m", "\033[31m"};

/* "docs/doctor.md#hostmemlock": a link omits the heading's dots. */
static const char *page_of(const struct bench_finding *finding)
{
    char *text = bench_text("docs/doctor.md#%s", bench_checks[finding->check].id);
    char *dot = strrchr(text, '.');
    memmove(dot, dot + 1, strlen(dot));
    return text;
}

static void put_matrices(FILE *file, enum bench_format format, const struct bench_doctor *doctor)
{
    bench_matrix_put(file, format, &doctor->gpus);
    bench_matrix_put(file, format, &doctor->hosts);
    bench_matrix_put(file, format, &doctor->rails);
}

static void print_lines(FILE *file, int indent, const char *text)
{
    int n_blanks = 0;
    BENCH_EACH_LINE(bench_text("%s", text), line)
    {
        fprintf(file, "%*s%s\n", n_blanks, "", line);
        n_blanks = indent;
    }
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
        gyre_text_append(names, sizeof(names), "%s%s", n++ > 0 ? ", " : "", id + n_group + 1);
    }
}

void bench_doctor_print(const struct bench_doctor *doctor, enum bench_print which, FILE *file)
{
    const struct bench_findings *findings = &doctor->findings;
    const int n_skipped = doctor->n_by_severity[BENCH_SKIPPED];
    /* Open MPI's processes have a terminal even if its output goes to a file. */
    const bool has_colours = doctor->launcher.n_processes == 1 && isatty(fileno(file)) == 1 &&
                             getenv("NO_COLOR") == NULL;
    const enum bench_severity least = which == BENCH_PRINT_ALL ? BENCH_OK : BENCH_UNKNOWN;
    fprintf(file, "gyre doctor on %s\n", doctor->host_names);
    for (int i = 0; i < findings->n; i++)
        if (findings->list[i].severity >= (int32_t)least ||
            (which == BENCH_PRINT_ROWS && findings->list[i].severity == BENCH_OK)) {
            const struct bench_finding *finding = &findings->list[i];
            fprintf(file, "  %s%-8s%s %-22s ", has_colours ? colours[finding->severity] : "",
                    severity_names[finding->severity], has_colours ? "\033[0m" : "",
                    bench_checks[finding->check].id);
            if (finding->ranks[0] != '\0')
                fprintf(file, "[rank %s] ", finding->ranks);
            if (finding->subject[0] != '\0')
                fprintf(file, "%s: ", finding->subject);
            print_lines(file, 13, finding->evidence);
            if (finding->severity >= BENCH_UNKNOWN) {
                if (finding->fix[0] != '\0') {
                    fprintf(file, "%*sfix: ", 13, "");
                    print_lines(file, 18, finding->fix);
                }
                fprintf(file, "%*ssee: %s\n", 13, "", page_of(finding));
            }
        }
    if (which == BENCH_PRINT_GROUPS)
        print_groups(findings, file);
    if ((which == BENCH_PRINT_GROUPS || which == BENCH_PRINT_ROWS) && n_skipped > 0)
        fprintf(file, "  skipped  %d checks do not apply here; --all prints each with its reason\n",
                n_skipped);
    put_matrices(file, BENCH_AS_TEXT, doctor);
    fprintf(file, "%s\n", doctor->summary);
}

void bench_doctor_print_env(const struct bench_doctor *doctor, FILE *file)
{
    const struct bench_machine *machine = &doctor->machine;
    const struct bench_netdev *first = bench_net_first(machine);
    const char *ifname = NULL, *class = NULL;
    double most = 0;
    int n_taken = 0;
    fprintf(file, "# gyre doctor --emit-env on %s\n", doctor->host_names);
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
        if (strchr("|\\`<*", *text) != NULL)
            fputc('\\', file);
        if (*text == '\n')
            fputs("<br>", file);
        else
            fputc(*text, file);
    }
}

void bench_doctor_put_markdown(FILE *file, const struct bench_doctor *doctor)
{
    const struct bench_findings *findings = &doctor->findings;
    fprintf(file, "# gyre doctor: %s\n\ngyre %s (%s) on %s\n\n", doctor->summary,
            bench_version_text(), bench_version_commit(), doctor->host_names);
    for (int i = 0; i < findings->n; i++) {
        const struct bench_finding *finding = &findings->list[i];
        if (finding->severity < BENCH_UNKNOWN)
            continue;
        fprintf(file, "- **%s** `%s`%s%s", severity_names[finding->severity],
                bench_checks[finding->check].id, finding->ranks[0] != '\0' ? ", rank " : "",
                finding->ranks);
        if (finding->subject[0] != '\0')
            fprintf(file, ", `%s`", finding->subject);
        fputs("\n\n", file);
        BENCH_EACH_LINE(bench_text("%s", finding->evidence), line)
        fprintf(file, "      %s\n", line);
        if (finding->fix[0] != '\0')
            fprintf(file, "\n  Fix: `%s`\n", finding->fix);
        fprintf(file, "\n  See [%s](%s)\n\n", bench_checks[finding->check].title, page_of(finding));
    }
    fputs("| check | | rank | of | evidence |\n|---|---|---|---|---|\n", file);
    for (int i = 0; i < findings->n; i++) {
        const struct bench_finding *finding = &findings->list[i];
        fprintf(file, "| `%s` | %s | %s | ", bench_checks[finding->check].id,
                severity_names[finding->severity], finding->ranks);
        put_cell(file, finding->subject);
        fputs(" | ", file);
        put_cell(file, finding->evidence);
        fputs(" |\n", file);
    }
    put_matrices(file, BENCH_AS_MARKDOWN, doctor);
}

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width\"><title>gyre doctor</title>\n"
    "<style>\n"
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;"
    "color:#1c2330;background:#fff}\n"
    "table{border-collapse:collapse;margin:1em 0}th,td{border:1px solid #d5dae2;padding:.35em .6em;"
    "text-align:left;vertical-align:top}th{background:#f2f4f8}\n"
    "pre{margin:0;white-space:pre-wrap;font:13px/1.4 ui-monospace,monospace}"
    ".f pre,.f td{overflow-wrap:anywhere}.f td:nth-child(-n+4){overflow-wrap:normal}\n"
    "@media(min-width:60em){.f td:nth-child(5){width:42%}.f td:last-child{width:25%}}\n"
    ".s{font-weight:600;white-space:nowrap}.ok .s{color:#18794e}.skipped{color:#6b7280}"
    ".unknown .s{color:#8e4ec6}.warn .s{color:#ad5700}.fail .s{color:#c62a2f}"
    ".warn{background:#fff8ec}.fail{background:#fff0ef}\n"
    ".heat td{text-align:right;font-variant-numeric:tabular-nums}\n"
    "@media(max-width:60em){.heat{display:block;overflow-x:auto}.f th,.f br{display:none}"
    ".f,.f tbody,.f tr,.f td{display:block;border:0;padding:0}"
    ".f tr{border-top:1px solid #d5dae2;padding:.5em}.f small{margin-left:.7em}"
    ".f td:nth-child(-n+4){display:inline;margin-right:.7em}"
    ".f td:last-child pre:not(:empty)::before{content:'fix: '}}\n"
    "@media(prefers-color-scheme:dark){body{background:#15171b;color:#eceef2}"
    "th,td,.f tr{border-color:#4a505c}th{background:#1d2026}td[style]{color:#1c2330}"
    ".ok .s{color:#59d6ad}.skipped{color:#a4abb8}.unknown .s{color:#c9a3f0}.warn .s{color:#ffb454}"
    ".fail .s{color:#ff8a80}.warn{background:#2a2114}.fail{background:#2d1715}}\n"
    "</style></head><body>\n";

/* gyre_text_put_markup() would make line ends blanks. */
static void put_lines(const char *text, FILE *file)
{
    const char *before = "";
    BENCH_EACH_LINE(bench_text("%s", text), line)
    {
        fputs(before, file);
        gyre_text_put_markup(file, line);
        before = "\n";
    }
}

void bench_doctor_put_html(FILE *file, const struct bench_doctor *doctor)
{
    static const enum bench_severity order[BENCH_N_SEVERITIES] = {
        BENCH_FAIL, BENCH_WARN, BENCH_UNKNOWN, BENCH_OK, BENCH_SKIPPED};
    const struct bench_findings *findings = &doctor->findings;
    fputs(head, file);
    fprintf(file, "<h1>gyre doctor: %s</h1>\n<p>gyre %s (%s) on ", doctor->summary,
            bench_version_text(), bench_version_commit());
    gyre_text_put_markup(file, doctor->host_names);
    fputs("</p>\n<table "
          "class=\"f\"><tr><th></th><th>check</th><th>rank</th><th>of</th><th>evidence</th>"
          "<th>fix</th></tr>\n",
          file);
    /* The worst on top, then by check. */
    for (int k = 0; k < BENCH_N_SEVERITIES * findings->n; k++) {
        const struct bench_finding *finding = &findings->list[k % findings->n];
        const char *severity = severity_names[finding->severity],
                   *id = bench_checks[finding->check].id;
        if (finding->severity != (int32_t)order[k / findings->n])
            continue;
        fprintf(file, "<tr class=\"%s\" id=\"%s\"><td class=\"s\">%s</td><td>%s<br><small>",
                severity, id, severity, id);
        gyre_text_put_markup(file, bench_checks[finding->check].title);
        fprintf(file, "</small></td><td>%s</td><td>", finding->ranks);
        gyre_text_put_markup(file, finding->subject);
        fputs("</td><td><pre>", file);
        put_lines(finding->evidence, file);
        fputs("</pre></td><td><pre>", file);
        put_lines(finding->fix, file);
        fputs("</pre>", file);
        if (finding->severity >= BENCH_UNKNOWN)
            gyre_text_put_markup(file, page_of(finding));
        fputs("</td></tr>\n", file);
    }
    fputs("</table>\n", file);
    put_matrices(file, BENCH_AS_HTML, doctor);
    fputs("</body></html>\n", file);
}

#ifdef GYRE_BENCH_WITH_JSON

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

gyre_status bench_doctor_write_json(const struct bench_doctor *doctor, const char *path)
{
    const struct bench_findings *findings = &doctor->findings;
    struct json_object *root = json_object_new_object();
    add_int(root, "schema_version", 1);
    add_text(root, "gyre_version", bench_version_text());
    add_text(root, "commit", bench_version_commit());
    add_time(root, "time");
    add_text(root, "hosts", doctor->host_names);
    add_int(root, "exit_status", doctor->exit_status);
    struct json_object *checks = add_array(root, "checks");
    for (int i = 0; i < findings->n; i++) {
        const struct bench_finding *finding = &findings->list[i];
        struct json_object *object = json_object_new_object();
        add_text(object, "id", bench_checks[finding->check].id);
        add_text(object, "severity", severity_names[finding->severity]);
        add_text(object, "subject", finding->subject);
        add_text(object, "ranks", finding->ranks);
        add_text(object, "evidence", finding->evidence);
        add_text(object, "fix", finding->fix);
        add_text(object, "doc", page_of(finding));
        json_object_array_add(checks, object);
    }
    struct json_object *matrix = add_object(root, "matrix");
    add_matrix(matrix, "gpus", &doctor->gpus);
    add_matrix(matrix, "hosts", &doctor->hosts);
    add_matrix(matrix, "rails", &doctor->rails);
    const gyre_status status = bench_json_write(root, path);
    json_object_put(root);
    return status;
}

#else

gyre_status bench_doctor_write_json(const struct bench_doctor *doctor, const char *path)
{
    (void)doctor;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--json %s: built without json-c; install libjson-c-dev and build again",
                     path);
}

#endif
