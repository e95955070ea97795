/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA executor against the host executor: the same programs, the same inputs, the same bits.
 * All ranks are in this process; with fewer GPUs than ranks they share them.
 */
#include "algorithms/algorithm.h"
#include "core/base/sync.h"
#include "kernels/cuda/cuda_copies.h"
#include "kernels/cuda/cuda_exec.h"
#include "kernels/cuda/cuda_state.h"
#include "tests/check.h"
#include "tests/gpus.h"
#include "tests/gpu/gpu_world.h"
#include "tests/gpu/hog.h"
#include "tests/host_world.h"

#include <math.h>
#include <pthread.h>

#define N_FIFOS       8 /* 4 channels of programs with 2 lanes */
#define SIMPLE_BYTES  4096
#define LL_BYTES      4096
#define LL128_BYTES   4096
#define GUARD_BYTES   64
#define GUARD         0xa5
#define DEADLINE_S    20.0
#define MAX_RUN_RANKS GPU_WORLD_MAX_RANKS

static const struct gyre_fifo_spec gpu_spec = {
    .n_fifos = N_FIFOS, .depth = 4, .slot_bytes = {SIMPLE_BYTES, LL_BYTES, LL128_BYTES}};

/* One collective to be run on both executors. */
struct run {
    const struct gyre_algorithm *algorithm;
    enum gyre_collective coll;
    enum gyre_proto proto;
    uint64_t count;
    uint32_t root;
    uint32_t n_channels;
    uint32_t n_threads;
    uint32_t misaligned_elems;
    bool in_place;
    bool is_placed;
    bool by_copy_engines;
    struct gyre_reduction reduction;
};

static uint64_t random_state = 1;

static uint64_t random_u64(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x9e3779b97f4a7c15ULL;
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)((random_u64() >> 32) % n);
}

/* f32 and f64: finite, of many exponents. Narrow types: any bits, NaNs and infinities too, since
 * every NaN that is computed is written the same way. */
static void fill_random(gyre_dtype dtype, void *to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t word = random_u64();
        const double number =
            ((double)(word >> 11) / (double)(1ULL << 53) - 0.5) * (double)(1U << word % 21);
        if (dtype == GYRE_FLOAT32)
            ((float *)to)[i] = (float)number;
        else if (dtype == GYRE_FLOAT64)
            ((double *)to)[i] = number;
        else
            memcpy((char *)to + i * gyre_dtype_bytes(dtype), &word, gyre_dtype_bytes(dtype));
    }
}

static uint64_t buffer_elems(const struct run *run, bool is_out, int n_ranks)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[run->coll];
    return run->count * ((is_out ? traits->out_blocks : traits->in_blocks) ? (uint64_t)n_ranks : 1);
}

/* Elements per tile so that a slot of either executor holds it, on the same cuts. */
static struct gyre_split make_split(const struct run *run, uint32_t n_chunks)
{
    const uint32_t elem_bytes = gyre_dtype_bytes((gyre_dtype)run->reduction.dtype);
    const uint32_t payload_bytes = run->proto == GYRE_PROTO_LL      ? LL_BYTES / 2
                                   : run->proto == GYRE_PROTO_LL128 ? LL128_BYTES / 128 * 120
                                                                    : SIMPLE_BYTES;
    struct gyre_split split = {.count = run->count,
                               .n_channels = run->n_channels,
                               .n_chunks = n_chunks,
                               .unit_elems = 16 / elem_bytes};
    split.tile_elems = payload_bytes / 16 * split.unit_elems;
    return split;
}

static const char *run_text(const struct run *run)
{
    static char text[256];
    snprintf(text, sizeof(text),
             "%s %s %s %s %s count %llu root %u channels %u threads %u misaligned %u%s%s%s%s%s",
             run->algorithm->name, gyre_collectives[run->coll].name, gyre_proto_names[run->proto],
             gyre_dtype_names[run->reduction.dtype], gyre_op_names[run->reduction.op],
             (unsigned long long)run->count, run->root, run->n_channels, run->n_threads,
             run->misaligned_elems, run->in_place ? " in place" : "",
             run->is_placed ? " placed" : "", run->by_copy_engines ? " copied" : "",
             run->reduction.premultiply ? " scaled" : "", run->reduction.divisor > 1 ? " div" : "");
    return text;
}

/* A rank's buffers: [guard] in [guard] out [guard], in one allocation. In place they overlap as
 * gyre.h says. */
struct buffers {
    size_t n_bytes;
    size_t in_offset;
    size_t out_offset;
    unsigned char *host; /* the host executor's */
    unsigned char *staged;
    unsigned char *device;
};

