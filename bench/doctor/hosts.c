/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the hosts of a job.
 */
#include "bench/doctor/hosts.h"

#include "core/foundation/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The host of one process. Processes all-gather it, so its layout is fixed. */
struct place {
    char host[64];
    uint64_t hash;
};

static void fill(struct bench_hosts *hosts, const struct place *all, int n, int process)
{
    for (int i = 0; i < n; i++) {
        bool is_first = true;
        for (int j = 0; j < i; j++)
            is_first = is_first && all[j].hash != all[i].hash;
        if (!is_first)
            continue;
        if (i == process)
            hosts->me = hosts->n;
        snprintf(hosts->names[hosts->n], sizeof(*hosts->names), "%.40s (rank %d)", all[i].host, i);
        hosts->leaders[hosts->n++] = i;
    }
}

gyre_status bench_hosts_find(struct bench_doctor *doctor, struct bench_hosts *hosts_out)
{
    struct bench_launcher *launcher = &doctor->launcher;
    const int n = launcher->n_processes;
    struct place mine, *all = calloc((size_t)n, sizeof(*all));
    memset(&mine, 0, sizeof(mine));
    memcpy(mine.host, doctor->facts.host, sizeof(mine.host));
    *hosts_out = (struct bench_hosts){.me = -1};
    hosts_out->leaders = calloc((size_t)n, sizeof(*hosts_out->leaders));
    hosts_out->names = calloc((size_t)n, sizeof(*hosts_out->names));
    gyre_status status =
        all == NULL || hosts_out->leaders == NULL || hosts_out->names == NULL
            ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d hosts", n)
            : gyre_host_hash(gyre_param_text(&doctor->params, GYRE_PARAM_HOSTID), &mine.hash);
    if (status == GYRE_SUCCESS)
        status = launcher->ops->all_gather(launcher, &mine, sizeof(mine), all);
    if (status == GYRE_SUCCESS)
        fill(hosts_out, all, n, launcher->process);
    free(all);
    return status;
}

void bench_hosts_free(struct bench_hosts *hosts)
{
    free(hosts->leaders);
    free(hosts->names);
    hosts->leaders = NULL;
    hosts->names = NULL;
}

gyre_status bench_matrix_open(struct bench_matrix *matrix, int n)
{
    const size_t n_cells = (size_t)n * (size_t)n;
    matrix->names = calloc((size_t)n, sizeof(*matrix->names));
    matrix->latency_us = calloc(n_cells, sizeof(double));
    matrix->gbytes_per_s = calloc(n_cells, sizeof(double));
    if (matrix->names == NULL || matrix->latency_us == NULL || matrix->gbytes_per_s == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a matrix of %d rows", n);
    for (size_t i = 0; i < n_cells; i++)
        matrix->latency_us[i] = matrix->gbytes_per_s[i] = (double)NAN;
    return GYRE_SUCCESS;
}

struct bench_matrix_rates bench_matrix_rates(const struct bench_matrix *matrix)
{
    struct bench_matrix_rates rates = {.slow = -1, .fast = -1};
    for (int i = 0; i < matrix->n * matrix->n; i++) {
        const double rate = matrix->gbytes_per_s[i];
        if (isnan(rate))
            continue;
        rates.n_measured++;
        rates.slow = rates.slow < 0 || rate < matrix->gbytes_per_s[rates.slow] ? i : rates.slow;
        rates.fast = rates.fast < 0 || rate > matrix->gbytes_per_s[rates.fast] ? i : rates.fast;
    }
    return rates;
}
