/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA executor: programs are lowered and copied to the GPU when they are loaded; a launch
 * fills one parameter block and makes one kernel launch. Everything that changes from call to call
 * (counters, completion, abort) lives in device memory and is kept by the kernels themselves,
 * so captured launches replay without the host.
 */
#include "kernels/cuda/cuda_exec.h"

#include "core/base/sync.h"
#include "core/base/util.h"
#include "core/device/cuda_error.h"
#include "kernels/cuda/cuda_program.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_THREADS  512
#define MAX_THREADS      576 /* of a block, without SIMPLE's two warps of service */
#define MAX_LINE_THREADS 512
#define SERVICE_THREADS  64
/* As in block.cuh: a worker's connections and steps, in shared memory. */
#define CONNECTION_BYTES 80
#define MAX_SHARED_STEPS 256
#define MAX_SHARED_BYTES (200 * 1024)

struct gyre_loaded {
    struct gyre_cuda_program *program;
    unsigned char *device_program;
    unsigned char *scratch;
    uint32_t n_channels;
    uint32_t n_workers;
    uint32_t n_chunks;
    uint32_t n_connections;
    uint32_t channel_stride;
    uint32_t area_bytes;
    uint32_t n_threads;
    uint32_t shared_bytes;
    enum gyre_proto proto;
    uint16_t n_areas;
    bool in_blocks;
    bool out_blocks;
    bool reduces;
    uint32_t max_connections;
    uint32_t inline_words; /* 0 = too long for kernel parameters */
    uint16_t n_abreast;
    bool posts_late;
    struct gyre_cuda_exchange exchange;
};

struct gyre_cuda_executor {
    struct gyre_executor base; /* first: what the interface hands out */
    struct gyre_device *device;
    int rank;
    int n_ranks;
    uint32_t n_sms;
    struct gyre_fifo_spec spec;
    struct gyre_connector *connectors; /* host copy, for lowering */
    struct gyre_connector *device_connectors;
    uint64_t *counters; /* [protocol][connector], device memory */
    struct gyre_cuda_control *control;
    struct gyre_cuda_board *board;
    struct gyre_fault *fault;

    pthread_mutex_t lock; /* guards what follows: the order of launches */
    cudaStream_t last_stream;
    cudaEvent_t last_event; /* recorded after every launch once there are several streams */
    bool has_streams;       /* more than one was seen */
    bool has_launched;
    uint64_t last_capture; /* id of the capture that last_stream was in, 0 = none */
    union {
        struct gyre_cuda_args_one one;
        struct gyre_cuda_args_many many;
        struct gyre_cuda_args_exchange exchange;
    } args;
};

static struct gyre_cuda_executor *own(struct gyre_executor *base)
{
    return (struct gyre_cuda_executor *)base;
}

static uint32_t n_ends(const struct gyre_cuda_executor *executor)
{
    return (uint32_t)executor->n_ranks * executor->spec.n_fifos * 2;
}

/* ---- life --------------------------------------------------------------------------------- */

static void free_executor(struct gyre_cuda_executor *executor)
{
    struct gyre_device *device = executor->device;
    if (executor->last_event != NULL)
        (void)cudaEventDestroy(executor->last_event);
    (void)device->ops->mem_free(device, executor->device_connectors);
    (void)device->ops->mem_free(device, executor->counters);
    (void)device->ops->mem_free(device, executor->control);
    (void)device->ops->host_free(device, executor->board);
    pthread_mutex_destroy(&executor->lock);
    free(executor->connectors);
    free(executor);
}

static gyre_status zeroed(struct gyre_device *device, size_t n_bytes, void **ptr_out)
{
    GYRE_TRY(device->ops->mem_alloc(device, n_bytes, ptr_out));
    return device->ops->zero(device, *ptr_out, n_bytes);
}