static void make_buffers(const struct run *run, int n_ranks, int rank, struct buffers *buffers)
{
    const size_t elem_bytes = gyre_dtype_bytes((gyre_dtype)run->reduction.dtype);
    const size_t in_bytes = buffer_elems(run, false, n_ranks) * elem_bytes;
    const size_t out_bytes = buffer_elems(run, true, n_ranks) * elem_bytes;
    const struct gyre_collective_traits *traits = &gyre_collectives[run->coll];
    const size_t block_bytes = run->count * elem_bytes * (size_t)rank;
    const size_t start = GUARD_BYTES + run->misaligned_elems * elem_bytes;
    buffers->in_offset = start;
    buffers->out_offset = run->in_place ? start : start + (in_bytes + 15) / 16 * 16 + GUARD_BYTES;
    if (run->in_place && traits->in_blocks && !traits->out_blocks)
        buffers->out_offset = start + block_bytes;
    if (run->in_place && traits->out_blocks && !traits->in_blocks)
        buffers->in_offset = start + block_bytes;
    buffers->n_bytes = start + in_bytes + out_bytes + 16 + 2 * GUARD_BYTES;
    buffers->host = malloc(buffers->n_bytes);
    buffers->staged = malloc(buffers->n_bytes);
    memset(buffers->host, GUARD, buffers->n_bytes);
    unsigned char *aligned = malloc(in_bytes + 8);
    fill_random((gyre_dtype)run->reduction.dtype, aligned, buffer_elems(run, false, n_ranks));
    memcpy(buffers->host + buffers->in_offset, aligned, in_bytes);
    free(aligned);
    GPU_OK(cudaMalloc((void **)&buffers->device, buffers->n_bytes));
    GPU_OK(cudaMemcpy(buffers->device, buffers->host, buffers->n_bytes, cudaMemcpyHostToDevice));
}

static void free_buffers(struct buffers *buffers)
{
    free(buffers->host);
    free(buffers->staged);
    GPU_OK(cudaFree(buffers->device));
}

static struct gyre_work make_work(const struct run *run, struct gyre_loaded *loaded,
                                  unsigned char *base, const struct buffers *buffers,
                                  uint32_t n_chunks)
{
    struct gyre_work work = {.loaded = loaded,
                             .in = base + buffers->in_offset,
                             .out = base + buffers->out_offset,
                             .split = make_split(run, n_chunks),
                             .reduction = run->reduction,
                             .signature = 77,
                             .sequence = 1};
    return work;
}

/* Both executors, all ranks. Returns whether every byte is the same. */
static bool run_both(struct gpu_world *gpus, struct world *hosts, const struct run *run)
{
    const int n = gpus->n_ranks;
    struct gyre_program *programs[MAX_RUN_RANKS] = {NULL};
    struct gyre_loaded *on_gpu[MAX_RUN_RANKS], *on_host[MAX_RUN_RANKS];
    struct buffers buffers[MAX_RUN_RANKS];
    const struct gyre_shape shape = {.coll = run->coll,
                                     .n_ranks = (uint16_t)n,
                                     .root = (uint16_t)run->root,
                                     .is_placed = run->is_placed};
    void *gpu_bases[MAX_RUN_RANKS], *host_bases[MAX_RUN_RANKS], *device_bases[MAX_RUN_RANKS];
    struct gyre_placement placements[MAX_RUN_RANKS];
    const struct gyre_placement on_hosts = {.bases = host_bases};
    bool is_same = true;
    for (int rank = 0; rank < n; rank++) {
        CHECK_OK(gyre_algorithm_emit(run->algorithm, &shape, rank, &programs[rank]));
        gpu_world_use(gpus, rank);
        make_buffers(run, n, rank, &buffers[rank]);
        struct gyre_load_config config = {.program = programs[rank],
                                          .n_channels = run->n_channels,
                                          .proto = run->proto,
                                          .n_threads = run->n_threads,
                                          .by_copy_engines = run->by_copy_engines};
        CHECK_OK(gpu_world_load(gpus, rank, &config, &run->reduction, &on_gpu[rank]));
        config.proto = GYRE_PROTO_SIMPLE;
        config.by_copy_engines = false;
        CHECK_OK(gyre_executor_host.load(hosts->executors[rank], &config, &on_host[rank]));
    }
    for (int rank = 0; rank < n; rank++) {
        gpu_bases[rank] = buffers[rank].device + buffers[rank].out_offset;
        host_bases[rank] = buffers[rank].host + buffers[rank].out_offset;
    }
    for (int rank = 0; rank < n; rank++) {
        gpu_world_use(gpus, rank);
        GPU_OK(cudaMalloc(&device_bases[rank], sizeof(gpu_bases)));
        GPU_OK(
            cudaMemcpy(device_bases[rank], gpu_bases, sizeof(gpu_bases), cudaMemcpyHostToDevice));
        placements[rank] = (struct gyre_placement){gpu_bases, device_bases[rank]};
        const uint32_t n_chunks = programs[rank]->n_chunks;
        struct gyre_work work =
            make_work(run, on_gpu[rank], buffers[rank].device, &buffers[rank], n_chunks);
        work.placement = &placements[rank];
        CHECK_OK(gyre_executor_cuda.launch(gpus->executors[rank], &work, 1, gpus->streams[rank]));
        work = make_work(run, on_host[rank], buffers[rank].host, &buffers[rank], n_chunks);
        work.placement = &on_hosts;
        CHECK_OK(gyre_executor_host.launch(hosts->executors[rank], &work, 1, hosts->streams[rank]));
    }
    CHECK_MSG(world_run_in_one_thread(hosts), "the host executor hangs: %s", run_text(run));
    if (!gpu_world_wait(gpus, DEADLINE_S)) {
        fprintf(stderr, "the CUDA executor hangs: %s\n", run_text(run));
        exit(1);
    }
    for (int rank = 0; rank < n; rank++) {
        struct buffers *own = &buffers[rank];
        gpu_world_use(gpus, rank);
        GPU_OK(cudaMemcpy(own->staged, own->device, own->n_bytes, cudaMemcpyDeviceToHost));
        if (memcmp(own->staged, own->host, own->n_bytes) != 0) {
            size_t at = 0;
            while (own->staged[at] == own->host[at])
                at++;
            if (is_same)
                fprintf(stderr, "rank %d byte %zu of %zu (in %zu out %zu): %02x, not %02x: %s\n",
                        rank, at, own->n_bytes, own->in_offset, own->out_offset, own->staged[at],
                        own->host[at], run_text(run));
            is_same = false;
        }
        gyre_executor_cuda.unload(gpus->executors[rank], on_gpu[rank]);
        gyre_executor_host.unload(hosts->executors[rank], on_host[rank]);
        gyre_program_free(programs[rank]);
        GPU_OK(cudaFree(device_bases[rank]));
        free_buffers(own);
    }
    return is_same;
}

