/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/gpu_run.h"

#include "kernels/cuda/runtime/state.h"
#include "tests/support/check.h"
#include "tests/support/test_work.h"

const struct gyre_fifo_spec gpu_run_spec = {
    .n_fifos = GPU_RUN_FIFOS,
    .depth = 4,
    .slot_bytes = {GPU_RUN_SIMPLE_BYTES, GPU_RUN_LL_BYTES, GPU_RUN_LL128_BYTES}};

const struct gpu_run gpu_run_ring = {.algorithm = &gyre_algorithm_ring,
                                     .coll = GYRE_COLL_ALL_REDUCE,
                                     .count = 5000,
                                     .n_channels = 2,
                                     .n_threads = 128,
                                     .reduction = {.dtype = GYRE_FLOAT32, .op = GYRE_SUM}};

struct gyre_split gpu_run_split(const struct gpu_run *run, uint32_t n_chunks)
{
    const uint32_t elem_bytes = gyre_dtype_bytes((gyre_dtype)run->reduction.dtype);
    const uint32_t payload_bytes = run->proto == GYRE_PROTO_LL ? GPU_RUN_LL_BYTES / 2
                                   : run->proto == GYRE_PROTO_LL128
                                       ? GPU_RUN_LL128_BYTES / 128 * 120
                                   : run->proto == GYRE_PROTO_LAMPORT ? GPU_RUN_LL128_BYTES
                                                                      : GPU_RUN_SIMPLE_BYTES;
    struct gyre_split split = {.count = run->count,
                               .n_channels = run->n_channels,
                               .n_chunks = n_chunks,
                               .unit_elems = 16 / elem_bytes};
    split.tile_elems = payload_bytes / 16 * split.unit_elems;
    return split;
}

const char *gpu_run_text(const struct gpu_run *run)
{
    static char text[256];
    snprintf(
        text, sizeof(text),
        "%s %s %s %s %s range %u count %llu root %u channels %u threads %u hosts %u misaligned "
        "%u%s%s%s%s%s%s",
        run->algorithm->name, gyre_collectives[run->coll].name, gyre_proto_names[run->proto],
        gyre_dtype_names[run->reduction.dtype], gyre_op_names[run->reduction.op], run->most_range,
        (unsigned long long)run->count, run->root, run->n_channels, run->n_threads,
        run->grouping != NULL ? run->grouping->n_hosts : 1U, run->misaligned_elems,
        run->misaligned_elems > 0 && run->misaligns_last ? " on the last rank" : "",
        run->in_place ? " in place" : "", run->is_placed ? " placed" : "",
        run->by_copy_engines ? " copied" : "", run->reduction.premultiply ? " scaled" : "",
        run->reduction.divisor > 1 ? " div" : "");
    return text;
}

void gpu_run_all_reduce(struct gpu_rig *gpus, struct gyre_loaded **loaded, int n_launched,
                        uint32_t n_chunks, const struct gpu_run *run, float *const *buffers)
{
    for (int rank = 0; rank < n_launched; rank++) {
        struct test_work work = {.loaded = loaded[rank],
                                 .in = buffers[rank],
                                 .out = buffers[rank],
                                 .split = gpu_run_split(run, n_chunks),
                                 .reduction = run->reduction};
        CHECK_OK(test_enqueue(gpus->executors[rank], &work, 1, gpus->streams[rank]));
    }
}

void gpu_run_load_all(struct gpu_rig *gpus, const struct gpu_run *run,
                      struct gyre_program **programs, struct gyre_loaded **loaded, float **buffers)
{
    const struct gyre_shape shape = {.coll = run->coll, .n_ranks = (uint16_t)gpus->n_ranks};
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        CHECK_OK(gyre_algorithm_emit(run->algorithm, &shape, rank, &programs[rank]));
        const struct gyre_load_config config = {.program = programs[rank],
                                                .n_channels = run->n_channels,
                                                .proto = run->proto,
                                                .n_threads = run->n_threads};
        CHECK_OK(gyre_executor_cuda.load(gpus->executors[rank], &config, &loaded[rank]));
        gpu_rig_use(gpus, rank);
        GPU_OK(cudaMalloc((void **)&buffers[rank], run->count * 4));
        float *ones = malloc(run->count * 4);
        for (uint64_t i = 0; i < run->count; i++)
            ones[i] = 1.0f;
        GPU_OK(cudaMemcpy(buffers[rank], ones, run->count * 4, cudaMemcpyHostToDevice));
        free(ones);
    }
}

void gpu_run_unload_all(struct gpu_rig *gpus, struct gyre_program **programs,
                        struct gyre_loaded **loaded, float **buffers)
{
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gyre_executor_cuda.unload(gpus->executors[rank], loaded[rank]);
        gyre_program_free(programs[rank]);
        GPU_OK(cudaFree(buffers[rank]));
    }
}