static gyre_status allocate_all(struct gyre_cuda_executor *executor)
{
    struct gyre_device *device = executor->device;
    const size_t connectors_bytes = n_ends(executor) * sizeof(struct gyre_connector);
    void *ptr = NULL;
    GYRE_TRY(zeroed(device, n_ends(executor) * sizeof(uint64_t) * GYRE_N_PROTOS, &ptr));
    executor->counters = ptr;
    GYRE_TRY(zeroed(device, sizeof(*executor->control), &ptr));
    executor->control = ptr;
    GYRE_TRY(device->ops->mem_alloc(device, connectors_bytes, &ptr));
    executor->device_connectors = ptr;
    GYRE_TRY(device->ops->host_alloc(device, sizeof(*executor->board), &ptr));
    executor->board = ptr;
    return device->ops->copy(device, executor->device_connectors, executor->connectors,
                             connectors_bytes);
}

static gyre_status make_event(struct gyre_cuda_executor *executor)
{
    int previous;
    GYRE_TRY(gyre_cuda_enter(executor->device->ordinal, &previous));
    const cudaError_t error =
        cudaEventCreateWithFlags(&executor->last_event, cudaEventDisableTiming);
    gyre_cuda_leave(executor->device->ordinal, previous);
    return error == cudaSuccess ? GYRE_SUCCESS : gyre_cuda_fail(error, "cudaEventCreateWithFlags");
}

static gyre_status cuda_open(const struct gyre_executor_config *config,
                             struct gyre_executor **executor_out)
{
    struct gyre_device_info info;
    gyre_status status;
    GYRE_TRY(config->device->ops->info(config->device, &info));
    struct gyre_cuda_executor *executor = calloc(1, sizeof(*executor));
    if (executor == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "the executor of rank %d", config->rank);
    executor->base.ops = &gyre_executor_cuda;
    executor->device = config->device;
    executor->rank = config->rank;
    executor->n_ranks = config->n_ranks;
    executor->n_sms = info.n_sms;
    executor->spec = config->spec;
    executor->fault = config->fault;
    pthread_mutex_init(&executor->lock, NULL);
    const size_t connectors_bytes = n_ends(executor) * sizeof(struct gyre_connector);
    executor->connectors = malloc(connectors_bytes > 0 ? connectors_bytes : 1);
    if (executor->connectors == NULL) {
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%u connectors", n_ends(executor));
        goto fail;
    }
    memcpy(executor->connectors, config->connectors, connectors_bytes);
    GYRE_TRY_GOTO(status, allocate_all(executor), fail);
    GYRE_TRY_GOTO(status, make_event(executor), fail);
    *executor_out = &executor->base;
    return GYRE_SUCCESS;
fail:
    free_executor(executor);
    return gyre_fail_context(status, "the executor of rank %d", config->rank);
}

static void cuda_abort(struct gyre_executor *base)
{
    gyre_store_release_u32(&own(base)->board->abort, 1);
}

static void cuda_close(struct gyre_executor *base)
{
    if (base == NULL)
        return;
    cuda_abort(base);
    free_executor(own(base)); /* freeing device memory waits for kernels that still end */
}

static const struct gyre_pulse *cuda_pulse(const struct gyre_executor *base)
{
    return &((const struct gyre_cuda_executor *)base)->board->pulse;
}

