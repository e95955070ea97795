/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

/* Processes all-gather it, so its layout is fixed. */
struct place {
    char host[64];
    uint64_t hash;
};

gyre_status bench_hosts_find(struct bench_doctor *doctor, struct bench_hosts *hosts_out)
{
    struct bench_launcher *launcher = &doctor->launcher;
    const int n = launcher->n_processes;
    struct place mine, *all = calloc((size_t)n, sizeof(*all));
    memset(&mine, 0, sizeof(mine));
    memcpy(mine.host, doctor->host, sizeof(mine.host));
    *hosts_out = (struct bench_hosts){.me = -1};
    hosts_out->leaders = calloc((size_t)n, sizeof(*hosts_out->leaders));
    hosts_out->names = calloc((size_t)n, sizeof(*hosts_out->names));
    gyre_status status =
        all == NULL || hosts_out->leaders == NULL || hosts_out->names == NULL
            ? gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d hosts", n)
            : gyre_host_hash(gyre_param_text(&doctor->params, GYRE_PARAM_HOSTID), &mine.hash);
    if (status == GYRE_SUCCESS)
        status = launcher->ops->all_gather(launcher, &mine, sizeof(mine), all);
    for (int i = 0; status == GYRE_SUCCESS && i < n; i++) {
        bool is_first = true;
        for (int j = 0; j < i; j++)
            is_first = is_first && all[j].hash != all[i].hash;
        if (!is_first)
            continue;
        if (i == launcher->process)
            hosts_out->me = hosts_out->n;
        snprintf(hosts_out->names[hosts_out->n], sizeof(*hosts_out->names), "%.40s (rank %d)",
                 all[i].host, i);
        hosts_out->leaders[hosts_out->n++] = i;
    }
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
