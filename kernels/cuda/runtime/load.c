/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/lower.h"
#include "kernels/cuda/runtime/state.h"

#include <stdlib.h>

#define DEFAULT_THREADS 512
#define MAX_THREADS     576 /* SIMPLE, without two service warps */
/* struct connection in device/block.cuh. */
#define CONNECTION_BYTES 80

static uint32_t most_workers(const struct gyre_load_config *config)
{
    uint32_t most = 0;
    for (uint32_t v = 0; v < gyre_load_variants(config); v++)
        most = (uint32_t)gyre_max_u64(most, gyre_load_program(config, v)->n_workers);
    return most;
}

void gyre_cuda_unload(struct gyre_executor *base, struct gyre_loaded *loaded)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    if (loaded == NULL)
        return;
    pthread_mutex_lock(&executor->lock);
    gyre_cuda_forget_program(executor, loaded);
    gyre_cuda_arena_give_back(loaded->block, executor->base.n_launched);
    pthread_mutex_unlock(&executor->lock);
    free(loaded->copies);
    free(loaded->program);
    free(loaded);
}

static gyre_status load_steps(struct gyre_cuda_executor *executor,
                              const struct gyre_load_config *config, struct gyre_loaded *loaded)
{
    struct gyre_cuda_shape shape;
    GYRE_TRY(gyre_cuda_lower(&executor->spec, executor->connectors, executor->n_ranks, config,
                             &loaded->program, &shape));
    struct gyre_fused_program found;
    gyre_fused_find(config->program, &found);
    const struct gyre_fused_call call = {.proto = config->proto,
                                         .pattern = found.pattern,
                                         .is_placed = found.is_placed,
                                         .in_host_memory = config->in_host_memory,
                                         .n_peers = found.n_peers,
                                         .depth = executor->spec.depth,
                                         .n_threads = loaded->n_threads,
                                         .most_shared_bytes = executor->most_shared_bytes};
    if (!config->by_copy_engines && loaded->n_variants == 1 && call.pattern != GYRE_FUSED_NONE &&
        gyre_cuda_fused_resolve(&executor->spec, executor->connectors, config, &found,
                                &loaded->fused))
        loaded->fused_call = call;
    loaded->tile_bytes =
        gyre_min_u32(gyre_slot_payload_bytes(config->proto, shape.slot_bytes), shape.proxied_bytes);
    const uint32_t n_parts = gyre_program_n_parts(config->program, GYRE_OPERAND_SCRATCH);
    loaded->tile_bytes =
        gyre_min_u32(loaded->tile_bytes,
                     gyre_cuda_most_tile_bytes((uint32_t)executor->n_ranks, loaded->n_areas > 0,
                                               loaded->n_areas > 1 && loaded->n_areas >= n_parts));
    loaded->tile_bytes = gyre_piece_bytes(loaded->tile_bytes, config->program->max_range);
    loaded->area_bytes = (uint32_t)gyre_round_up(loaded->tile_bytes, 256);
    loaded->max_connections = shape.max_connections;
    loaded->is_proxied = shape.is_proxied;
    for (uint32_t v = 0; v < loaded->n_variants; v++)
        loaded->n_transfers = (uint32_t)gyre_max_u64(
            loaded->n_transfers, gyre_program_transfers(gyre_load_program(config, v)));
    loaded->inline_words = loaded->program->n_bytes <= GYRE_CUDA_INLINE_BYTES
                               ? (uint32_t)gyre_div_round_up(loaded->program->n_bytes, 16)
                               : 0;
    loaded->shares_steps = loaded->inline_words == 0 && shape.max_steps <= GYRE_CUDA_SHARED_STEPS;
    /* Each tile in flight needs slots of its own. The depth is the same on all ranks. */
    const uint32_t depth = config->program->min_depth;
    loaded->n_in_flight = config->proto == GYRE_PROTO_SIMPLE &&
                                  depth * GYRE_CUDA_TILES_IN_FLIGHT <= executor->spec.depth
                              ? GYRE_CUDA_TILES_IN_FLIGHT
                              : 1;
    loaded->posts_late = shape.max_uses <= executor->spec.depth;
    /* As open_block() in device/block.cuh lays them out. */
    uint32_t bytes = shape.max_connections * CONNECTION_BYTES + loaded->inline_words * 16;
    if (loaded->shares_steps)
        bytes += shape.max_steps * (uint32_t)sizeof(struct gyre_cuda_step);
    if (loaded->proto != GYRE_PROTO_SIMPLE)
        bytes += (uint32_t)gyre_min_u64(shape.max_steps, GYRE_CUDA_LINE_STEPS) *
                 GYRE_CUDA_LINE_STEP_BYTES;
    loaded->shared_bytes = bytes + 16;
    if (loaded->shared_bytes > executor->most_shared_bytes)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "algorithm %s: %u connections of one worker",
                         config->program->algorithm, shape.max_connections);
    pthread_mutex_lock(&executor->lock);
    gyre_status status =
        gyre_cuda_reserve_scratch(executor, (size_t)loaded->n_areas * loaded->n_in_flight *
                                                loaded->n_channels * loaded->area_bytes);
    if (status == GYRE_SUCCESS)
        status = gyre_cuda_make_resident(executor, loaded);
    pthread_mutex_unlock(&executor->lock);
    return status;
}