gyre_status gyre_cuda_executor_set_epoch(struct gyre_executor *base, enum gyre_proto proto,
                                         uint64_t n_slots)
{
    struct gyre_cuda_executor *executor = own(base);
    const uint32_t n = n_ends(executor);
    uint64_t *values = malloc(n * sizeof(*values));
    if (values == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%u counters", n);
    for (uint32_t i = 0; i < n; i++)
        values[i] = n_slots;
    const gyre_status status = executor->device->ops->copy(
        executor->device, executor->counters + (size_t)proto * n, values, n * sizeof(*values));
    free(values);
    return status;
}

/* ---- loading ------------------------------------------------------------------------------ */

/* Payload of one slot: what a tile may have at most. */
static uint32_t payload_bytes(const struct gyre_fifo_spec *spec, enum gyre_proto proto)
{
    const uint32_t bytes = spec->slot_bytes[proto];
    if (proto == GYRE_PROTO_LL)
        return bytes / 2;
    return proto == GYRE_PROTO_LL128 ? bytes / 128 * 120 : bytes;
}

static bool program_reduces(const struct gyre_program *program)
{
    for (uint32_t i = 0; i < program->n_steps; i++)
        if (program->steps[i].n_ins > 1)
            return true;
    return false;
}

static void unload(struct gyre_cuda_executor *executor, struct gyre_loaded *loaded)
{
    struct gyre_device *device = executor->device;
    (void)device->ops->mem_free(device, loaded->device_program);
    (void)device->ops->mem_free(device, loaded->scratch);
    free(loaded->program);
    free(loaded);
}

static gyre_status check_load(const struct gyre_cuda_executor *executor,
                              const struct gyre_load_config *config)
{
    const struct gyre_program *program = config->program;
    if (config->n_channels == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "a loaded program needs at least 1 channel");
    if (program->min_depth > executor->spec.depth)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "algorithm %s needs FIFOs of %u slots; this communicator has %u",
                         program->algorithm, program->min_depth, executor->spec.depth);
    if (config->n_channels * program->n_workers > executor->n_sms)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "algorithm %s in %u channels takes %u blocks, which must all run at the "
                         "same time; the GPU has %u multiprocessors",
                         program->algorithm, config->n_channels,
                         config->n_channels * program->n_workers, executor->n_sms);
    const uint32_t most = config->proto == GYRE_PROTO_SIMPLE ? MAX_THREADS : MAX_LINE_THREADS;
    if (config->n_threads % 32 != 0 || config->n_threads > most)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%u threads a block: a multiple of 32 up to %u is possible",
                         config->n_threads, most);
    return GYRE_SUCCESS;
}

/* Loads the kernels' code and lets them have the shared memory, so that no launch does. */
static gyre_status prepare_kernel(const void *kernel, uint32_t shared_bytes)
{
    struct cudaFuncAttributes attributes;
    if (kernel == NULL)
        return GYRE_SUCCESS;
    GYRE_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel));
    if ((uint32_t)attributes.maxDynamicSharedSizeBytes < shared_bytes)
        GYRE_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           MAX_SHARED_BYTES));
    return GYRE_SUCCESS;
}

static gyre_status prepare_kernels(const struct gyre_cuda_executor *executor,
                                   const struct gyre_loaded *loaded)
{
    int previous;
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(gyre_cuda_enter(executor->device->ordinal, &previous));
    const uint32_t shared_bytes = loaded->shared_bytes;
    for (unsigned many = 0; many < 2 && status == GYRE_SUCCESS; many++)
        status = prepare_kernel(gyre_cuda_kernel_find(loaded->proto, true, many != 0, 0, 0),
                                shared_bytes);
    for (unsigned dtype = 0; dtype < GYRE_N_DTYPES && loaded->reduces; dtype++)
        for (unsigned op = 0; op <= GYRE_MIN && status == GYRE_SUCCESS; op++)
            status = prepare_kernel(gyre_cuda_kernel_find(loaded->proto, false, false, dtype, op),
                                    shared_bytes);
    for (unsigned dtype = 0; dtype < GYRE_N_DTYPES && loaded->exchange.n_peers > 0; dtype++)
        for (unsigned op = 0; op <= GYRE_MIN && status == GYRE_SUCCESS; op++)
            status = prepare_kernel(
                gyre_cuda_exchange_kernel_find(loaded->exchange.n_peers, dtype, op), 0);
    gyre_cuda_leave(executor->device->ordinal, previous);
    return status;
}

/* As in open_block(): connections, the program, and what the protocol wants beside them. */
static uint32_t shared_bytes(const struct gyre_loaded *loaded, const struct gyre_cuda_shape *shape)
{
    uint32_t bytes = shape->max_connections * CONNECTION_BYTES + loaded->inline_words * 16;
    if (loaded->proto != GYRE_PROTO_SIMPLE)
        bytes += (uint32_t)gyre_min_u64(shape->max_steps, GYRE_CUDA_LINE_STEPS) *
                 GYRE_CUDA_LINE_STEP_BYTES;
    else if (loaded->inline_words == 0 && shape->max_steps <= MAX_SHARED_STEPS)
        bytes += shape->max_steps * (uint32_t)sizeof(struct gyre_cuda_step);
    return bytes + 16;
}

