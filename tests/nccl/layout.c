/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts and values that callers compile in. tests/nccl/layout compares an installed NCCL header
 * and ours.
 */
#include <nccl.h>
#include <stddef.h>
#include <stdio.h>

#define VALUE(x) printf("%s %lld\n", #x, (long long)(x))
#define FIELD(x) VALUE(offsetof(ncclConfig_t, x))

int main(void)
{
    VALUE(sizeof(ncclUniqueId));
    VALUE(sizeof(ncclConfig_t));
    VALUE(sizeof(ncclSimInfo_t));
    VALUE(offsetof(ncclSimInfo_t, estimatedTime));
    FIELD(magic);
    FIELD(version);
    FIELD(blocking);
    FIELD(minCTAs);
    FIELD(maxCTAs);
    FIELD(netName);
    FIELD(splitShare);
    FIELD(trafficClass);
    FIELD(commName);
    FIELD(shrinkShare);
    FIELD(nvlinkCentricSched);
    VALUE(ncclInProgress);
    VALUE(ncclRemoteError);
    VALUE(ncclNumResults);
    VALUE(ncclBfloat16);
    VALUE(ncclFloat8e4m3);
    VALUE(ncclFloat8e5m2);
    VALUE(ncclAvg);
    VALUE(ncclNumOps);
    VALUE(ncclScalarDevice);
    VALUE(ncclScalarHostImmediate);
    VALUE(NCCL_SHRINK_ABORT);
    VALUE(NCCL_SPLIT_NOCOLOR);
    VALUE(NCCL_REVOKE_DEFAULT);
    VALUE(NCCL_WIN_REQUIRED_ALIGNMENT);
    VALUE(NCCL_CTA_POLICY_DEFAULT);
    VALUE(NCCL_CTA_POLICY_EFFICIENCY);
    VALUE(NCCL_CTA_POLICY_ZERO);
    return 0;
}
