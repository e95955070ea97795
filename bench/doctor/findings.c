/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of findings, and how checks add to it.
 */
#include "bench/doctor/doctor.h"
#include "core/foundation/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct bench_check bench_checks[BENCH_N_CHECKS] = {
#define X(group, name, title) {#group "." #name, title, bench_check_##group##_##name},
#include "bench/doctor/check_table.h"
#undef X
};

bool bench_findings_add(struct bench_findings *findings, const struct bench_finding *finding)
{
    if (findings->n == findings->n_allocated) {
        const int n_allocated = 2 * findings->n_allocated + 16;
        struct bench_finding *list =
            realloc(findings->list, (size_t)n_allocated * sizeof(*findings->list));
        if (list == NULL)
            return false;
        findings->list = list;
        findings->n_allocated = n_allocated;
    }
    findings->list[findings->n++] = *finding;
    return true;
}

/* Make a text safe to print. Files of a broken machine may hold any bytes, so bytes that a terminal
 * or a JSON reader could misread become question marks. */
static void clean(char *text)
{
    for (; *text != '\0'; text++)
        if (!gyre_text_is_printable(*text) && *text != '\n')
            *text = *text == '\t' ? ' ' : '?';
}

void bench_say(struct bench_doctor *doctor, enum bench_severity severity, const char *subject,
               const char *fix, const char *format, ...)
{
    struct bench_finding finding;
    va_list arguments;
    memset(&finding, 0, sizeof(finding));
    finding.check = (int32_t)doctor->check;
    finding.severity = (int32_t)severity;
    snprintf(finding.subject, sizeof(finding.subject), "%s", subject == NULL ? "" : subject);
    snprintf(finding.fix, sizeof(finding.fix), "%s", fix == NULL ? "" : fix);
    va_start(arguments, format);
    vsnprintf(finding.evidence, sizeof(finding.evidence), format, arguments);
    va_end(arguments);
    clean(finding.subject);
    clean(finding.fix);
    clean(finding.evidence);
    if (!bench_findings_add(&doctor->findings, &finding))
        doctor->is_out_of_memory = true;
}

void bench_say_unreadable(struct bench_doctor *doctor, const char *subject, const char *path,
                          enum bench_read result)
{
    if (result == BENCH_READ_DENIED)
        bench_say(doctor, BENCH_UNKNOWN, subject, "run gyre doctor as root",
                  "%s: no permission to read it", path);
    else
        bench_say(doctor, BENCH_UNKNOWN, subject, NULL, "%s: %s", path,
                  result == BENCH_READ_ABSENT ? "there is no such file"
                                              : "its content is not understood");
}

int bench_said(const struct bench_doctor *doctor)
{
    int worst = -1;
    for (int i = 0; i < doctor->findings.n; i++)
        if (doctor->findings.list[i].check == (int32_t)doctor->check &&
            doctor->findings.list[i].severity > worst)
            worst = doctor->findings.list[i].severity;
    return worst;
}

void bench_set_fact(struct bench_doctor *doctor, enum bench_fact_id fact, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(doctor->facts.texts[fact], sizeof(doctor->facts.texts[fact]), format, arguments);
    va_end(arguments);
    clean(doctor->facts.texts[fact]);
}

void bench_set_host(struct bench_doctor *doctor)
{
    char *name = doctor->facts.host;
    if (bench_read_text(doctor->root, "/proc/sys/kernel/hostname", name,
                        sizeof(doctor->facts.host)) != BENCH_READ_OK)
        snprintf(name, sizeof(doctor->facts.host), "a host without a name");
    clean(name);
}

const char *bench_variable(const struct bench_doctor *doctor, const char *name)
{
    const size_t n_name = strlen(name);
    for (char *const *entry = doctor->environment; *entry != NULL; entry++)
        if (strncmp(*entry, name, n_name) == 0 && (*entry)[n_name] == '=')
            return *entry + n_name + 1;
    return NULL;
}

static int compare_findings(const void *a, const void *b)
{
    const struct bench_finding *x = a, *y = b;
    if (x->check != y->check)
        return x->check < y->check ? -1 : 1;
    if (x->severity != y->severity)
        return x->severity > y->severity ? -1 : 1;
    const int subjects = strverscmp(x->subject, y->subject);
    return subjects != 0 ? subjects : strcmp(x->evidence, y->evidence);
}

void bench_findings_sort(struct bench_findings *findings)
{
    if (findings->n > 1)
        qsort(findings->list, (size_t)findings->n, sizeof(*findings->list), compare_findings);
}

int bench_findings_exit_status(const struct bench_findings *findings)
{
    bool has[BENCH_N_SEVERITIES] = {false};
    for (int i = 0; i < findings->n; i++)
        has[findings->list[i].severity] = true;
    return has[BENCH_FAIL] ? 2 : has[BENCH_WARN] ? 1 : has[BENCH_UNKNOWN] ? 3 : 0;
}

/* A link names a heading without its dots. */
const char *bench_finding_doc(const struct bench_finding *finding, char *text_out,
                              size_t text_bytes)
{
    size_t used = (size_t)snprintf(text_out, text_bytes, "docs/doctor.md#");
    for (const char *at = bench_checks[finding->check].id; *at != '\0' && used + 1 < text_bytes;
         at++)
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
