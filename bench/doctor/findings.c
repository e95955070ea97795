/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void add(struct bench_findings *findings, const struct bench_finding *finding)
{
    findings->list = bench_grow(findings->list, findings->n, sizeof(*findings->list));
    findings->list[findings->n++] = *finding;
}

void bench_text_clean(char *text)
{
    for (; *text != '\0'; text++)
        if (!gyre_text_is_printable(*text) && *text != '\n')
            *text = *text == '\t' ? ' ' : '?';
}

const char *bench_fix_of_port(const char *fix, const char *device, const char *netdev)
{
    char *text = bench_keep(BENCH_FIX_BYTES, 1);
    const bool is_unknown = netdev[0] == '\0' && strstr(fix, "NETDEV") != NULL;
    while (*fix != '\0') {
        const bool is_netdev = netdev[0] != '\0' && strncmp(fix, "NETDEV", 6) == 0;
        const bool is_device =
            device != NULL && device[0] != '\0' && strncmp(fix, "DEVICE", 6) == 0;
        if (is_netdev || is_device)
            gyre_text_append(text, BENCH_FIX_BYTES, "%s", is_netdev ? netdev : device);
        else
            gyre_text_append(text, BENCH_FIX_BYTES, "%c", *fix);
        fix += is_netdev || is_device ? 6 : 1;
    }
    if (is_unknown)
        gyre_text_append(text, BENCH_FIX_BYTES, "%s",
                         device != NULL
                             ? " (NETDEV is the interface of the port: rdma link show names it)"
                             : " (NETDEV is an interface of this host: ip link lists them)");
    return text;
}

void bench_say(struct bench_doctor *doctor, enum bench_severity severity, const char *subject,
               const char *fix, const char *format, ...)
{
    const struct bench_machine *machine = &doctor->machine;
    struct bench_finding finding;
    va_list arguments;
    memset(&finding, 0, sizeof(finding));
    finding.check = (int32_t)doctor->check;
    finding.severity = (int32_t)severity;
    snprintf(finding.subject, sizeof(finding.subject), "%s", subject == NULL ? "" : subject);
    fix = fix == NULL || severity <= BENCH_SKIPPED ? "" : fix;
    if (bench_net_find(machine, finding.subject) != NULL)
        fix = bench_fix_of_port(fix, NULL, finding.subject);
    for (int i = 0; i < machine->n_ports; i++)
        if (strcmp(machine->ports[i].name, finding.subject) == 0)
            fix = bench_fix_of_port(fix, machine->ports[i].device, machine->ports[i].netdev);
    snprintf(finding.fix, sizeof(finding.fix), "%s", fix);
    va_start(arguments, format);
    gyre_text_vappend(finding.evidence, sizeof(finding.evidence), format, arguments);
    va_end(arguments);
    bench_text_clean(finding.subject);
    bench_text_clean(finding.fix);
    bench_text_clean(finding.evidence);
    add(&doctor->findings, &finding);
}

void bench_say_unreadable(struct bench_doctor *doctor, const char *subject, const char *path,
                          enum bench_read result)
{
    if (result == BENCH_READ_DENIED)
        bench_unknown(doctor, subject, "run gyre doctor as root", "%s: no permission to read it",
                      path);
    else
        bench_unknown(doctor, subject, NULL, "%s: %s", path,
                      result == BENCH_READ_ABSENT ? "there is no such file"
                                                  : "its content is not understood");
}

char *bench_get(struct bench_doctor *doctor, const char *subject, const char *path)
{
    char *text = NULL;
    const enum bench_read result = bench_read_all(path, &text);
    if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, subject, path, result);
    return text;
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

static void sort(struct bench_findings *findings)
{
    if (findings->n > 1)
        qsort(findings->list, (size_t)findings->n, sizeof(*findings->list), compare_findings);
}