static void random_reduction(struct run *run, int n_ranks)
{
    struct gyre_reduction *reduction = &run->reduction;
    memset(reduction, 0, sizeof(*reduction));
    reduction->dtype = (uint8_t)below(GYRE_N_DTYPES);
    reduction->op = (uint8_t)below(GYRE_MIN + 1);
    reduction->divisor = 1;
    if (!gyre_collectives[run->coll].reduces) {
        reduction->op = GYRE_SUM;
    } else if (reduction->op == GYRE_SUM && below(3) == 0) {
        if (gyre_dtype_is_float((gyre_dtype)reduction->dtype)) {
            reduction->premultiply = 1;
            reduction->scalar =
                gyre_premultiply_scalar((gyre_dtype)reduction->dtype, (uint32_t)n_ranks + 1);
        } else {
            reduction->divisor = (uint32_t)n_ranks;
        }
    }
}

static bool random_run(struct run *run, int n_ranks)
{
    static const uint64_t counts[] = {0, 1, 2, 3, 7, 33, 1000, 4097, 20011};
    int n_algorithms = 0;
    while (gyre_algorithms[n_algorithms] != NULL)
        n_algorithms++;
    run->algorithm = gyre_algorithms[below((uint32_t)n_algorithms)];
    run->coll = (enum gyre_collective)below(GYRE_N_COLLECTIVES);
    if (!gyre_algorithm_has(run->algorithm, run->coll) || run->coll == GYRE_COLL_SEND_RECV)
        return false;
    random_reduction(run, n_ranks);
    run->proto = (enum gyre_proto)below(GYRE_N_PROTOS);
    run->count = counts[below(sizeof(counts) / sizeof(counts[0]))] + below(3) * 16;
    run->root = gyre_collectives[run->coll].has_root ? below((uint32_t)n_ranks) : 0;
    run->n_channels = 1 + below(4);
    run->n_threads = 32U << below(5);
    run->misaligned_elems = below(3) == 0 ? 1 + below(15) : 0;
    run->is_placed = run->proto == GYRE_PROTO_SIMPLE && below(2) != 0;
    run->by_copy_engines = run->is_placed && n_ranks > 1 && below(2) != 0 &&
                           (run->algorithm->copy_tails >> run->coll & 1U) != 0;
    if (run->by_copy_engines && run->coll == GYRE_COLL_BROADCAST)
        run->n_channels = 1 + below(GYRE_CUDA_COPY_CHANNELS);
    run->in_place = below(2) != 0 && run->coll != GYRE_COLL_ALL_TO_ALL &&
                    run->coll != GYRE_COLL_GATHER && run->coll != GYRE_COLL_SCATTER;
    return true;
}

static int wanted_ranks = 4;
static uint32_t wanted_runs = 400;

static void the_gpu_computes_the_same_bits_as_the_host(void)
{
    struct gpu_world gpus;
    struct world hosts;
    uint32_t n_wrong = 0, n_done = 0;
    gpu_world_open(&gpus, wanted_ranks, &gpu_spec);
    world_open(&hosts, wanted_ranks, N_FIFOS, gpu_spec.depth, SIMPLE_BYTES);
    while (n_done < wanted_runs && n_wrong < 10) {
        struct run run;
        if (!random_run(&run, wanted_ranks))
            continue;
        n_done++;
        n_wrong += run_both(&gpus, &hosts, &run) ? 0 : 1;
    }
    CHECK_MSG(n_wrong == 0, "%u of %u random calls differ", n_wrong, n_done);
    world_close(&hosts);
    gpu_world_close(&gpus);
}

/* Stale lines of a full slot, then a jump so that the old flags come round again. */
static void flags_that_wrap_never_match_stale_lines(void)
{
    const uint64_t period = 1ULL << 30;
    struct gpu_world gpus;
    struct world hosts;
    struct run run = {.algorithm = &gyre_algorithm_direct,
                      .coll = GYRE_COLL_ALL_REDUCE,
                      .proto = GYRE_PROTO_LL,
                      .n_channels = 1,
                      .n_threads = 128,
                      .reduction = {.dtype = GYRE_INT32, .op = GYRE_SUM, .divisor = 1}};
    gpu_world_open(&gpus, wanted_ranks, &gpu_spec);
    world_open(&hosts, wanted_ranks, N_FIFOS, gpu_spec.depth, SIMPLE_BYTES);
    for (uint64_t epoch = 0; epoch < 6 * period; epoch += period) {
        gpu_world_set_epoch(&gpus, GYRE_PROTO_LL, epoch == 0 ? 0 : epoch - 2);
        run.count = 1;
        for (int i = 0; i < 2 + 4; i++)
            CHECK_MSG(run_both(&gpus, &hosts, &run), "small, epoch %llu",
                      (unsigned long long)epoch);
        run.count = LL_BYTES / 2 / 4 * 3;
        for (int i = 0; i < 4; i++)
            CHECK_MSG(run_both(&gpus, &hosts, &run), "large, epoch %llu",
                      (unsigned long long)epoch);
    }
    world_close(&hosts);
    gpu_world_close(&gpus);
}