/* Two tiles side by side need twice the slots. The same on all ranks: a program's depth is. */
static uint16_t choose_abreast(const struct gyre_cuda_executor *executor,
                               const struct gyre_load_config *config)
{
    const uint32_t depth = config->program->min_depth;
    return config->proto == GYRE_PROTO_SIMPLE && depth * 2 <= executor->spec.depth ? 2 : 1;
}

static gyre_status fill_loaded(struct gyre_cuda_executor *executor,
                               const struct gyre_load_config *config, struct gyre_loaded *loaded)
{
    struct gyre_device *device = executor->device;
    const struct gyre_program *program = config->program;
    struct gyre_cuda_shape shape;
    void *ptr = NULL;
    loaded->proto = config->proto;
    loaded->n_channels = config->n_channels;
    loaded->n_workers = program->n_workers;
    loaded->n_chunks = program->n_chunks;
    loaded->n_connections = program->n_connections;
    loaded->channel_stride = program->n_lanes * 2U;
    loaded->area_bytes =
        (uint32_t)gyre_round_up(payload_bytes(&executor->spec, config->proto), 256);
    loaded->n_areas = program->n_scratch;
    loaded->n_threads = config->n_threads != 0 ? config->n_threads : DEFAULT_THREADS;
    loaded->in_blocks = gyre_collectives[program->coll].in_blocks;
    loaded->out_blocks = gyre_collectives[program->coll].out_blocks;
    loaded->reduces = program_reduces(program);
    GYRE_TRY(gyre_cuda_lower(&executor->spec, executor->connectors, executor->n_ranks, config,
                             &loaded->program, &shape));
    gyre_cuda_exchange_find(&executor->spec, executor->connectors, config, loaded->program,
                            &loaded->exchange);
    loaded->max_connections = shape.max_connections;
    loaded->inline_words = loaded->program->n_bytes <= GYRE_CUDA_INLINE_BYTES
                               ? (uint32_t)gyre_div_round_up(loaded->program->n_bytes, 16)
                               : 0;
    loaded->n_abreast = choose_abreast(executor, config);
    loaded->posts_late = shape.max_uses <= executor->spec.depth;
    loaded->shared_bytes = shared_bytes(loaded, &shape);
    if (loaded->shared_bytes > MAX_SHARED_BYTES)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "algorithm %s: %u connections of one worker",
                         program->algorithm, shape.max_connections);
    GYRE_TRY(device->ops->mem_alloc(device, loaded->program->n_bytes, &ptr));
    loaded->device_program = ptr;
    GYRE_TRY(device->ops->copy(device, ptr, loaded->program, loaded->program->n_bytes));
    if (loaded->n_areas > 0) {
        GYRE_TRY(device->ops->mem_alloc(device,
                                        (size_t)loaded->n_areas * loaded->n_abreast *
                                            loaded->n_channels * loaded->area_bytes,
                                        &ptr));
        loaded->scratch = ptr;
    }
    return prepare_kernels(executor, loaded);
}

static gyre_status cuda_load(struct gyre_executor *base, const struct gyre_load_config *config,
                             struct gyre_loaded **loaded_out)
{
    struct gyre_cuda_executor *executor = own(base);
    GYRE_TRY(check_load(executor, config));
    struct gyre_loaded *loaded = calloc(1, sizeof(*loaded));
    if (loaded == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot load algorithm %s",
                         config->program->algorithm);
    const gyre_status status = fill_loaded(executor, config, loaded);
    if (status != GYRE_SUCCESS) {
        unload(executor, loaded);
        return status;
    }
    *loaded_out = loaded;
    return GYRE_SUCCESS;
}

static void cuda_unload(struct gyre_executor *base, struct gyre_loaded *loaded)
{
    if (loaded != NULL)
        unload(own(base), loaded);
}