/* Copy engines run the copy tail. */
static gyre_status load_in_two(struct gyre_cuda_executor *executor,
                               const struct gyre_load_config *config, struct gyre_loaded *loaded)
{
    struct gyre_load_config first_config = *config;
    struct gyre_program first = *config->program;
    struct gyre_worker worker;
    GYRE_TRY(gyre_cuda_copies_make(&executor->spec, executor->connectors, executor->n_ranks, config,
                                   &loaded->copies));
    first.n_steps = gyre_program_copy_tail(config->program);
    if (first.n_steps == 0) {
        loaded->n_connections = 0; /* no slot holds a tile */
        return GYRE_SUCCESS;
    }
    worker = first.workers[0];
    worker.n_steps = first.n_steps;
    first.workers = &worker;
    first_config.program = &first;
    first_config.variants = NULL; /* one host has one variant */
    return load_steps(executor, &first_config, loaded);
}

gyre_status gyre_cuda_load(struct gyre_executor *base, const struct gyre_load_config *config,
                           struct gyre_loaded **loaded_out)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    const struct gyre_program *program = config->program;
    if (config->n_channels == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "a loaded program needs at least 1 channel");
    if (config->proto == GYRE_PROTO_LAMPORT && !gyre_collectives[program->coll].reduces)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "protocol lamport is for sums of floating point; %s copies whatever there "
                         "is",
                         gyre_collectives[program->coll].name);
    if (program->min_depth > executor->spec.depth)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "algorithm %s needs FIFOs of %u slots; this communicator has %u",
                         program->algorithm, program->min_depth, executor->spec.depth);
    const uint32_t n_blocks = config->n_channels * most_workers(config);
    if (n_blocks > executor->n_sms)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "algorithm %s in %u channels takes %u blocks, which must all run at the "
                         "same time; the GPU has %u multiprocessors",
                         program->algorithm, config->n_channels, n_blocks, executor->n_sms);
    const uint32_t most = config->proto == GYRE_PROTO_SIMPLE ? MAX_THREADS : GYRE_CUDA_LINE_THREADS;
    if (config->n_threads % 32 != 0 || config->n_threads > most)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%u threads a block: a multiple of 32 up to %u is possible",
                         config->n_threads, most);
    struct gyre_loaded *loaded = calloc(1, sizeof(*loaded));
    if (loaded == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot load algorithm %s",
                         config->program->algorithm);
    loaded->proto = config->proto;
    loaded->n_channels = config->n_channels;
    loaded->n_variants = gyre_load_variants(config);
    loaded->n_workers = most_workers(config);
    loaded->n_chunks = program->n_chunks;
    loaded->channel_stride = program->n_lanes * 2U;
    loaded->n_threads = config->n_threads != 0 ? config->n_threads : DEFAULT_THREADS;
    loaded->in_blocks = gyre_collectives[program->coll].in_blocks;
    loaded->out_blocks = gyre_collectives[program->coll].out_blocks;
    for (uint32_t v = 0; v < loaded->n_variants; v++) {
        const struct gyre_program *variant = gyre_load_program(config, v);
        loaded->n_connections =
            (uint32_t)gyre_max_u64(loaded->n_connections, variant->n_connections);
        loaded->n_areas = (uint16_t)gyre_max_u64(loaded->n_areas, variant->n_scratch);
        for (uint32_t i = 0; i < variant->n_steps; i++)
            loaded->reduces = loaded->reduces || variant->steps[i].n_ins > 1;
        loaded->is_placed = loaded->is_placed || variant->is_placed != 0;
    }
    gyre_status status = config->by_copy_engines ? load_in_two(executor, config, loaded)
                                                 : load_steps(executor, config, loaded);
    if (status == GYRE_SUCCESS)
        status = gyre_cuda_record_program(executor, config, loaded);
    if (status == GYRE_SUCCESS)
        status = gyre_cuda_know_program(executor, config, loaded);
    if (status != GYRE_SUCCESS) {
        gyre_cuda_unload(base, loaded);
        return status;
    }
    *loaded_out = loaded;
    return GYRE_SUCCESS;
}