/* One launch of an all-reduce on every rank but those from n_launched on. */
static void launch_all_reduce(struct gpu_world *gpus, struct gyre_loaded **loaded, int n_launched,
                              uint32_t n_chunks, const struct run *run, float *const *buffers)
{
    for (int rank = 0; rank < n_launched; rank++) {
        struct gyre_work work = {.loaded = loaded[rank],
                                 .in = buffers[rank],
                                 .out = buffers[rank],
                                 .split = make_split(run, n_chunks),
                                 .reduction = run->reduction};
        CHECK_OK(gyre_executor_cuda.launch(gpus->executors[rank], &work, 1, gpus->streams[rank]));
    }
}

static void load_all(struct gpu_world *gpus, const struct run *run, struct gyre_program **programs,
                     struct gyre_loaded **loaded, float **buffers)
{
    const struct gyre_shape shape = {.coll = run->coll, .n_ranks = (uint16_t)gpus->n_ranks};
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        CHECK_OK(gyre_algorithm_emit(run->algorithm, &shape, rank, &programs[rank]));
        const struct gyre_load_config config = {.program = programs[rank],
                                                .n_channels = run->n_channels,
                                                .proto = run->proto,
                                                .n_threads = run->n_threads};
        CHECK_OK(gpu_world_load(gpus, rank, &config, &run->reduction, &loaded[rank]));
        gpu_world_use(gpus, rank);
        GPU_OK(cudaMalloc((void **)&buffers[rank], run->count * 4));
        float *ones = malloc(run->count * 4);
        for (uint64_t i = 0; i < run->count; i++)
            ones[i] = 1.0f;
        GPU_OK(cudaMemcpy(buffers[rank], ones, run->count * 4, cudaMemcpyHostToDevice));
        free(ones);
    }
}

static void unload_all(struct gpu_world *gpus, struct gyre_program **programs,
                       struct gyre_loaded **loaded, float **buffers)
{
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gyre_executor_cuda.unload(gpus->executors[rank], loaded[rank]);
        gyre_program_free(programs[rank]);
        GPU_OK(cudaFree(buffers[rank]));
    }
}

static const struct run ring_run = {.algorithm = &gyre_algorithm_ring,
                                    .coll = GYRE_COLL_ALL_REDUCE,
                                    .count = 5000,
                                    .n_channels = 2,
                                    .n_threads = 128,
                                    .reduction = {.dtype = GYRE_FLOAT32, .op = GYRE_SUM}};

static void a_captured_graph_replays_without_the_host(void)
{
    for (unsigned proto = 0; proto < GYRE_N_PROTOS; proto++) {
        struct gpu_world gpus;
        struct gyre_program *programs[MAX_RUN_RANKS];
        struct gyre_loaded *loaded[MAX_RUN_RANKS];
        float *buffers[MAX_RUN_RANKS];
        cudaGraph_t captured[MAX_RUN_RANKS];
        cudaGraphExec_t graphs[MAX_RUN_RANKS];
        struct run run = ring_run;
        run.proto = (enum gyre_proto)proto;
        gpu_world_open(&gpus, wanted_ranks, &gpu_spec);
        load_all(&gpus, &run, programs, loaded, buffers);
        for (int rank = 0; rank < gpus.n_ranks; rank++) {
            gpu_world_use(&gpus, rank);
            GPU_OK(cudaStreamBeginCapture(gpus.streams[rank], cudaStreamCaptureModeThreadLocal));
        }
        for (int i = 0; i < 3; i++)
            launch_all_reduce(&gpus, loaded, gpus.n_ranks, programs[0]->n_chunks, &run, buffers);
        for (int rank = 0; rank < gpus.n_ranks; rank++) {
            gpu_world_use(&gpus, rank);
            GPU_OK(cudaStreamEndCapture(gpus.streams[rank], &captured[rank]));
        }
        for (int rank = 0; rank < gpus.n_ranks; rank++) {
            gpu_world_use(&gpus, rank);
            GPU_OK(cudaGraphInstantiate(&graphs[rank], captured[rank], 0));
            GPU_OK(cudaGraphDestroy(captured[rank]));
        }
        double expected = 1.0;
        for (int i = 0; i < 3; i++) {
            for (int rank = 0; rank < gpus.n_ranks; rank++) {
                gpu_world_use(&gpus, rank);
                GPU_OK(cudaGraphLaunch(graphs[rank], gpus.streams[rank]));
            }
            expected *= gpus.n_ranks * gpus.n_ranks * gpus.n_ranks;
        }
        CHECK(gpu_world_wait(&gpus, DEADLINE_S));
        for (int rank = 0; rank < gpus.n_ranks; rank++) {
            float *values = malloc(run.count * 4);
            GPU_OK(cudaMemcpy(values, buffers[rank], run.count * 4, cudaMemcpyDeviceToHost));
            CHECK_MSG(values[0] == (float)expected && values[run.count - 1] == (float)expected,
                      "%s: %g, %g, not %g", gyre_proto_names[proto], (double)values[0],
                      (double)values[run.count - 1], expected);
            CHECK(gyre_executor_cuda.pulse(gpus.executors[rank])->completed == 9);
            GPU_OK(cudaGraphExecDestroy(graphs[rank]));
            free(values);
        }
        unload_all(&gpus, programs, loaded, buffers);
        gpu_world_close(&gpus);
    }
}

