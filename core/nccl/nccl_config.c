/* SPDX-License-Identifier: Apache-2.0
 *
 * Unused fields are checked as NCCL does.
 */
#include "core/nccl/nccl_shim.h"

#include "core/foundation/base/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MAX_CHANNELS 64 /* of gyre; NCCL takes more for this */

static const char *const nets[] = {"IB", "Socket"};

static const struct {
    unsigned first_version;
    size_t offset;
} additions[] = {
    {NCCL_VERSION(2, 17, 0), offsetof(ncclConfig_t, cgaClusterSize)},
    {NCCL_VERSION(2, 18, 0), offsetof(ncclConfig_t, splitShare)},
    {NCCL_VERSION(2, 25, 0), offsetof(ncclConfig_t, trafficClass)},
    {NCCL_VERSION(2, 27, 0), offsetof(ncclConfig_t, collnetEnable)},
    {NCCL_VERSION(2, 28, 0), offsetof(ncclConfig_t, nChannelsPerNetPeer)},
};

struct range {
    const char *name;
    int value;
    int lowest;
    int highest;
};

ncclResult_t nccl_check_head(const char *what, const void *given, unsigned magic,
                             size_t least_bytes)
{
    enum { MOST_BYTES = 4096 }; /* ten times NCCL's largest */
    struct {
        size_t size;
        unsigned magic;
        unsigned version;
    } head;
    char text[240];
    if (given == NULL) {
        snprintf(text, sizeof(text), "%s: it is NULL", what);
        return nccl_refuse(ncclInvalidArgument, text);
    }
    memcpy(&head, given, sizeof(head));
    /* the struct exists since 2.14 */
    if (head.magic == magic && head.size >= least_bytes && head.size <= MOST_BYTES &&
        head.version >= NCCL_VERSION(2, 14, 0) && head.version < NCCL_VERSION(3, 0, 0))
        return ncclSuccess;
    snprintf(
        text, sizeof(text),
        "%s: it has size %zu, magic 0x%x, version %u; right are a size of %zu..%d, magic 0x%x, "
        "and a version of 21400..29999",
        what, head.size, head.magic, head.version, least_bytes, (int)MOST_BYTES, magic);
    return nccl_refuse(ncclInvalidArgument, text);
}

static ncclResult_t check_ranges(const ncclConfig_t *config)
{
    const struct range ranges[] = {
        {"blocking", config->blocking, 0, 1},
        {"cgaClusterSize", config->cgaClusterSize, 0, INT_MAX},
        {"minCTAs", config->minCTAs, 1, INT_MAX},
        {"maxCTAs", config->maxCTAs, 1, INT_MAX},
        {"splitShare", config->splitShare, 0, 1},
        {"collnetEnable", config->collnetEnable, 0, 1},
        {"CTAPolicy", config->CTAPolicy, 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO},
        {"shrinkShare", config->shrinkShare, 0, 1},
        {"nvlsCTAs", config->nvlsCTAs, 1, INT_MAX},
        {"nChannelsPerNetPeer", config->nChannelsPerNetPeer, 1, MAX_CHANNELS},
        {"nvlinkCentricSched", config->nvlinkCentricSched, 0, 1},
    };
    char text[160];
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const struct range *range = &ranges[i];
        if (range->value == NCCL_CONFIG_UNDEF_INT ||
            (range->value >= range->lowest && range->value <= range->highest))
            continue;
        snprintf(text, sizeof(text), "config.%s is %d, legal is %d..%d", range->name, range->value,
                 range->lowest, range->highest);
        return nccl_refuse(ncclInvalidArgument, text);
    }
    if (config->maxCTAs == NCCL_CONFIG_UNDEF_INT || config->minCTAs <= config->maxCTAs)
        return ncclSuccess;
    snprintf(text, sizeof(text), "config.minCTAs %d is above config.maxCTAs %d", config->minCTAs,
             config->maxCTAs);
    return nccl_refuse(ncclInvalidArgument, text);
}

static int channels_of(int n_ctas)
{
    if (n_ctas == NCCL_CONFIG_UNDEF_INT)
        return GYRE_CONFIG_UNDEFINED;
    return n_ctas < MAX_CHANNELS ? n_ctas : MAX_CHANNELS;
}

ncclResult_t nccl_config_take(const ncclConfig_t *given, gyre_config *config_out)
{
    const gyre_config defaults = GYRE_CONFIG_INIT;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    *config_out = defaults;
    ncclResult_t result = ncclSuccess;
    if (given != NULL) {
        result = nccl_check_head("the config is not as NCCL_CONFIG_INITIALIZER makes it", given,
                                 NCCL_CONFIG_MAGIC, offsetof(ncclConfig_t, cgaClusterSize));
        if (result == ncclSuccess) {
            /* The caller's version lacks what follows. */
            size_t n_bytes = given->size < sizeof(*given) ? given->size : sizeof(*given);
            for (size_t i = sizeof(additions) / sizeof(additions[0]); i-- > 0;)
                if (given->version < additions[i].first_version &&
                    given->size > additions[i].offset)
                    n_bytes = additions[i].offset;
            memcpy(&config, given, n_bytes);
        }
    }
    if (result == ncclSuccess)
        result = check_ranges(&config);
    for (size_t i = 0;
         result == ncclSuccess && config.netName != NULL && i < sizeof(nets) / sizeof(nets[0]); i++)
        if (gyre_text_same(config.netName, nets[i]))
            config_out->net = nets[i];
    if (result == ncclSuccess && config.netName != NULL && config_out->net == NULL) {
        char text[160];
        snprintf(text, sizeof(text),
                 "config.netName \"%.80s\" is no network of gyre's: those are %s "
                 "and %s",
                 config.netName, nets[0], nets[1]);
        result = nccl_refuse(ncclInvalidUsage, text);
    }
    if (result != ncclSuccess)
        return result;
    config_out->blocking = config.blocking != 0;
    config_out->min_channels = channels_of(config.minCTAs);
    config_out->max_channels = channels_of(config.maxCTAs);
    if (config.trafficClass != NCCL_CONFIG_UNDEF_INT)
        config_out->traffic_class = config.trafficClass;
    config_out->name = config.commName;
    return ncclSuccess;
}
