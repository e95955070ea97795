/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks gather the number of findings of each rank, then the findings. If several ranks have the
 * same finding, it is kept once, with the list of its ranks.
 */
#include "bench/doctor/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A finding of another process is used only if its fields are legal. */
static bool is_legal(const struct bench_finding *finding)
{
    return finding->check >= 0 && finding->check < BENCH_N_CHECKS && finding->severity >= 0 &&
           finding->severity < BENCH_N_SEVERITIES &&
           memchr(finding->subject, 0, sizeof(finding->subject)) != NULL &&
           memchr(finding->evidence, 0, sizeof(finding->evidence)) != NULL &&
           memchr(finding->fix, 0, sizeof(finding->fix)) != NULL;
}

/* @all: n_each findings of every rank. @counts: how many of them are used, by rank. */
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

gyre_status bench_doctor_merge(struct bench_doctor *doctor)
{
    struct bench_launcher *launcher = &doctor->launcher;
    const size_t n_ranks = (size_t)launcher->n_processes;
    struct bench_findings merged = {NULL, 0, 0};
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