/* All-reduces in place, one after the other, and what moves the data away and back between them. */
struct chain {
    struct gpu_world gpus;
    struct run run;
    struct gyre_program *programs[MAX_RUN_RANKS];
    struct gyre_loaded *loaded[MAX_RUN_RANKS];
    float *buffers[MAX_RUN_RANKS], *spares[MAX_RUN_RANKS];
    cudaStream_t sides[MAX_RUN_RANKS];
    cudaEvent_t events[MAX_RUN_RANKS];
};

#define CHAIN_CALLS 8

static void move_away_and_back(const struct chain *chain, int rank, cudaStream_t stream)
{
    const size_t n_bytes = chain->run.count * 4;
    float *buffer = chain->buffers[rank], *spare = chain->spares[rank];
    GPU_OK(cudaMemcpyAsync(spare, buffer, n_bytes, cudaMemcpyDeviceToDevice, stream));
    GPU_OK(cudaMemsetAsync(buffer, 0, n_bytes, stream));
    GPU_OK(cudaMemcpyAsync(buffer, spare, n_bytes, cudaMemcpyDeviceToDevice, stream));
}

/* A call follows a call, a copy, or a call and a copy on another stream; with no moves, a call. */
static void enqueue_chain(struct chain *chain, bool has_moves)
{
    struct gpu_world *gpus = &chain->gpus;
    for (int i = 0; i < CHAIN_CALLS; i++) {
        launch_all_reduce(gpus, chain->loaded, gpus->n_ranks, chain->programs[0]->n_chunks,
                          &chain->run, chain->buffers);
        for (int rank = 0; rank < gpus->n_ranks; rank++) {
            gpu_world_use(gpus, rank);
            if (i % 4 == 1 && has_moves)
                move_away_and_back(chain, rank, gpus->streams[rank]);
            if (i % 4 != 2 || !has_moves)
                continue;
            GPU_OK(cudaEventRecord(chain->events[rank], gpus->streams[rank]));
            GPU_OK(cudaStreamWaitEvent(chain->sides[rank], chain->events[rank], 0));
            move_away_and_back(chain, rank, chain->sides[rank]);
            GPU_OK(cudaEventRecord(chain->events[rank], chain->sides[rank]));
            GPU_OK(cudaStreamWaitEvent(gpus->streams[rank], chain->events[rank], 0));
        }
    }
}

/* Graphs on one GPU that wait for each other hang where they also copy: ranks that share a GPU make
 * no moves. */
static void enqueue_captured(struct chain *chain)
{
    struct gpu_world *gpus = &chain->gpus;
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gpu_world_use(gpus, rank);
        GPU_OK(cudaStreamBeginCapture(gpus->streams[rank], cudaStreamCaptureModeThreadLocal));
    }
    enqueue_chain(chain, gpus->n_ranks <= gpus->n_gpus);
    cudaGraph_t graphs[MAX_RUN_RANKS];
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gpu_world_use(gpus, rank);
        GPU_OK(cudaStreamEndCapture(gpus->streams[rank], &graphs[rank]));
    }
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        cudaGraphExec_t ready;
        gpu_world_use(gpus, rank);
        GPU_OK(cudaGraphInstantiate(&ready, graphs[rank], 0));
        GPU_OK(cudaGraphLaunch(ready, gpus->streams[rank]));
        GPU_OK(cudaGraphDestroy(graphs[rank]));
        GPU_OK(cudaGraphExecDestroy(ready)); /* when it has run */
    }
}

/* Twice eager, then twice from a graph: ones become the same power of the number of ranks. */
static void run_chain(const struct run *run)
{
    struct chain chain = {.run = *run};
    gpu_world_open(&chain.gpus, wanted_ranks, &gpu_spec);
    load_all(&chain.gpus, run, chain.programs, chain.loaded, chain.buffers);
    for (int rank = 0; rank < chain.gpus.n_ranks; rank++) {
        gpu_world_use(&chain.gpus, rank);
        GPU_OK(cudaMalloc((void **)&chain.spares[rank], run->count * 4));
        GPU_OK(cudaStreamCreateWithFlags(&chain.sides[rank], cudaStreamNonBlocking));
        GPU_OK(cudaEventCreateWithFlags(&chain.events[rank], cudaEventDisableTiming));
    }
    enqueue_chain(&chain, true);
    enqueue_chain(&chain, true);
    enqueue_captured(&chain);
    enqueue_captured(&chain);
    if (!gpu_world_wait(&chain.gpus, DEADLINE_S)) {
        fprintf(stderr, "calls in a row hang: %s\n", run_text(run));
        exit(1);
    }
    double expected = 1;
    uint32_t n_wrong = 0;
    for (int i = 0; i < 4 * CHAIN_CALLS; i++)
        expected *= chain.gpus.n_ranks;
    for (int rank = 0; rank < chain.gpus.n_ranks; rank++) {
        float *values = malloc(run->count * 4);
        gpu_world_use(&chain.gpus, rank);
        GPU_OK(cudaMemcpy(values, chain.buffers[rank], run->count * 4, cudaMemcpyDeviceToHost));
        for (uint64_t i = 0; i < run->count; i++)
            n_wrong += !(fabs(values[i] / expected - 1) <= 1e-4);
        free(values);
        GPU_OK(cudaFree(chain.spares[rank]));
        GPU_OK(cudaStreamDestroy(chain.sides[rank]));
        GPU_OK(cudaEventDestroy(chain.events[rank]));
    }
    CHECK_MSG(n_wrong == 0, "%u elements are wrong: %s", n_wrong, run_text(run));
    unload_all(&chain.gpus, chain.programs, chain.loaded, chain.buffers);
    gpu_world_close(&chain.gpus);
}

