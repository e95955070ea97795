/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates NCCL's configuration to gyre's. Fields that gyre does not use are checked as NCCL does
 * and then ignored.
 */
#include "core/nccl/nccl_shim.h"

#include "core/base/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MAX_CHANNELS 64 /* of NCCL, which takes larger numbers for this, and of gyre */

/* The networks of gyre, and the values of gyre_config.net. */
static const char *const nets[] = {"IB", "Socket"};

/* A field and what it may be, beside undefined. */
struct range {
    const char *name;
    int value;
    int lowest;
    int highest;
};

static ncclResult_t check_ranges(const ncclConfig_t *config)
{
    const struct range ranges[] = {
        {"blocking", config->blocking, 0, 1},
        {"cgaClusterSize", config->cgaClusterSize, 0, INT_MAX},
        {"minCTAs", config->minCTAs, 1, INT_MAX},
        {"maxCTAs", config->maxCTAs, 1, INT_MAX},
        {"splitShare", config->splitShare, 0, 1},
        {"shrinkShare", config->shrinkShare, 0, 1},
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

static ncclResult_t take_net(const char *name, const char **net_out)
{
    char text[160];
    for (size_t i = 0; name != NULL && i < sizeof(nets) / sizeof(nets[0]); i++) {
        if (!gyre_text_same(name, nets[i]))
            continue;
        *net_out = nets[i];
        return ncclSuccess;
    }
    if (name == NULL)
        return ncclSuccess;
    snprintf(text, sizeof(text),
             "config.netName \"%.80s\" is no network of gyre's: those are %s "
             "and %s",
             name, nets[0], nets[1]);
    return nccl_refuse(ncclInvalidUsage, text);
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
    if (given != NULL) {
        if (given->magic != NCCL_CONFIG_MAGIC || given->size < offsetof(ncclConfig_t, blocking))
            return nccl_refuse(ncclInvalidArgument,
                               "the config was not initialised with NCCL_CONFIG_INITIALIZER");
        memcpy(&config, given, given->size < sizeof(config) ? given->size : sizeof(config));
    }
    ncclResult_t result = check_ranges(&config);
    if (result == ncclSuccess)
        result = take_net(config.netName, &config_out->net);
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
