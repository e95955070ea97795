/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/host_exec.h"

#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

static gyre_status check(const struct gyre_host_executor *executor,
                         const struct gyre_load_config *config)
{
    if (config->n_channels == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "a loaded program needs at least 1 channel");
    if (config->proto != GYRE_PROTO_SIMPLE)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "the host executor has no protocol %d, only %s",
                         (int)config->proto, gyre_proto_names[GYRE_PROTO_SIMPLE]);
    if (config->net_proto != GYRE_PROTO_SIMPLE &&
        (config->net_proto != GYRE_PROTO_LL || executor->line_ends == NULL))
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "the connections between hosts have no slots for protocol %s",
                         gyre_proto_names[config->net_proto]);
    for (uint32_t v = 0; v < gyre_load_variants(config); v++) {
        const struct gyre_program *program = gyre_load_program(config, v);
        if (executor->spec.slot_bytes[GYRE_PROTO_SIMPLE] == 0 && program->n_connections > 0)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "the connections have no slots for protocol %s",
                             gyre_proto_names[GYRE_PROTO_SIMPLE]);
        if (program->min_depth > executor->spec.depth)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "algorithm %s needs FIFOs of %u slots; this communicator has %u",
                             program->algorithm, program->min_depth, executor->spec.depth);
    }
    return GYRE_SUCCESS;
}

static gyre_status resolve_channel(const struct gyre_host_executor *executor,
                                   const struct gyre_load_config *config, uint32_t channel,
                                   struct gyre_loaded *loaded)
{
    const struct gyre_program *program = gyre_load_program(config, channel % loaded->n_variants);
    for (uint32_t i = 0; i < program->n_connections; i++) {
        const struct gyre_connection *connection = &program->connections[i];
        const uint32_t peer =
            config->rank_of != NULL ? config->rank_of[connection->peer] : connection->peer;
        const uint32_t fifo = channel * program->n_lanes + connection->lane;
        struct gyre_host_end *end = NULL;
        if (peer < executor->n_ranks && fifo < executor->spec.n_fifos) {
            const uint32_t index =
                gyre_connector_index(&executor->spec, peer, fifo, connection->is_send != 0);
            end = &executor->ends[index];
            if (end->is_proxied && config->net_proto == GYRE_PROTO_LL)
                end = &executor->line_ends[index];
        }
        if (end == NULL || end->inbox == NULL)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "rank %d has no connection %s rank %u (FIFO %u) for algorithm %s",
                             executor->rank, connection->is_send ? "to" : "from", peer, fifo,
                             program->algorithm);
        loaded->ends[channel * loaded->n_connections + i] = end;
        struct gyre_connection *named =
            &loaded->connections[channel % loaded->n_variants * loaded->n_connections + i];
        *named = *connection;
        named->peer = (uint16_t)peer;
        loaded->area_bytes = gyre_min_u32(
            loaded->area_bytes,
            (end->proto == GYRE_PROTO_LL ? gyre_slot_payload_bytes(GYRE_PROTO_LL, end->slot_bytes)
                                         : end->slot_bytes));
    }
    return GYRE_SUCCESS;
}

static void free_loaded(struct gyre_loaded *loaded)
{
    free(loaded->names);
    free(loaded->workers);
    free(loaded->steps);
    free(loaded->ends);
    free(loaded->connections);
    free(loaded->scratch);
    free(loaded);
}

/* At least one, so that NULL means failure. */
static void *allocate(uint64_t n_elems, size_t elem_bytes)
{
    return calloc(n_elems > 0 ? (size_t)n_elems : 1, elem_bytes);
}

static void count(const struct gyre_load_config *config, struct gyre_loaded *loaded,
                  uint64_t *n_steps_out)
{
    *n_steps_out = 0;
    loaded->n_variants = gyre_load_variants(config);
    for (uint32_t v = 0; v < loaded->n_variants; v++) {
        const struct gyre_program *program = gyre_load_program(config, v);
        *n_steps_out += program->n_steps;
        loaded->n_workers = (uint32_t)gyre_max_u64(loaded->n_workers, program->n_workers);
        loaded->n_connections =
            (uint32_t)gyre_max_u64(loaded->n_connections, program->n_connections);
        loaded->n_scratch = (uint32_t)gyre_max_u64(loaded->n_scratch, program->n_scratch);
        loaded->max_range = (uint32_t)gyre_max_u64(loaded->max_range, program->max_range);
        loaded->is_placed = loaded->is_placed || program->is_placed != 0;
    }
    for (uint32_t channel = 0; channel < config->n_channels; channel++)
        loaded->n_runners += gyre_load_program(config, channel % loaded->n_variants)->n_workers;
}