static void calls_in_a_row_read_what_the_last_one_wrote(void)
{
    static const struct gyre_algorithm *const algorithms[] = {
        &gyre_algorithm_direct, &gyre_algorithm_twoshot, &gyre_algorithm_ring};
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++)
        for (unsigned proto = 0; proto < GYRE_N_PROTOS; proto++)
            for (uint32_t n_channels = 2; n_channels <= N_FIFOS; n_channels *= 4) {
                struct run run = ring_run;
                run.algorithm = algorithms[a];
                run.proto = (enum gyre_proto)proto;
                run.n_channels = n_channels;
                run_chain(&run);
            }
}

/* All multiprocessors but so many are taken, the first ones among them: where seats are. */
#define FREE_SMS 6

struct hogs {
    uint32_t *words; /* is_over, then how many run, of each rank */
    cudaStream_t streams[MAX_RUN_RANKS];
};

static void start_hogs(const struct gpu_world *gpus, struct hogs *hogs)
{
    GPU_OK(cudaHostAlloc((void **)&hogs->words, (MAX_RUN_RANKS + 1) * sizeof(uint32_t),
                         cudaHostAllocMapped | cudaHostAllocPortable));
    memset(hogs->words, 0, (MAX_RUN_RANKS + 1) * sizeof(uint32_t));
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        const uint32_t n_blocks = gyre_cuda_own(gpus->executors[rank])->n_sms - FREE_SMS;
        uint32_t *n_started = &hogs->words[rank + 1];
        gpu_world_use(gpus, rank);
        GPU_OK(cudaStreamCreateWithFlags(&hogs->streams[rank], cudaStreamNonBlocking));
        GPU_OK(hog_start((int)n_blocks, hogs->words, n_started, hogs->streams[rank]));
        const uint64_t begin_ns = gyre_now_ns();
        while (gyre_load_acquire_u32(n_started) < n_blocks &&
               gyre_now_ns() - begin_ns < 2000000000ULL)
            ;
        CHECK_MSG(*n_started == n_blocks, "%u of %u blocks run", *n_started, n_blocks);
    }
}

static void stop_hogs(const struct gpu_world *gpus, struct hogs *hogs)
{
    gyre_store_release_u32(hogs->words, 1);
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gpu_world_use(gpus, rank);
        GPU_OK(cudaStreamSynchronize(hogs->streams[rank]));
        GPU_OK(cudaStreamDestroy(hogs->streams[rank]));
    }
    GPU_OK(cudaFreeHost(hogs->words));
}

/* As the kernels say, in five seconds; the hogs give up after ten. */
static bool have_completed(const struct gpu_world *gpus, uint64_t n_works)
{
    const uint64_t begin_ns = gyre_now_ns();
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        const struct gyre_pulse *pulse = gyre_executor_cuda.pulse(gpus->executors[rank]);
        while (gyre_load_acquire_u64(&pulse->completed) < n_works)
            if (gyre_now_ns() - begin_ns > 5000000000ULL)
                return false;
    }
    return true;
}

/* One rank a GPU: blocks of many threads, as many as there are multiprocessors left. */
static void seats_are_filled_on_a_busy_gpu(void)
{
    struct gpu_world gpus;
    struct hogs hogs;
    struct gyre_program *programs[MAX_RUN_RANKS];
    struct gyre_loaded *loaded[MAX_RUN_RANKS];
    float *buffers[MAX_RUN_RANKS];
    struct run run = ring_run;
    const struct gyre_cuda_seats empty = {{0}, 0, 0, 0};
    const int n_gpus = test_n_gpus();
    const uint64_t before = gpu_world_min_seated_bytes;
    run.n_channels = FREE_SMS;
    run.n_threads = 512;
    gpu_world_min_seated_bytes = 0;
    gpu_world_open(&gpus, n_gpus < wanted_ranks ? n_gpus : wanted_ranks, &gpu_spec);
    gpu_world_min_seated_bytes = before;
    load_all(&gpus, &run, programs, loaded, buffers);
    start_hogs(&gpus, &hogs);
    for (int i = 0; i < 3; i++)
        launch_all_reduce(&gpus, loaded, gpus.n_ranks, programs[0]->n_chunks, &run, buffers);
    const bool has_ended = have_completed(&gpus, 3);
    stop_hogs(&gpus, &hogs);
    CHECK_MSG(has_ended, "not all seats are taken");
    CHECK(gpu_world_wait(&gpus, DEADLINE_S));
    for (int rank = 0; rank < gpus.n_ranks; rank++) {
        struct gyre_cuda_seats seats;
        float value;
        gpu_world_use(&gpus, rank);
        GPU_OK(cudaMemcpy(&seats, &gyre_cuda_own(gpus.executors[rank])->control->seats,
                          sizeof(seats), cudaMemcpyDeviceToHost));
        CHECK_MSG(memcmp(&seats, &empty, sizeof(seats)) == 0, "rank %d leaves seats taken", rank);
        GPU_OK(cudaMemcpy(&value, buffers[rank] + run.count - 1, 4, cudaMemcpyDeviceToHost));
        const float expected = (float)(gpus.n_ranks * gpus.n_ranks * gpus.n_ranks);
        CHECK_MSG(value == expected, "%g, not %g", (double)value, (double)expected);
    }
    unload_all(&gpus, programs, loaded, buffers);
    gpu_world_close(&gpus);
}

