/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/launch.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/util.h"
#include "core/foundation/device/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

gyre_status gyre_get_version(int *version_out)
{
    if (version_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_version: version_out is NULL");
    *version_out = GYRE_VERSION;
    return GYRE_SUCCESS;
}

gyre_status gyre_get_variable(const char *name, char *text_out, size_t text_bytes)
{
    if (name == NULL || text_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_variable: a pointer is NULL");
    const char *bare = strncmp(name, "GYRE_", 5) == 0 ? name + 5 : name;
    int id = 0;
    while (id < GYRE_N_PARAMS && strcmp(gyre_param_name((enum gyre_param_id)id), bare) != 0)
        id++;
    if (id == GYRE_N_PARAMS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_variable: there is no %s", name);
    GYRE_FREED struct gyre_params *params = malloc(sizeof(*params));
    if (params == NULL)
        return gyre_fail_errno(ENOMEM, "get_variable");
    GYRE_TRY(gyre_params_load(params));
    const char *text = gyre_param_text(params, (enum gyre_param_id)id);
    if (strlen(text) >= text_bytes)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_variable: %s needs %zu bytes", name,
                         strlen(text) + 1);
    memcpy(text_out, text, strlen(text) + 1);
    return GYRE_SUCCESS;
}

const char *gyre_get_variable_name(int index)
{
    static const char *const names[] = {
#define X(id, type, flags, fallback, low, high, unit, words, help) "GYRE_" #id,
#include "core/foundation/base/param_table.h"
#undef X
    };
    return index >= 0 && index < GYRE_N_PARAMS ? names[index] : NULL;
}

void gyre_log_text(bool is_warning, const char *text)
{
    if (text != NULL)
        gyre_log(is_warning ? GYRE_LOG_WARN : GYRE_LOG_INFO, GYRE_LOG_INIT, "%s", text);
}

static gyre_status check_launch(const gyre_launch *launch)
{
    if (launch == NULL || launch->struct_bytes < sizeof(*launch) || launch->version == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "launch: the struct is NULL or was not initialised with GYRE_LAUNCH_INIT");
    return GYRE_SUCCESS;
}

gyre_status gyre_get_launch(gyre_launch *launch_out)
{
    GYRE_TRY(check_launch(launch_out));
    return gyre_launch_find(gyre_param_environment(), launch_out);
}

/* from each rank over the launcher's address */
struct introduction {
    uint64_t host_hash;
    gyre_unique_id id; /* of rank 0 only */
};

gyre_status gyre_get_launch_id(gyre_launch *launch, unsigned number, int timeout_ms,
                               gyre_unique_id *id_out)
{
    GYRE_TRY(check_launch(launch));
    if (id_out == NULL || launch->rank < 0 || launch->n_ranks < 1 ||
        launch->rank >= launch->n_ranks || timeout_ms < 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "get_launch_id: rank %d of %d ranks, %d ms: a value is out of range, or "
                         "id_out is NULL",
                         launch->rank, launch->n_ranks, timeout_ms);
    struct introduction mine = {0};
    struct gyre_meet meet;
    GYRE_FREED struct gyre_params *params = malloc(sizeof(*params));
    GYRE_FREED struct introduction *all = calloc((size_t)launch->n_ranks, sizeof(*all));
    if (params == NULL || all == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "get_launch_id");
    GYRE_TRY(gyre_params_load(params));
    GYRE_TRY(gyre_host_hash(NULL, &mine.host_hash));
    if (launch->rank == 0)
        GYRE_TRY(gyre_get_unique_id(&mine.id));
    if (launch->n_ranks == 1) {
        all[0] = mine;
    } else {
        const uint64_t timeout_ns =
            timeout_ms > 0
                ? (uint64_t)timeout_ms * 1000000
                : (uint64_t)gyre_param_number(params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * 1000000000;
        const struct gyre_meet_place place = {.rank = launch->rank,
                                              .n_ranks = launch->n_ranks,
                                              .number = number,
                                              .source = "MASTER_ADDR",
                                              .address = launch->address,
                                              .port = launch->port,
                                              .job = launch->job,
                                              .timeout_ns = timeout_ns,
                                              .params = params};
        GYRE_TRY(gyre_meet_open(&place, &meet));
        const gyre_status status =
            gyre_meet_all_gather(&meet, &mine, sizeof(mine), all, gyre_now_ns() + timeout_ns);
        gyre_meet_close(&meet);
        GYRE_TRY(status);
    }
    int local_rank = 0;
    int n_local_ranks = 0;
    for (int i = 0; i < launch->n_ranks; i++) {
        local_rank += i < launch->rank && all[i].host_hash == mine.host_hash;
        n_local_ranks += all[i].host_hash == mine.host_hash;
    }
    *id_out = all[0].id;
    launch->local_rank = launch->local_rank < 0 ? local_rank : launch->local_rank;
    launch->n_local_ranks = launch->n_local_ranks < 0 ? n_local_ranks : launch->n_local_ranks;
    return GYRE_SUCCESS;
}

/* ---- for callers without a CUDA runtime of their own --------------------------------------- */

static gyre_status open_device(gyre_device_kind kind, int ordinal, struct gyre_device **device_out)
{
    const struct gyre_device_ops *ops;
    GYRE_TRY(gyre_device_find(kind, &ops));
    return ops->open(ordinal, device_out);
}

#define RETURN_WITH_DEVICE(kind, ordinal, work)            \
    do {                                                   \
        struct gyre_device *device;                        \
        GYRE_TRY(open_device((kind), (ordinal), &device)); \
        const gyre_status status_of_work_ = (work);        \
        device->ops->close(device);                        \
        return status_of_work_;                            \
    } while (0)

gyre_status gyre_get_device(int *ordinal_out)
{
    if (ordinal_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_device: ordinal_out is NULL");
    struct gyre_device *device;
    struct gyre_device_info info;
    GYRE_TRY(open_device(GYRE_DEVICE_AUTO, -1, &device));
    const gyre_status status = device->ops->info(device, &info);
    device->ops->close(device);
    if (status == GYRE_SUCCESS)
        *ordinal_out = info.ordinal;
    return status;
}

gyre_status gyre_mem_alloc(void **ptr_out, size_t n_bytes, gyre_device_kind kind, int ordinal)
{
    if (ptr_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "mem_alloc: ptr_out is NULL");
    RETURN_WITH_DEVICE(kind, ordinal, device->ops->mem_alloc(device, n_bytes, ptr_out));
}

gyre_status gyre_mem_free(void *ptr, gyre_device_kind kind)
{
    if (ptr == NULL)
        return GYRE_SUCCESS;
    RETURN_WITH_DEVICE(kind, -1, device->ops->mem_free(device, ptr));
}

gyre_status gyre_stream_create(gyre_stream *stream_out, gyre_device_kind kind, int ordinal)
{
    if (stream_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "stream_create: stream_out is NULL");
    RETURN_WITH_DEVICE(kind, ordinal, device->ops->stream_create(device, stream_out));
}

gyre_status gyre_stream_destroy(gyre_stream stream, gyre_device_kind kind)
{
    RETURN_WITH_DEVICE(kind, -1, device->ops->stream_destroy(device, stream));
}

gyre_status gyre_stream_synchronize(gyre_stream stream, gyre_device_kind kind)
{
    RETURN_WITH_DEVICE(kind, -1, device->ops->stream_synchronize(device, stream));
}

gyre_status gyre_stream_query(gyre_stream stream, gyre_device_kind kind)
{
    RETURN_WITH_DEVICE(kind, -1, device->ops->stream_query(device, stream));
}
