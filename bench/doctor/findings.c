/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool bench_findings_add(struct bench_findings *findings, const struct bench_finding *finding)
{
    void *list = bench_grow(findings->list, findings->n, sizeof(*findings->list));
    if (list == NULL)
        return false;
    findings->list = list;
    findings->list[findings->n++] = *finding;
    return true;
}

void bench_text_clean(char *text)
{
    for (; *text != '\0'; text++)
        if (!gyre_text_is_printable(*text) && *text != '\n')
            *text = *text == '\t' ? ' ' : '?';
}

static void mark_cut(char *text, size_t text_bytes, size_t used, int n)
{
    if (n > 0 && used + (size_t)n >= text_bytes && text_bytes > 4)
        memcpy(text + text_bytes - 4, "...", 4);
}

void bench_append(char *text, size_t text_bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text + used, text_bytes - used, format, arguments);
    va_end(arguments);
    mark_cut(text, text_bytes, used, n);
}

/* @unknown: appended if the text has NETDEV and the interface is unknown. */
static const char *put_names(const char *fix, const char *device, const char *netdev,
                             const char *unknown, char *text_out)
{
    const char *const words[] = {"NETDEV", "DEVICE"}, *const names[] = {netdev, device};
    const bool is_unknown = netdev[0] == '\0' && strstr(fix, words[0]) != NULL;
    text_out[0] = '\0';
    while (*fix != '\0') {
        const char *name = NULL;
        for (int i = 0; i < 2 && name == NULL; i++)
            if (names[i] != NULL && names[i][0] != '\0' &&
                strncmp(fix, words[i], strlen(words[i])) == 0) {
                name = names[i];
                fix += strlen(words[i]);
            }
        if (name != NULL)
            bench_append(text_out, BENCH_FIX_BYTES, "%s", name);
        else
            bench_append(text_out, BENCH_FIX_BYTES, "%c", *fix++);
    }
    if (is_unknown)
        bench_append(text_out, BENCH_FIX_BYTES, "%s", unknown);
    return text_out;
}

const char *bench_fix_of_port(const char *fix, const char *device, const char *netdev,
                              char *text_out)
{
    return put_names(fix, device, netdev,
                     " (NETDEV is the interface of the port: rdma link show names it)", text_out);
}

const char *bench_fix_of_interface(const char *fix, const char *netdev, char *text_out)
{
    return put_names(fix, NULL, netdev,
                     " (NETDEV is an interface of this host: ip link lists them)", text_out);
}

/* @subject: may be a port or an interface. */
static void put_subject(const struct bench_machine *machine, const char *subject, const char *fix,
                        char *text_out)
{
    for (int i = 0; i < machine->n_ports; i++)
        if (strcmp(machine->ports[i].name, subject) == 0) {
            bench_fix_of_port(fix, machine->ports[i].device, machine->ports[i].netdev, text_out);
            return;
        }
    if (bench_net_find(machine, subject) != NULL)
        bench_fix_of_interface(fix, subject, text_out);
    else
        snprintf(text_out, BENCH_FIX_BYTES, "%s", fix);
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
    put_subject(&doctor->machine, finding.subject, fix == NULL ? "" : fix, finding.fix);
    va_start(arguments, format);
    const int n = vsnprintf(finding.evidence, sizeof(finding.evidence), format, arguments);
    va_end(arguments);
    mark_cut(finding.evidence, sizeof(finding.evidence), 0, n);
    bench_text_clean(finding.subject);
    bench_text_clean(finding.fix);
    bench_text_clean(finding.evidence);
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

bool bench_get_text(struct bench_doctor *doctor, const char *path, char *text_out,
                    size_t text_bytes)
{
    const enum bench_read result = bench_read_text(doctor->root, path, text_out, text_bytes);
    if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, NULL, path, result);
    return result == BENCH_READ_OK;
}

bool bench_get_all(struct bench_doctor *doctor, const char *path, char **text_out)
{
    const enum bench_read result = bench_read_all(doctor->root, path, text_out);
    if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, NULL, path, result);
    return result == BENCH_READ_OK;
}