/* ---- launching ---------------------------------------------------------------------------- */

static gyre_status check_work(const struct gyre_cuda_executor *executor,
                              const struct gyre_work *work)
{
    const struct gyre_loaded *loaded = work->loaded;
    const struct gyre_split *split = &work->split;
    const uint32_t elem_bytes = gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
    const uint64_t tile_bytes = (uint64_t)split->tile_elems * elem_bytes;
    if (split->n_channels != loaded->n_channels || split->n_chunks != loaded->n_chunks)
        return gyre_fail(
            GYRE_ERROR_INTERNAL,
            "a split of %u channels, %u chunks for a program of %u channels, %u chunks",
            split->n_channels, split->n_chunks, loaded->n_channels, loaded->n_chunks);
    if (split->unit_elems == 0 || tile_bytes == 0)
        return gyre_fail(GYRE_ERROR_INTERNAL, "a split of %u elements a tile, %u a unit",
                         split->tile_elems, split->unit_elems);
    if (loaded->n_connections + loaded->n_areas > 0 &&
        tile_bytes > payload_bytes(&executor->spec, loaded->proto))
        return gyre_fail(GYRE_ERROR_INTERNAL, "a tile of %llu bytes does not fit a slot of %u",
                         (unsigned long long)tile_bytes,
                         payload_bytes(&executor->spec, loaded->proto));
    if (work->reduction.dtype >= GYRE_N_DTYPES || work->reduction.op > GYRE_MIN)
        return gyre_fail(GYRE_ERROR_INTERNAL, "no executor has operation %u on type %u",
                         work->reduction.op, work->reduction.dtype);
    return GYRE_SUCCESS;
}

static void fill_common(struct gyre_cuda_executor *executor, enum gyre_proto proto,
                        struct gyre_cuda_common *common)
{
    common->connectors = executor->device_connectors;
    common->counters = executor->counters + (size_t)proto * n_ends(executor);
    common->control = executor->control;
    common->board = executor->board;
    common->slot_bytes = executor->spec.slot_bytes[proto];
    common->ends_per_rank = executor->spec.n_fifos * 2;
}

static void fill_work(const struct gyre_work *work, uint32_t first_block, struct gyre_cuda_work *to)
{
    const struct gyre_loaded *loaded = work->loaded;
    to->in = work->in;
    to->out = work->out;
    to->scratch = loaded->scratch;
    to->program = loaded->device_program;
    to->split = gyre_cuda_split_make(&work->split);
    to->scalar = work->reduction.scalar;
    to->signature = work->signature;
    to->divisor = work->reduction.divisor;
    to->first_block = first_block;
    to->channel_stride = loaded->channel_stride;
    to->area_bytes = loaded->area_bytes;
    to->n_areas = loaded->n_areas;
    to->elem_bytes = (uint8_t)gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
    to->premultiply = work->reduction.premultiply;
    to->in_blocks = loaded->in_blocks;
    to->out_blocks = loaded->out_blocks;
    to->n_workers = (uint16_t)loaded->n_workers;
    to->n_abreast = loaded->n_abreast;
    to->posts_late = loaded->posts_late;
    to->max_connections = loaded->max_connections;
    to->inline_words = 0;
}

static bool only_copies(const struct gyre_work *work)
{
    return !work->loaded->reduces && work->reduction.premultiply == 0 &&
           work->reduction.divisor <= 1;
}

/* Launches of one executor run in order whatever streams they are on. While there is one stream
 * that costs nothing; from the second on each launch leaves an event behind. */
static gyre_status order_after_last(struct gyre_cuda_executor *executor, cudaStream_t stream,
                                    uint64_t capture)
{
    if (!executor->has_launched || executor->last_stream == stream)
        return GYRE_SUCCESS;
    if (executor->last_capture != capture)
        return GYRE_SUCCESS; /* a graph's launches are ordered by whoever launches the graph */
    if (capture != 0) {
        GYRE_CUDA_TRY(cudaEventRecord(executor->last_event, executor->last_stream));
    } else if (!executor->has_streams) {
        executor->has_streams = true;
        const struct gyre_pulse *pulse = &executor->board->pulse;
        if (gyre_load_acquire_u64(&pulse->completed) >= pulse->launched)
            return GYRE_SUCCESS; /* the first stream may be gone */
        GYRE_CUDA_TRY(cudaEventRecord(executor->last_event, executor->last_stream));
    }
    GYRE_CUDA_TRY(cudaStreamWaitEvent(stream, executor->last_event, 0));
    return GYRE_SUCCESS;
}