void bench_ranks_to_text(const bool *is_in, int n_ranks, char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    for (int first = 0; first < n_ranks; first++) {
        int last = first;
        if (!is_in[first])
            continue;
        while (last + 1 < n_ranks && is_in[last + 1])
            last++;
        if (strlen(text_out) + 32 > text_bytes) {
            gyre_text_append(text_out, text_bytes, ",...");
            return;
        }
        gyre_text_append(text_out, text_bytes, "%s%d", text_out[0] != '\0' ? "," : "", first);
        if (last > first)
            gyre_text_append(text_out, text_bytes, "-%d", last);
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

void *bench_all_gather(struct bench_doctor *doctor, const void *mine, size_t n_bytes)
{
    struct bench_launcher *launcher = &doctor->launcher;
    void *all = bench_keep((size_t)launcher->n_processes, n_bytes);
    return launcher->ops->all_gather(launcher, mine, n_bytes, all) == GYRE_SUCCESS ? all : NULL;
}

gyre_status bench_findings_merge(struct bench_doctor *doctor)
{
    const int n_ranks = doctor->launcher.n_processes;
    struct bench_findings merged = {NULL, 0};
    int n_each = 1;
    if (n_ranks == 1) {
        sort(&doctor->findings);
        return GYRE_SUCCESS;
    }
    const int *counts = bench_all_gather(doctor, &doctor->findings.n, sizeof(int));
    for (int i = 0; counts != NULL && i < n_ranks; i++)
        n_each = counts[i] > n_each ? counts[i] : n_each;
    struct bench_finding *mine = bench_keep((size_t)n_each, sizeof(*mine)), *all = NULL;
    if (doctor->findings.n > 0)
        memcpy(mine, doctor->findings.list, (size_t)doctor->findings.n * sizeof(*mine));
    if (counts != NULL)
        all = bench_all_gather(doctor, mine, (size_t)n_each * sizeof(*mine));
    if (all == NULL)
        return GYRE_ERROR_REMOTE;
    bool *is_done = bench_keep((size_t)(n_ranks * n_each), sizeof(*is_done));
    bool *owners = bench_keep((size_t)n_ranks, sizeof(*owners));
    for (int i = 0; i < n_ranks * n_each; i++) {
        struct bench_finding finding = all[i];
        if (i % n_each >= counts[i / n_each] || is_done[i] ||
            (finding.check < 0 || finding.check >= BENCH_N_CHECKS || finding.severity < 0 ||
             finding.severity >= BENCH_N_SEVERITIES ||
             memchr(finding.subject, 0, sizeof(finding.subject)) == NULL ||
             memchr(finding.evidence, 0, sizeof(finding.evidence)) == NULL ||
             memchr(finding.fix, 0, sizeof(finding.fix)) == NULL))
            continue;
        memset(owners, 0, (size_t)n_ranks * sizeof(*owners));
        for (int j = i; j < n_ranks * n_each; j++)
            if (j % n_each < counts[j / n_each] && is_same(&all[i], &all[j]))
                is_done[j] = owners[j / n_each] = true;
        bench_ranks_to_text(owners, n_ranks, finding.ranks, sizeof(finding.ranks));
        add(&merged, &finding);
    }
    doctor->findings = merged;
    sort(&doctor->findings);
    return GYRE_SUCCESS;
}

/* Processes all-gather it, so its layout is fixed. */
struct place {
    char host[64];
    uint64_t hash;
};

gyre_status bench_hosts_find(struct bench_doctor *doctor, struct bench_hosts *hosts_out)
{
    const int n = doctor->launcher.n_processes;
    struct place mine;
    memset(&mine, 0, sizeof(mine));
    memcpy(mine.host, doctor->host, sizeof(mine.host));
    *hosts_out = (struct bench_hosts){.me = -1};
    hosts_out->leaders = bench_keep((size_t)n, sizeof(*hosts_out->leaders));
    hosts_out->names = bench_keep((size_t)n, sizeof(*hosts_out->names));
    GYRE_TRY(gyre_host_hash(gyre_param_text(&doctor->params, GYRE_PARAM_HOSTID), &mine.hash));
    const struct place *all = bench_all_gather(doctor, &mine, sizeof(mine));
    for (int i = 0; all != NULL && i < n; i++) {
        bool is_first = true;
        for (int j = 0; j < i; j++)
            is_first = is_first && all[j].hash != all[i].hash;
        if (!is_first)
            continue;
        if (i == doctor->launcher.process)
            hosts_out->me = hosts_out->n;
        snprintf(hosts_out->names[hosts_out->n], sizeof(*hosts_out->names), "%.40s (rank %d)",
                 all[i].host, i);
        hosts_out->leaders[hosts_out->n++] = i;
    }
    return all == NULL ? GYRE_ERROR_REMOTE : GYRE_SUCCESS;
}

/* A process that waited in vain knows less than the peer that failed. */
gyre_status bench_gather(struct bench_doctor *doctor, gyre_status status, void *mine,
                         size_t n_bytes, void *all)
{
    struct bench_launcher *launcher = &doctor->launcher;
    struct bench_note *note = mine;
    note->status = (int32_t)status;
    snprintf(note->cause, sizeof(note->cause), "%.639s",
             status == GYRE_SUCCESS ? "" : gyre_cause());
    GYRE_TRY(launcher->ops->all_gather(launcher, mine, n_bytes, all));
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < launcher->n_processes; i++) {
            note = (struct bench_note *)((char *)all + (size_t)i * n_bytes);
            note->cause[sizeof(note->cause) - 1] = '\0';
            if (note->status != GYRE_SUCCESS &&
                (pass > 0 || note->status != (int32_t)GYRE_ERROR_TIMEOUT))
                return gyre_fail((gyre_status)note->status, "rank %d: %s", i, note->cause);
        }
    return GYRE_SUCCESS;
}
