/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that each rank has a GPU of its own, because two ranks on one GPU could wait for each
 * other's blocks for ever. Tests on few GPUs may allow sharing with GYRE_SHARE_GPU. The GPU then
 * runs the kernels of all its ranks at the same time, because the ranks are threads of one process,
 * or processes under NVIDIA MPS, and each uses only its part of the multiprocessors.
 */
#include "core/engine/links/links.h"

#include "core/foundation/base/util.h"

#include <string.h>

/* The most workers that a channel of any built-in algorithm has: a double tree has two workers for
 * each tree. */
#define WORKERS_AT_MOST 4

static gyre_status refuse_pair(const struct gyre_peer_info *a, const struct gyre_peer_info *b)
{
    return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                     "init: ranks %d and %d are on the same GPU (%s on %s); give each rank its own "
                     "(LOCAL_RANK, CUDA_VISIBLE_DEVICES)",
                     (int)a->rank, (int)b->rank, a->device.pci_bus_id, a->host_name);
}

/* Count the ranks of the GPU that the most ranks share. */
static gyre_status count_sharers(const struct gyre_member *member, const struct gyre_links *links,
                                 uint32_t *n_sharers_out)
{
    const bool may_share = gyre_param_number(&member->params, GYRE_PARAM_SHARE_GPU) != 0;
    uint32_t most = 1;
    for (int a = 0; a < member->n_ranks; a++) {
        const struct gyre_peer_info *first = &links->infos[a];
        uint32_t n_sharers = 1;
        for (int b = a + 1; b < member->n_ranks; b++) {
            const struct gyre_peer_info *second = &links->infos[b];
            if (memcmp(first->device.uuid, second->device.uuid, sizeof(first->device.uuid)) != 0)
                continue;
            if (!may_share)
                return refuse_pair(first, second);
            n_sharers++;
        }
        if (n_sharers > most)
            most = n_sharers;
    }
    *n_sharers_out = most;
    return GYRE_SUCCESS;
}

static uint32_t find_least_sms(const struct gyre_member *member, const struct gyre_links *links)
{
    uint32_t least = UINT32_MAX;
    for (int rank = 0; rank < member->n_ranks; rank++)
        least = gyre_min_u32(least, links->infos[rank].device.n_sms);
    return least / links->n_gpu_sharers;
}

gyre_status gyre_links_check_gpus(struct gyre_member *member, struct gyre_links *links)
{
    links->n_gpu_sharers = 1;
    links->least_sms = 0;
    if (member->device_info.kind != GYRE_DEVICE_CUDA)
        return GYRE_SUCCESS;
    GYRE_TRY(count_sharers(member, links, &links->n_gpu_sharers));
    links->least_sms = find_least_sms(member, links);
    if (links->n_gpu_sharers == 1)
        return GYRE_SUCCESS;
    /* The same on all ranks, because calls depend on it. */
    const int n_channels = (int)(links->least_sms / WORKERS_AT_MOST);
    if (n_channels == 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "init: %u ranks share a GPU; the smallest GPU of any rank has %u "
                         "multiprocessors for each, and a rank needs %d",
                         links->n_gpu_sharers, links->least_sms, WORKERS_AT_MOST);
    if (member->config.sm_budget <= 0 || member->config.sm_budget > n_channels)
        member->config.sm_budget = n_channels;
    return GYRE_SUCCESS;
}
