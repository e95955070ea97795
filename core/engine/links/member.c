/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of a member that all folders of the communicator use.
 */
#include "core/engine/links/member.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

void gyre_member_end_stage(struct gyre_member *member, const char *stage)
{
    const uint64_t now_ns = gyre_now_ns();
    GYRE_INFO(INIT, "rank %d: %s took %.1f ms", member->rank, stage,
              (double)(now_ns - member->stage_ns) / 1e6);
    member->stage_ns = now_ns;
}

uint32_t gyre_member_max_channels(const struct gyre_member *member)
{
    const gyre_config *config = &member->config;
    uint64_t most = UINT32_MAX;
    if (config->max_channels > 0)
        most = gyre_min_u64(most, (uint64_t)config->max_channels);
    if (config->sm_budget > 0)
        most = gyre_min_u64(most, (uint64_t)config->sm_budget);
    return (uint32_t)most;
}
