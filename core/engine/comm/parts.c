/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm/parts.h"

#include "core/engine/comm/local.h"
#include "core/engine/plan/plan.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
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
    /* An older caller's missing fields keep their defaults. */
    memcpy(config_out, given, gyre_min_u64(given->struct_bytes, sizeof(*config_out)));
    config_out->struct_bytes = sizeof(*config_out);
    if (config_out->refusal != NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s", config_out->refusal);
    return GYRE_SUCCESS;
}

/* config.net replaces NET of @params, which transports read; the resolved `net` lies in it. */
static gyre_status resolve_config(const gyre_config *given, struct gyre_params *params,
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
        config.min_channels > config.max_channels) {
        const gyre_status status =
            gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                      "min_channels %d is above max_channels %d (%s and %s set them, too)",
                      config.min_channels, config.max_channels,
                      gyre_param_called(params, GYRE_PARAM_MIN_NCHANNELS),
                      gyre_param_called(params, GYRE_PARAM_MAX_NCHANNELS));
        if (given->min_channels != GYRE_CONFIG_UNDEFINED)
            return status;
        config.min_channels = config.max_channels; /* a number of NCCL_MIN_NCHANNELS gives way */
        GYRE_TRY(gyre_param_forgive(params, GYRE_PARAM_MIN_NCHANNELS, status));
    }
    bool is_known = config.transport == NULL;
    for (int i = 0; gyre_transports[i] != NULL && !is_known; i++)
        is_known = gyre_text_same(gyre_transports[i]->name, config.transport);
    if (!is_known)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "config.transport \"%s\" is none of: p2p shm ib socket", config.transport);
    const bool has_net = config.net != NULL && config.net[0] != '\0';
    if (has_net)
        GYRE_TRY(gyre_param_override(params, GYRE_PARAM_NET, "config.net", config.net));
    config.net = has_net ? gyre_param_text(params, GYRE_PARAM_NET) : NULL;
    *config_out = config;
    return GYRE_SUCCESS;
}

void gyre_comm_free(gyre_comm *comm)
{
    gyre_registry_wait_unpinned(comm);
    if (comm->health != NULL)
        gyre_health_close(comm->health);
    /* proxies may still raise the fault while the executor is closed */
    gyre_fault_hook(&comm->self.fault, NULL, NULL);
    gyre_plan_cache_close(&comm->plans);
    gyre_observe_times(comm->observing);
    gyre_put_peers_detach(comm);
    if (comm->executor != NULL)
        comm->executor->ops->close(comm->executor);
    gyre_algo_file_free(&comm->algo_file);
    gyre_tuning_free(&comm->tuning);
    gyre_put_peers_close(comm);
    gyre_signals_fini(comm);
    gyre_windows_fini(comm);
    gyre_links_close(&comm->links);
    gyre_trace_close(comm->self.trace);
    if (comm->self.bootstrap != NULL)
        comm->self.bootstrap->ops->close(comm->self.bootstrap);
    if (comm->self.device != NULL)
        comm->self.device->ops->close(comm->self.device);
    gyre_origin_release(comm->origin);
    gyre_metrics_close(comm->metrics);
    gyre_observing_close(comm->observing);
    free(comm->n_p2p);
    free(comm->latest);
    gyre_call_log_fini(&comm->call_log);
    gyre_registrations_fini(&comm->registrations);
    gyre_fault_fini(&comm->self.fault);
    free((char *)(uintptr_t)comm->self.config.transport);
    gyre_registry_remove(comm); /* last: a thread that waits for this finds everything freed */
    free(comm);
}