gyre_status gyre_host_load(struct gyre_executor *base, const struct gyre_load_config *config,
                           struct gyre_loaded **loaded_out)
{
    const struct gyre_host_executor *executor = (const struct gyre_host_executor *)base;
    const struct gyre_program *program = config->program;
    uint64_t n_steps;
    gyre_status status;
    GYRE_TRY(check(executor, config));
    struct gyre_loaded *loaded = calloc(1, sizeof(*loaded));
    if (loaded == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot load algorithm %s", program->algorithm);
    loaded->n_users = 1;
    loaded->n_channels = config->n_channels;
    loaded->n_chunks = program->n_chunks;
    count(config, loaded, &n_steps);
    loaded->area_bytes = (uint32_t)gyre_max_u64(executor->spec.slot_bytes[GYRE_PROTO_SIMPLE],
                                                executor->spec.ring_slot_bytes);
    memcpy(loaded->algorithm, program->algorithm, sizeof(loaded->algorithm));
    loaded->coll = (uint8_t)program->coll;
    loaded->in_blocks = gyre_collectives[program->coll].in_blocks;
    loaded->out_blocks = gyre_collectives[program->coll].out_blocks;
    loaded->workers =
        allocate((uint64_t)loaded->n_variants * loaded->n_workers, sizeof(*loaded->workers));
    loaded->steps = allocate(n_steps, sizeof(*loaded->steps));
    loaded->ends =
        allocate((uint64_t)config->n_channels * loaded->n_connections, sizeof(*loaded->ends));
    loaded->connections = allocate((uint64_t)loaded->n_variants * loaded->n_connections,
                                   sizeof(*loaded->connections));
    if (program->names != NULL)
        loaded->names = allocate(program->n_ranks, sizeof(*loaded->names));
    if (loaded->workers == NULL || loaded->steps == NULL || loaded->ends == NULL ||
        loaded->connections == NULL || (program->names != NULL && loaded->names == NULL)) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot load algorithm %s: %llu steps",
                           program->algorithm, (unsigned long long)n_steps);
        goto fail_loaded;
    }
    if (program->names != NULL)
        memcpy(loaded->names, program->names, program->n_ranks * sizeof(*loaded->names));
    n_steps = 0;
    for (uint32_t v = 0; v < loaded->n_variants; v++) {
        const struct gyre_program *variant = gyre_load_program(config, v);
        for (uint32_t i = 0; i < variant->n_workers; i++) {
            struct gyre_worker *worker = &loaded->workers[v * loaded->n_workers + i];
            *worker = variant->workers[i];
            worker->first_step += (uint32_t)n_steps;
        }
        for (uint32_t i = 0; i < variant->n_steps; i++)
            loaded->steps[n_steps++] = variant->steps[i];
    }
    for (uint32_t channel = 0; channel < config->n_channels; channel++)
        GYRE_TRY_GOTO(status, resolve_channel(executor, config, channel, loaded), fail_loaded);
    for (unsigned kind = 0; kind < GYRE_OPERAND_CONNECTION; kind++)
        loaded->n_parts[kind] = gyre_program_n_parts(program, (enum gyre_operand_kind)kind);
    loaded->area_bytes = gyre_piece_bytes(loaded->area_bytes, loaded->max_range);
    const uint64_t n_areas = (uint64_t)config->n_channels * loaded->n_scratch;
    loaded->scratch = allocate(n_areas, loaded->area_bytes);
    if (loaded->scratch == NULL) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY,
                           "cannot load algorithm %s: %llu scratch areas of %u bytes",
                           program->algorithm, (unsigned long long)n_areas, loaded->area_bytes);
        goto fail_loaded;
    }
    GYRE_TRY_GOTO(status, gyre_host_trace_load(executor, config, loaded), fail_loaded);
    *loaded_out = loaded;
    return GYRE_SUCCESS;
fail_loaded:
    free_loaded(loaded);
    return status;
}

void gyre_host_loaded_release(struct gyre_loaded *loaded)
{
    if (--loaded->n_users == 0)
        free_loaded(loaded);
}

void gyre_host_unload(struct gyre_executor *base, struct gyre_loaded *loaded)
{
    struct gyre_host_executor *executor = (struct gyre_host_executor *)base;
    if (loaded == NULL)
        return;
    pthread_mutex_lock(&executor->lock);
    gyre_host_loaded_release(loaded);
    pthread_mutex_unlock(&executor->lock);
}
