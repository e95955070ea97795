/* SPDX-License-Identifier: Apache-2.0
 *
 * What a communicator is configured with: the caller's struct, then the environment, then defaults.
 */
#include "core/engine/comm/comm.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <limits.h>
#include <string.h>

static void take_param(int *field, const struct gyre_params *params, enum gyre_param_id id)
{
    if (*field == GYRE_CONFIG_UNDEFINED && gyre_param_is_set(params, id))
        *field = (int)gyre_param_number(params, id);
}

static gyre_status check_range(const char *name, int value, int low, int high)
{
    if (value == GYRE_CONFIG_UNDEFINED || (value >= low && value <= high))
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "config.%s is %d, legal is %d..%d", name, value,
                     low, high);
}

gyre_status gyre_config_take(const gyre_config *given, gyre_config *config_out)
{
    const gyre_config defaults = GYRE_CONFIG_INIT;
    *config_out = defaults;
    if (given == NULL)
        return GYRE_SUCCESS;
    if (given->struct_bytes < offsetof(gyre_config, device_kind) || given->struct_bytes > 4096)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "config.struct_bytes is %u: start from GYRE_CONFIG_INIT",
                         given->struct_bytes);
    /* Fields that an older caller does not know keep their defaults. */
    memcpy(config_out, given, gyre_min_u64(given->struct_bytes, sizeof(*config_out)));
    config_out->struct_bytes = sizeof(*config_out);
    if (config_out->refusal != NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s", config_out->refusal);
    return GYRE_SUCCESS;
}

static gyre_status take_net(gyre_config *config, struct gyre_params *params)
{
    const bool is_given = config->net != NULL && config->net[0] != '\0';
    if (is_given)
        GYRE_TRY(gyre_param_override(params, GYRE_PARAM_NET, "config.net", config->net));
    config->net = is_given ? gyre_param_text(params, GYRE_PARAM_NET) : NULL;
    return GYRE_SUCCESS;
}

/* The fewest channels are above the most. A number of NCCL_MIN_NCHANNELS gives way. */
static gyre_status resolve_channels(const gyre_config *given, const struct gyre_params *params,
                                    gyre_config *config)
{
    const gyre_status status = gyre_fail(
        GYRE_ERROR_INVALID_ARGUMENT,
        "min_channels %d is above max_channels %d (%s and %s set them, too)", config->min_channels,
        config->max_channels, gyre_param_called(params, GYRE_PARAM_MIN_NCHANNELS),
        gyre_param_called(params, GYRE_PARAM_MAX_NCHANNELS));
    if (given->min_channels != GYRE_CONFIG_UNDEFINED)
        return status;
    config->min_channels = config->max_channels;
    return gyre_param_forgive(params, GYRE_PARAM_MIN_NCHANNELS, status);
}

gyre_status gyre_config_resolve(const gyre_config *given, struct gyre_params *params,
                                gyre_config *config_out)
{
    gyre_config config = *given;
    take_param(&config.min_channels, params, GYRE_PARAM_MIN_NCHANNELS);
    take_param(&config.max_channels, params, GYRE_PARAM_MAX_NCHANNELS);
    take_param(&config.sm_budget, params, GYRE_PARAM_SMS);
    take_param(&config.traffic_class, params, GYRE_PARAM_IB_TC);
    take_param(&config.service_level, params, GYRE_PARAM_IB_SL);
    take_param(&config.timeout_ms, params, GYRE_PARAM_TIMEOUT);
    if (config.transport == NULL && gyre_param_is_set(params, GYRE_PARAM_TRANSPORT))
        config.transport = gyre_param_text(params, GYRE_PARAM_TRANSPORT);
    GYRE_TRY(check_range("device_kind", config.device_kind, GYRE_DEVICE_AUTO, GYRE_DEVICE_CUDA));
    GYRE_TRY(check_range("blocking", config.blocking, 0, 1));
    GYRE_TRY(check_range("min_channels", config.min_channels, 1, 64));
    GYRE_TRY(check_range("max_channels", config.max_channels, 1, 64));
    GYRE_TRY(check_range("sm_budget", config.sm_budget, 1, 1024));
    GYRE_TRY(check_range("traffic_class", config.traffic_class, 0, 255));
    GYRE_TRY(check_range("service_level", config.service_level, 0, 15));
    GYRE_TRY(check_range("timeout_ms", config.timeout_ms, 0, INT_MAX));
    if (config.min_channels > 0 && config.max_channels > 0 &&
        config.min_channels > config.max_channels)
        GYRE_TRY(resolve_channels(given, params, &config));
    bool is_known = config.transport == NULL;
    for (int i = 0; gyre_transports[i] != NULL && !is_known; i++)
        is_known = gyre_text_same(gyre_transports[i]->name, config.transport);
    if (!is_known)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "config.transport \"%s\" is none of: p2p shm ib socket", config.transport);
    GYRE_TRY(take_net(&config, params));
    *config_out = config;
    return GYRE_SUCCESS;
}