struct launch {
    const void *kernel;
    void *args;
    uint32_t n_blocks;
    uint32_t n_threads;
    uint32_t shared_bytes;
    uint32_t n_works;
};

static gyre_status start(struct gyre_cuda_executor *executor, const struct launch *launch,
                         cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    unsigned long long capture = 0;
    void *params[] = {launch->args};
    cudaLaunchConfig_t config;
    memset(&config, 0, sizeof(config));
    config.gridDim = (dim3){launch->n_blocks, 1, 1};
    config.blockDim = (dim3){launch->n_threads, 1, 1};
    config.dynamicSmemBytes = launch->shared_bytes;
    config.stream = stream;
    GYRE_CUDA_TRY(cudaStreamGetCaptureInfo(stream, &capturing, &capture, NULL, NULL, NULL, NULL));
    if (capturing != cudaStreamCaptureStatusActive)
        capture = 0;
    GYRE_TRY(order_after_last(executor, stream, capture));
    GYRE_CUDA_TRY(cudaLaunchKernelExC(&config, launch->kernel, params));
    if (capture == 0) {
        struct gyre_pulse *pulse = &executor->board->pulse;
        gyre_store_release_u64(&pulse->launched, pulse->launched + launch->n_works);
        if (executor->has_streams)
            GYRE_CUDA_TRY(cudaEventRecord(executor->last_event, stream));
    }
    executor->has_launched = true;
    executor->last_stream = stream;
    executor->last_capture = capture;
    return GYRE_SUCCESS;
}

/* Lines: no more threads than the largest step has lines (LL128: a warp takes four at a time). */
static uint32_t block_threads(const struct gyre_loaded *loaded, const struct gyre_work *work)
{
    const struct gyre_split *split = &work->split;
    const uint64_t chunk_elems =
        gyre_div_round_up(split->count, (uint64_t)split->n_channels * split->n_chunks) +
        split->unit_elems;
    const uint64_t bytes = gyre_min_u64(chunk_elems, split->tile_elems) *
                           gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
    if (loaded->proto == GYRE_PROTO_SIMPLE)
        return loaded->n_threads + SERVICE_THREADS;
    const uint64_t n_useful =
        gyre_round_up(loaded->proto == GYRE_PROTO_LL ? gyre_div_round_up(bytes, 8)
                                                     : gyre_div_round_up(bytes, 480) * 32,
                      32);
    return (uint32_t)gyre_min_u64(loaded->n_threads, gyre_max_u64(n_useful, 64));
}

/* The one-shot pattern in one tile: see exchange.cuh. */
static gyre_status launch_exchange(struct gyre_cuda_executor *executor,
                                   const struct gyre_work *work, cudaStream_t stream)
{
    const struct gyre_loaded *loaded = work->loaded;
    struct gyre_cuda_args_exchange *args = &executor->args.exchange;
    const struct launch launch = {
        .kernel = gyre_cuda_exchange_kernel_find(loaded->exchange.n_peers, work->reduction.dtype,
                                                 work->reduction.op),
        .args = args,
        .n_blocks = loaded->n_channels,
        .n_threads = block_threads(loaded, work),
        .n_works = 1,
    };
    const uint64_t block_bytes =
        work->split.count * gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
    fill_common(executor, loaded->proto, &args->common);
    args->common.n_blocks = launch.n_blocks;
    args->common.n_works = 1;
    fill_work(work, 0, &args->work);
    args->exchange = loaded->exchange;
    args->exchange.own_offset *= block_bytes;
    for (unsigned p = 0; p < loaded->exchange.n_peers; p++)
        args->exchange.peers[p].in_offset *= block_bytes;
    return start(executor, &launch, stream);
}