gyre_status gyre_comm_make_local(const gyre_config *given, gyre_comm **comm_out)
{
    gyre_comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return gyre_fail_errno(ENOMEM, "communicator");
    gyre_authenticate_prepare();
    gyre_fault_init(&comm->self.fault);
    gyre_call_log_init(&comm->call_log);
    gyre_registrations_init(&comm->registrations);
    pthread_mutex_init(&comm->puts.lock, NULL);
    comm->self.job = (uint64_t)(uintptr_t)comm; /* until this rank has joined the rendezvous */
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_status status;
    GYRE_TRY_GOTO(status, gyre_params_load(&comm->self.params), undo);
    GYRE_TRY_GOTO(status, resolve_config(given, &comm->self.params, &config), undo);
    GYRE_TRY_GOTO(status, gyre_plugins_load(&comm->self.params), undo);
    if (gyre_param_is_set(&comm->self.params, GYRE_PARAM_TUNING_FILE)) {
        status = gyre_tuning_load(gyre_param_text(&comm->self.params, GYRE_PARAM_TUNING_FILE),
                                  &comm->tuning);
        if (status != GYRE_SUCCESS)
            GYRE_TRY_GOTO(status, gyre_fail_context(status, "GYRE_TUNING_FILE"), undo);
    }
    if (gyre_param_is_set(&comm->self.params, GYRE_PARAM_ALGO_FILE))
        GYRE_TRY_GOTO(status,
                      gyre_algo_file_load(gyre_param_text(&comm->self.params, GYRE_PARAM_ALGO_FILE),
                                          "GYRE_ALGO_FILE", &comm->algo_file),
                      undo);
    comm->self.config = config;
    comm->self.config.name = NULL;
    comm->self.config.transport = config.transport != NULL ? strdup(config.transport) : NULL;
    if (config.transport != NULL && comm->self.config.transport == NULL)
        GYRE_TRY_GOTO(status, gyre_fail_errno(ENOMEM, "communicator"), undo);
    snprintf(comm->self.name, sizeof(comm->self.name), "%s",
             config.name != NULL ? config.name : "");
    const struct gyre_device_ops *ops;
    GYRE_TRY_GOTO(status, gyre_device_find((gyre_device_kind)config.device_kind, &ops), undo);
    GYRE_TRY_GOTO(status, ops->open(config.device_ordinal, &comm->self.device), undo);
    GYRE_TRY_GOTO(status, ops->info(comm->self.device, &comm->self.device_info), undo);
    comm->self.config.device_kind = (int)comm->self.device_info.kind;
    comm->self.config.device_ordinal = comm->self.device_info.ordinal;
    *comm_out = comm;
    return GYRE_SUCCESS;
undo:
    gyre_comm_free(comm);
    return status;
}

gyre_status gyre_comm_check_local(const gyre_config *config)
{
    gyre_comm *comm = NULL;
    GYRE_TRY(gyre_comm_make_local(config, &comm));
    gyre_comm_free(comm);
    return GYRE_SUCCESS;
}

static void on_fault(void *context)
{
    gyre_comm *comm = context;
    comm->executor->ops->abort(comm->executor);
    gyre_links_wake(&comm->links);
    /* The health thread tells the other ranks at once, because the program may exit on the
     * error. */
    comm->self.bootstrap->ops->wake(comm->self.bootstrap);
}

/* One rank's failure is an error on every rank at once, and no rank waits for a peer that gave
 * up. */
static gyre_status end_together(gyre_comm *comm, gyre_status status)
{
    if (status != GYRE_SUCCESS) {
        char text[GYRE_CAUSE_MAX_BYTES];
        status = gyre_origin_settle(&comm->self, comm->origin, status);
        snprintf(text, sizeof(text), "init failed on rank %d: %.900s", comm->self.rank,
                 gyre_cause());
        comm->self.bootstrap->ops->fail(comm->self.bootstrap, text);
        return status;
    }
    uint8_t done = 1;
    GYRE_FREED uint8_t *all = malloc((size_t)comm->self.n_ranks);
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    status = gyre_rank_gather(&comm->self, &done, sizeof(done), all);
    return status == GYRE_SUCCESS ? status : gyre_origin_settle(&comm->self, comm->origin, status);
}

static gyre_status open_links(gyre_comm *comm)
{
    struct gyre_rank *self = &comm->self;
    const struct gyre_trace_config trace = {
        .file = gyre_param_text(&self->params, GYRE_PARAM_TRACE_FILE),
        .n_events = (uint32_t)gyre_param_number(&self->params, GYRE_PARAM_TRACE_EVENTS),
        .rank = self->rank,
        .n_ranks = self->n_ranks,
        .file_rank = self->file_rank,
    };
    if (trace.file[0] != '\0')
        GYRE_TRY(gyre_trace_open(&trace, &self->trace));
    GYRE_FREED struct gyre_links_row *rows =
        calloc(GYRE_MAX_AGREED, sizeof(*rows)); /* too many for a stack */
    if (rows == NULL)
        return gyre_fail_errno(ENOMEM, "the list of what ranks agree on");
    const struct gyre_links_options options = {.rows = rows,
                                               .n_rows = gyre_plan_list_agreed(&comm->tuning, rows),
                                               .algo_hash = comm->algo_file.content.hash,
                                               .tuning_hash = comm->tuning.hash,
                                               .newest_number = gyre_registry_raise_number(0)};
    GYRE_TRY(gyre_links_open(self, &options, &comm->links));
    (void)gyre_registry_raise_number(self->number);
    return GYRE_SUCCESS;
}