bool bench_said(const struct bench_doctor *doctor)
{
    for (int i = 0; i < doctor->findings.n; i++)
        if (doctor->findings.list[i].check == (int32_t)doctor->check)
            return true;
    return false;
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

void bench_ranks_to_text(const bool *is_in, int n_ranks, char *text_out, size_t text_bytes)
{
    size_t used = 0;
    text_out[0] = '\0';
    for (int first = 0; first < n_ranks; first++) {
        int last = first;
        if (!is_in[first])
            continue;
        while (last + 1 < n_ranks && is_in[last + 1])
            last++;
        if (used + 32 > text_bytes) {
            snprintf(text_out + used, text_bytes - used, ",...");
            return;
        }
        used += (size_t)snprintf(text_out + used, text_bytes - used, "%s%d", used > 0 ? "," : "",
                                 first);
        if (last > first)
            used += (size_t)snprintf(text_out + used, text_bytes - used, "-%d", last);
        first = last;
    }
}

static bool is_same(const struct bench_finding *a, const struct bench_finding *b)
{
    return a->check == b->check && a->severity == b->severity &&
           strcmp(a->subject, b->subject) == 0 &&
           (a->severity <= BENCH_SKIPPED ||
            (strcmp(a->evidence, b->evidence) == 0 && strcmp(a->fix, b->fix) == 0));
}

/* It comes from another process. */
static bool is_legal(const struct bench_finding *finding)
{
    return finding->check >= 0 && finding->check < BENCH_N_CHECKS && finding->severity >= 0 &&
           finding->severity < BENCH_N_SEVERITIES &&
           memchr(finding->subject, 0, sizeof(finding->subject)) != NULL &&
           memchr(finding->evidence, 0, sizeof(finding->evidence)) != NULL &&
           memchr(finding->fix, 0, sizeof(finding->fix)) != NULL;
}

/* @all: n_each a rank. @counts: used ones, by rank. */
static gyre_status join(const struct bench_doctor *doctor, const struct bench_finding *all,
                        const int *counts, int n_each, struct bench_findings *merged)
{
    const int n_ranks = doctor->launcher.n_processes;
    bool *owners = calloc((size_t)n_ranks, sizeof(*owners));
    bool *is_done = calloc((size_t)n_ranks * (size_t)n_each, sizeof(*is_done));
    gyre_status status = GYRE_SUCCESS;
    if (owners == NULL || is_done == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for findings");
    for (int i = 0; status == GYRE_SUCCESS && i < n_ranks * n_each; i++) {
        struct bench_finding finding = all[i];
        if (i % n_each >= counts[i / n_each] || is_done[i] || !is_legal(&finding))
            continue;
        memset(owners, 0, (size_t)n_ranks * sizeof(*owners));
        for (int j = i; j < n_ranks * n_each; j++)
            if (j % n_each < counts[j / n_each] && is_same(&all[i], &all[j]))
                is_done[j] = owners[j / n_each] = true;
        bench_ranks_to_text(owners, n_ranks, finding.ranks, sizeof(finding.ranks));
        if (!bench_findings_add(merged, &finding))
            status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for findings");
    }
    free(owners);
    free(is_done);
    return status;
}

gyre_status bench_findings_merge(struct bench_doctor *doctor)
{
    struct bench_launcher *launcher = &doctor->launcher;
    const size_t n_ranks = (size_t)launcher->n_processes;
    struct bench_findings merged = {NULL, 0};
    int n_each = 1;
    if (n_ranks == 1)
        return GYRE_SUCCESS;
    int *counts = calloc(n_ranks, sizeof(*counts));
    struct bench_finding *mine = NULL, *all = NULL;
    gyre_status status =
        counts == NULL
            ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for findings")
            : launcher->ops->all_gather(launcher, &doctor->findings.n, sizeof(int), counts);
    if (status != GYRE_SUCCESS)
        goto done;
    for (size_t i = 0; i < n_ranks; i++)
        n_each = counts[i] > n_each ? counts[i] : n_each;
    mine = calloc((size_t)n_each, sizeof(*mine));
    all = calloc(n_ranks * (size_t)n_each, sizeof(*all));
    if (mine == NULL || all == NULL) {
        status =
            gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for findings of %zu ranks", n_ranks);
        goto done;
    }
    if (doctor->findings.n > 0)
        memcpy(mine, doctor->findings.list, (size_t)doctor->findings.n * sizeof(*mine));
    status = launcher->ops->all_gather(launcher, mine, (size_t)n_each * sizeof(*mine), all);
    if (status == GYRE_SUCCESS)
        status = join(doctor, all, counts, n_each, &merged);
    if (status == GYRE_SUCCESS) {
        free(doctor->findings.list);
        doctor->findings = merged;
        merged.list = NULL;
    }
done:
    free(merged.list);
    free(counts);
    free(mine);
    free(all);
    return status;
}