static gyre_status launch_one(struct gyre_cuda_executor *executor, const struct gyre_work *work,
                              cudaStream_t stream)
{
    const struct gyre_loaded *loaded = work->loaded;
    struct gyre_cuda_args_one *args = &executor->args.one;
    if (loaded->exchange.n_peers > 0 && gyre_tile_count(&work->split) == 1)
        return launch_exchange(executor, work, stream);
    const struct launch launch = {
        .kernel = gyre_cuda_kernel_find(loaded->proto, only_copies(work), false,
                                        work->reduction.dtype, work->reduction.op),
        .args = args,
        .n_blocks = loaded->n_channels * loaded->n_workers,
        .n_threads = block_threads(loaded, work),
        .shared_bytes = loaded->shared_bytes,
        .n_works = 1,
    };
    fill_common(executor, loaded->proto, &args->common);
    args->common.n_blocks = launch.n_blocks;
    args->common.n_works = 1;
    fill_work(work, 0, &args->work);
    args->work.inline_words = loaded->inline_words;
    if (loaded->inline_words > 0)
        memcpy(args->program, loaded->program, loaded->program->n_bytes);
    return start(executor, &launch, stream);
}

/* Works that wait for each other: all in one kernel, which only copies. */
static gyre_status launch_many(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                               uint32_t n_works, cudaStream_t stream)
{
    const enum gyre_proto proto = works[0].loaded->proto;
    struct gyre_cuda_args_many *args = &executor->args.many;
    struct launch launch = {
        .kernel = gyre_cuda_kernel_find(proto, true, true, 0, 0), .args = args, .n_works = n_works};
    if (n_works > GYRE_CUDA_MAX_WORKS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%u works in one launch; %d are possible", n_works,
                         GYRE_CUDA_MAX_WORKS);
    for (uint32_t i = 0; i < n_works; i++) {
        const struct gyre_loaded *loaded = works[i].loaded;
        if (!only_copies(&works[i]) || loaded->proto != proto)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "works of one launch must only copy, by one protocol");
        fill_work(&works[i], launch.n_blocks, &args->works[i]);
        launch.n_blocks += loaded->n_channels * loaded->n_workers;
        launch.n_threads =
            (uint32_t)gyre_max_u64(launch.n_threads, block_threads(loaded, &works[i]));
        launch.shared_bytes = (uint32_t)gyre_max_u64(launch.shared_bytes, loaded->shared_bytes);
    }
    if (launch.n_blocks > executor->n_sms)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%u works take %u blocks, which must all run at the same time; the GPU "
                         "has %u multiprocessors",
                         n_works, launch.n_blocks, executor->n_sms);
    fill_common(executor, proto, &args->common);
    args->common.n_blocks = launch.n_blocks;
    args->common.n_works = n_works;
    return start(executor, &launch, stream);
}

static gyre_status cuda_launch(struct gyre_executor *base, const struct gyre_work *works,
                               int n_works, gyre_stream stream)
{
    struct gyre_cuda_executor *executor = own(base);
    int previous;
    if (n_works <= 0)
        return GYRE_SUCCESS;
    for (int i = 0; i < n_works; i++)
        GYRE_TRY(check_work(executor, &works[i]));
    GYRE_TRY(gyre_cuda_enter(executor->device->ordinal, &previous));
    pthread_mutex_lock(&executor->lock);
    const gyre_status status =
        n_works == 1 ? launch_one(executor, works, (cudaStream_t)stream)
                     : launch_many(executor, works, (uint32_t)n_works, (cudaStream_t)stream);
    pthread_mutex_unlock(&executor->lock);
    gyre_cuda_leave(executor->device->ordinal, previous);
    return status;
}

const struct gyre_executor_ops gyre_executor_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .pulse = cuda_pulse,
    .abort = cuda_abort,
    .load = cuda_load,
    .unload = cuda_unload,
    .launch = cuda_launch,
};