static gyre_status open_calls(gyre_comm *comm)
{
    const struct gyre_plan_config config = {
        .self = &comm->self,
        .links = &comm->links,
        .windows = &comm->windows,
        .tuning = &comm->tuning,
        .algo_file = &comm->algo_file,
        .executor = comm->executor,
    };
    comm->n_p2p = calloc((size_t)comm->self.n_ranks * 2, sizeof(*comm->n_p2p));
    comm->latest = calloc((size_t)comm->self.n_ranks * 2, sizeof(*comm->latest));
    if (comm->n_p2p == NULL || comm->latest == NULL)
        return gyre_fail_errno(ENOMEM, "communicator");
    GYRE_TRY(gyre_plan_cache_open(&config, &comm->plans));
    comm->recorded = gyre_trace_use(comm->self.trace, GYRE_TRACE_CALLER);
    GYRE_TRY(gyre_metrics_open(comm, &comm->metrics));
    gyre_store_release_u32(&comm->has_metrics, 1);
    return GYRE_SUCCESS;
}

/* On a transport's thread. */
static void tell_connection(void *context, const gyre_connection_event *event)
{
    const gyre_comm *comm = context;
    if (gyre_load_acquire_u32(&comm->has_metrics) != 0)
        gyre_metrics_count_connection(comm->metrics, event);
    if (gyre_load_acquire_u32(&comm->has_observer) != 0)
        gyre_observe_connection(comm->observing, event);
}

static gyre_status connect_ranks(gyre_comm *comm)
{
    if (comm->self.name[0] == '\0')
        snprintf(comm->self.name, sizeof(comm->self.name), "%08x",
                 (unsigned)(comm->self.job ^ comm->self.job >> 32));
    comm->self.stage_ns = gyre_now_ns();
    comm->self.tell = tell_connection;
    comm->self.tell_context = comm;
    GYRE_TRY(end_together(comm, open_links(comm)));
    /* Collective, because clocks are measured between hosts. */
    const struct gyre_rank *self = &comm->self;
    struct gyre_trace_identity identity = {
        .communicator = self->name,
        .job = self->job,
        .number = self->number,
        .process_id = comm->links.infos[self->rank].process_id,
        .shares_a_thread = self->device_info.kind == GYRE_DEVICE_HOST,
    };
    GYRE_TRY(gyre_links_measure_clock(self, &comm->links, &identity.clock_offset_ns,
                                      &identity.clock_error_ns));
    if (self->trace != NULL)
        gyre_trace_identify(self->trace, &identity);
    gyre_links_log(&comm->self, &comm->links);
    /* It takes all multiprocessors for a moment: off where the user limits their number. */
    const bool places_blocks =
        gyre_param_number(&comm->self.params, GYRE_PARAM_BLOCK_PLACEMENT) != 0 &&
        comm->self.config.sm_budget <= 0;
    const struct gyre_executor_config config = {
        .device = comm->self.device,
        .rank = comm->self.rank,
        .n_ranks = comm->self.n_ranks,
        .spec = comm->links.spec,
        .connectors = comm->links.connectors,
        .block_placement_bytes =
            places_blocks ? gyre_kernel_limits[GYRE_LIMIT_PLACEMENT_BYTES].number : UINT64_MAX,
        .overlaps_launches = gyre_param_number(&comm->self.params, GYRE_PARAM_LAUNCH_OVERLAP) != 0,
        .n_gpu_sharers = comm->links.n_gpu_sharers,
        .fault = &comm->self.fault,
        .trace = comm->self.trace,
        .help = comm->links.is_proxied ? gyre_links_help : NULL, /* NULL: no slots to move */
        .help_context = &comm->links,
    };
    const struct gyre_executor_ops *ops;
    GYRE_TRY(gyre_executor_find((gyre_device_kind)comm->self.device_info.kind, &ops));
    GYRE_TRY(ops->open(&config, &comm->executor));
    gyre_fault_hook(&comm->self.fault, on_fault, comm);
    if (gyre_fault_is_raised(&comm->self.fault)) /* before the hook was set */
        comm->executor->ops->abort(comm->executor);
    gyre_rank_end_stage(&comm->self, "opening the executor");
    GYRE_TRY(open_calls(comm));
    GYRE_TRY(gyre_health_open(comm, &comm->health));
    gyre_rank_end_stage(&comm->self, "opening plans and watching over the ranks");
    comm->is_made = true;
    return GYRE_SUCCESS;
}

gyre_status gyre_comm_connect(gyre_comm *comm)
{
    gyre_status status = connect_ranks(comm);
    if (status == GYRE_SUCCESS)
        return status;
    /* a fault that was raised before (by an abort, by a proxy) stays */
    gyre_fault_raise(&comm->self.fault, status, gyre_cause());
    status = gyre_fault_status(&comm->self.fault);
    comm->self.bootstrap->ops->fail(comm->self.bootstrap, comm->self.fault.cause);
    return status;
}

struct gyre_plan_cache *gyre_comm_plans(gyre_comm *comm)
{
    return &comm->plans;
}