/* An all-gather of int32 by copy engines, on all ranks. */
struct gathers {
    struct gpu_world gpus;
    struct gyre_program *programs[MAX_RUN_RANKS];
    struct gyre_loaded *loaded[MAX_RUN_RANKS];
    int32_t *ins[MAX_RUN_RANKS];
    void *bases[MAX_RUN_RANKS]; /* of OUT */
    struct gyre_placement placement;
    cudaStream_t others[MAX_RUN_RANKS]; /* a second stream of each rank */
    cudaGraphExec_t graphs[2][MAX_RUN_RANKS];
};

#define GATHER_COUNT 3000

static const struct gyre_reduction no_reduction = {
    .dtype = GYRE_INT32, .op = GYRE_SUM, .divisor = 1};

static size_t gathered_bytes(const struct gathers *gathers)
{
    return (size_t)gathers->gpus.n_ranks * GATHER_COUNT * sizeof(int32_t);
}

static void open_gathers(struct gathers *gathers)
{
    struct gpu_world *gpus = &gathers->gpus;
    gpu_world_open(gpus, wanted_ranks, &gpu_spec);
    gathers->placement = (struct gyre_placement){gathers->bases, gathers->bases};
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        const struct gyre_shape shape = {
            .coll = GYRE_COLL_ALL_GATHER, .n_ranks = (uint16_t)gpus->n_ranks, .is_placed = true};
        CHECK_OK(
            gyre_algorithm_emit(&gyre_algorithm_direct, &shape, rank, &gathers->programs[rank]));
        const struct gyre_load_config config = {
            .program = gathers->programs[rank], .n_channels = 1, .by_copy_engines = true};
        CHECK_OK(gpu_world_load(gpus, rank, &config, &no_reduction, &gathers->loaded[rank]));
        gpu_world_use(gpus, rank);
        GPU_OK(cudaMalloc((void **)&gathers->ins[rank], GATHER_COUNT * sizeof(int32_t)));
        GPU_OK(cudaMalloc(&gathers->bases[rank], gathered_bytes(gathers)));
        GPU_OK(cudaStreamCreateWithFlags(&gathers->others[rank], cudaStreamNonBlocking));
    }
}

static void close_gathers(struct gathers *gathers)
{
    struct gpu_world *gpus = &gathers->gpus;
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gyre_executor_cuda.unload(gpus->executors[rank], gathers->loaded[rank]);
        gyre_program_free(gathers->programs[rank]);
        gpu_world_use(gpus, rank);
        GPU_OK(cudaGraphExecDestroy(gathers->graphs[0][rank]));
        GPU_OK(cudaGraphExecDestroy(gathers->graphs[1][rank]));
        GPU_OK(cudaFree(gathers->ins[rank]));
        GPU_OK(cudaFree(gathers->bases[rank]));
        GPU_OK(cudaStreamDestroy(gathers->others[rank]));
    }
    gpu_world_close(gpus);
}

/* Two graphs of two calls each, whose captures are open at the same time. */
static void capture_gathers(struct gathers *gathers, int rank)
{
    struct gpu_world *gpus = &gathers->gpus;
    const struct gyre_work work = {.loaded = gathers->loaded[rank],
                                   .in = gathers->ins[rank],
                                   .out = gathers->bases[rank],
                                   .split = {GATHER_COUNT, 1, 1, 1 << 20, 4},
                                   .reduction = no_reduction,
                                   .placement = &gathers->placement};
    const cudaStream_t streams[] = {gpus->streams[rank], gathers->others[rank]};
    gpu_world_use(gpus, rank);
    for (int i = 0; i < 2; i++)
        GPU_OK(cudaStreamBeginCapture(streams[i], cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < 4; i++)
        CHECK_OK(gyre_executor_cuda.launch(gpus->executors[rank], &work, 1, streams[i % 2]));
    for (int i = 0; i < 2; i++) {
        cudaGraph_t graph;
        GPU_OK(cudaStreamEndCapture(streams[i], &graph));
        GPU_OK(cudaGraphInstantiate(&gathers->graphs[i][rank], graph, 0));
        GPU_OK(cudaGraphDestroy(graph));
    }
}

/* Element i of a rank's block in that replay. */
static int32_t gathered(int32_t replay, int rank, uint64_t i)
{
    return replay * 1000000 + rank * 10000 + (int32_t)i;
}

static void replay_gathers(struct gathers *gathers, int32_t replay)
{
    struct gpu_world *gpus = &gathers->gpus;
    int32_t *values = malloc(gathered_bytes(gathers));
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        for (uint64_t i = 0; i < GATHER_COUNT; i++)
            values[i] = gathered(replay, rank, i);
        GPU_OK(cudaMemcpy(gathers->ins[rank], values, GATHER_COUNT * sizeof(int32_t),
                          cudaMemcpyHostToDevice));
    }
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gpu_world_use(gpus, rank);
        GPU_OK(cudaGraphLaunch(gathers->graphs[replay % 2][rank], gpus->streams[rank]));
    }
    CHECK(gpu_world_wait(gpus, DEADLINE_S));
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        uint64_t n_wrong = 0;
        GPU_OK(cudaMemcpy(values, gathers->bases[rank], gathered_bytes(gathers),
                          cudaMemcpyDeviceToHost));
        for (uint64_t i = 0; i < (uint64_t)gpus->n_ranks * GATHER_COUNT; i++)
            n_wrong += values[i] != gathered(replay, (int)(i / GATHER_COUNT), i % GATHER_COUNT);
        CHECK_MSG(n_wrong == 0, "rank %d, replay %d: %d wrong", rank, replay, (int)n_wrong);
        CHECK(gyre_executor_cuda.pulse(gpus->executors[rank])->completed == (uint64_t)replay * 2);
    }
    free(values);
}

