/* SPDX-License-Identifier: Apache-2.0
 *
 * What traces need of the links: the offset between the clocks of hosts, and that no two processes
 * write one file.
 */
#include "core/foundation/base/util.h"
#include "core/engine/links/links.h"

#include <errno.h>
#include <stdlib.h>

gyre_status gyre_links_check_traces(const struct gyre_member *member,
                                    const struct gyre_links *links)
{
    for (int rank = 1; rank < member->n_ranks; rank++) {
        const struct gyre_peer_info *info = &links->infos[rank];
        int first = 0;
        if (info->trace_hash <= 1)
            continue;
        while (links->infos[first].trace_hash != info->trace_hash)
            first++;
        if (links->infos[first].process_id != info->process_id)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "GYRE_TRACE_FILE: rank %d and rank %d are in different processes and "
                             "would write the same file; put %%r (the rank) into its name, for "
                             "example trace.%%r.json",
                             first, rank);
    }
    return GYRE_SUCCESS;
}

/* In every round all ranks gather one byte. When a rank has the bytes of a round, every other rank
 * had begun the round before. */
#define N_ROUNDS 16

struct round_times {
    uint64_t begun_ns[N_ROUNDS];
    uint64_t ended_ns[N_ROUNDS];
};

static gyre_status run_rounds(const struct gyre_member *member, struct round_times *all)
{
    struct gyre_bootstrap *bootstrap = member->bootstrap;
    struct round_times mine;
    const uint8_t byte = 0;
    uint8_t *bytes = malloc((size_t)member->n_ranks);
    gyre_status status = bytes != NULL ? GYRE_SUCCESS : gyre_fail_errno(ENOMEM, "init");
    for (int i = 0; i < N_ROUNDS && status == GYRE_SUCCESS; i++) {
        mine.begun_ns[i] = gyre_now_ns();
        status = bootstrap->ops->all_gather(bootstrap, &byte, sizeof(byte), bytes);
        mine.ended_ns[i] = gyre_now_ns();
    }
    if (status == GYRE_SUCCESS)
        status = bootstrap->ops->all_gather(bootstrap, &mine, sizeof(mine), all);
    free(bytes);
    return status;
}

/* Narrows the bounds of (clock of `here` - clock of `there`) by the rounds of two ranks. */
static void narrow(const struct round_times *here, const struct round_times *there,
                   int64_t *lowest_ns, int64_t *highest_ns)
{
    for (int i = 0; i < N_ROUNDS; i++) {
        const int64_t low = (int64_t)(here->begun_ns[i] - there->ended_ns[i]);
        const int64_t high = (int64_t)(here->ended_ns[i] - there->begun_ns[i]);
        *lowest_ns = low > *lowest_ns ? low : *lowest_ns;
        *highest_ns = high < *highest_ns ? high : *highest_ns;
    }
}

gyre_status gyre_links_measure_clock(const struct gyre_member *member,
                                     const struct gyre_links *links, int64_t *offset_ns_out,
                                     uint64_t *error_ns_out)
{
    const uint16_t *host_of = links->grouping.host_of;
    int64_t lowest_ns = INT64_MIN, highest_ns = INT64_MAX;
    bool is_traced = false;
    for (int rank = 0; rank < member->n_ranks; rank++)
        is_traced = is_traced || links->infos[rank].trace_hash != 0;
    *offset_ns_out = 0;
    *error_ns_out = 0;
    if (!is_traced || links->grouping.n_hosts == 1)
        return GYRE_SUCCESS;
    struct round_times *all = malloc((size_t)member->n_ranks * sizeof(*all));
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    const gyre_status status = run_rounds(member, all);
    for (int here = 0; here < member->n_ranks && status == GYRE_SUCCESS; here++)
        for (int there = 0; there < member->n_ranks; there++)
            if (host_of[here] == host_of[member->rank] && host_of[there] == host_of[0])
                narrow(&all[here], &all[there], &lowest_ns, &highest_ns);
    free(all);
    if (status != GYRE_SUCCESS || host_of[member->rank] == host_of[0])
        return status;
    *offset_ns_out = lowest_ns + (highest_ns - lowest_ns) / 2;
    *error_ns_out = (uint64_t)(highest_ns - lowest_ns + 1) / 2;
    return GYRE_SUCCESS;
}