static void copy_engines_replay_from_graphs(void)
{
    struct gathers gathers;
    memset(&gathers, 0, sizeof(gathers));
    open_gathers(&gathers);
    for (int rank = 0; rank < gathers.gpus.n_ranks; rank++)
        capture_gathers(&gathers, rank);
    for (int32_t replay = 1; replay <= 4; replay++)
        replay_gathers(&gathers, replay);
    close_gathers(&gathers);
}

static void an_abort_ends_kernels_that_wait_and_those_behind_them(void)
{
    for (unsigned proto = 0; proto < GYRE_N_PROTOS; proto++) {
        struct gpu_world gpus;
        struct gyre_program *programs[MAX_RUN_RANKS];
        struct gyre_loaded *loaded[MAX_RUN_RANKS];
        float *buffers[MAX_RUN_RANKS];
        struct run run = ring_run;
        run.proto = (enum gyre_proto)proto;
        gpu_world_open(&gpus, wanted_ranks, &gpu_spec);
        load_all(&gpus, &run, programs, loaded, buffers);
        /* The last rank never comes. */
        for (int i = 0; i < 3; i++)
            launch_all_reduce(&gpus, loaded, gpus.n_ranks - 1, programs[0]->n_chunks, &run,
                              buffers);
        CHECK_MSG(!gpu_world_wait(&gpus, 0.05), "they did not wait");
        for (int rank = 0; rank < gpus.n_ranks; rank++)
            gyre_executor_cuda.abort(gpus.executors[rank]);
        CHECK_MSG(gpu_world_wait(&gpus, 1.0), "%s still runs", gyre_proto_names[proto]);
        unload_all(&gpus, programs, loaded, buffers);
        gpu_world_close(&gpus);
    }
}

static void a_call_that_does_not_fit_is_reported_and_waits_for_the_abort(void)
{
    struct gpu_world gpus;
    struct gyre_program *programs[MAX_RUN_RANKS];
    struct gyre_loaded *loaded[MAX_RUN_RANKS];
    float *buffers[MAX_RUN_RANKS];
    struct run run = ring_run;
    gpu_world_open(&gpus, 2, &gpu_spec);
    load_all(&gpus, &run, programs, loaded, buffers);
    for (int rank = 0; rank < 2; rank++) {
        struct gyre_work work = {.loaded = loaded[rank],
                                 .in = buffers[rank],
                                 .out = buffers[rank],
                                 .split = make_split(&run, programs[rank]->n_chunks),
                                 .reduction = run.reduction,
                                 .signature = (uint32_t)rank};
        CHECK_OK(gyre_executor_cuda.launch(gpus.executors[rank], &work, 1, gpus.streams[rank]));
    }
    CHECK(!gpu_world_wait(&gpus, 0.05));
    for (int rank = 0; rank < 2; rank++) {
        CHECK(gyre_executor_cuda.pulse(gpus.executors[rank])->mismatch == 1 + (uint64_t)(1 - rank));
        gyre_executor_cuda.abort(gpus.executors[rank]);
    }
    CHECK(gpu_world_wait(&gpus, 1.0));
    unload_all(&gpus, programs, loaded, buffers);
    gpu_world_close(&gpus);
}

static const struct test_case cases[] = {
    {"a captured graph replays without the host", a_captured_graph_replays_without_the_host},
    {"calls in a row read what the last one wrote", calls_in_a_row_read_what_the_last_one_wrote},
    {"seats are filled on a busy GPU", seats_are_filled_on_a_busy_gpu},
    {"copy engines replay from graphs", copy_engines_replay_from_graphs},
    {"the GPU computes the same bits as the host", the_gpu_computes_the_same_bits_as_the_host},
    {"flags that wrap never match stale lines", flags_that_wrap_never_match_stale_lines},
    {"a call that does not fit is reported and waits for the abort",
     a_call_that_does_not_fit_is_reported_and_waits_for_the_abort},
    {"an abort ends kernels that wait and those behind them",
     an_abort_ends_kernels_that_wait_and_those_behind_them},
};

/* test_cuda_exec [case [ranks [random runs [seed]]]] */
int main(int argc, char **argv)
{
    if (test_n_gpus() == 0) {
        printf("skipped: there is no GPU\n");
        return TEST_SKIPPED;
    }
    gpu_world_min_seated_bytes = 4096; /* some calls do, some do not */
    if (argc > 2)
        wanted_ranks = atoi(argv[2]);
    if (argc > 3)
        wanted_runs = (uint32_t)atoi(argv[3]);
    if (argc > 4)
        random_state = strtoull(argv[4], NULL, 10) * 2 + 1;
    return test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
