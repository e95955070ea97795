/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/gpu_rig.h"

#include "core/engine/plan/plan.h"
#include "core/foundation/base/util.h"
#include "kernels/cuda/runtime/state.h"
#include "tests/support/check.h"
#include "tests/support/test_work.h"
#include "transport/slab.h"

#include <sched.h>

void gpu_ok(cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
    exit(1);
}

uint64_t gpu_rig_block_placement_bytes = 16 << 20; /* as communicators have it */

static void must(gyre_status status, const char *what)
{
    if (status == GYRE_SUCCESS)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, gyre_status_name(status), gyre_cause());
    exit(1);
}

void gpu_rig_use(const struct gpu_rig *rig, int rank)
{
    GPU_OK(cudaSetDevice(rank % rig->n_gpus));
}

/* Every rank is peer number `rank` in all slabs. */
static void connect_rank(const struct gpu_rig *rig, const struct gyre_slab_layout *layout, int rank,
                         const struct gyre_grouping *grouping, struct gyre_connector *connectors)
{
    const struct gyre_fifo_spec *spec = &rig->spec;
    for (int peer = 0; peer < rig->n_ranks; peer++)
        for (uint32_t i = 0; i < spec->n_fifos * 2; i++) {
            const bool is_send = i % 2 != 0;
            const uint32_t fifo = i / 2;
            const uint32_t sender = (uint32_t)(is_send ? rank : peer);
            const uint32_t receiver = (uint32_t)(is_send ? peer : rank);
            struct gyre_connector *end =
                &connectors[gyre_connector_index(spec, (uint32_t)peer, fifo, is_send)];
            if (peer == rank)
                continue;
            unsigned char *slab = rig->slabs[receiver];
            end->inbox = (void *)(slab + gyre_slab_inbox_offset(layout, sender, fifo));
            end->credit =
                (void *)(rig->slabs[sender] + gyre_slab_credit_offset(layout, receiver, fifo));
            for (unsigned proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++)
                if (layout->area_bytes[proto] > 0)
                    end->slots[proto] = slab + gyre_slab_slots_offset(layout, sender, fifo, proto);
            end->slot_bytes = spec->slot_bytes[GYRE_PROTO_SIMPLE];
            end->depth = (uint16_t)spec->depth;
            end->is_proxied =
                grouping != NULL && grouping->host_of[rank] != grouping->host_of[peer];
        }
}

void gpu_rig_open(struct gpu_rig *rig, int n_ranks, const struct gyre_fifo_spec *spec)
{
    gpu_rig_open_hosts(rig, n_ranks, spec, NULL);
}

void gpu_rig_open_hosts(struct gpu_rig *rig, int n_ranks, const struct gyre_fifo_spec *spec,
                        const struct gyre_grouping *grouping)
{
    struct gyre_slab_layout layout;
    memset(rig, 0, sizeof(*rig));
    rig->n_ranks = n_ranks;
    rig->spec = *spec;
    must(gyre_device_cuda.count(&rig->n_gpus), "count");
    if (rig->n_gpus > n_ranks)
        rig->n_gpus = n_ranks;
    const int n_gpus = rig->n_gpus;
    for (int i = 0; i < n_gpus; i++)
        for (int k = 0; k < n_gpus; k++) {
            if (i == k)
                continue;
            GPU_OK(cudaSetDevice(i));
            const cudaError_t error = cudaDeviceEnablePeerAccess(k, 0);
            if (error != cudaErrorPeerAccessAlreadyEnabled)
                GPU_OK(error);
            (void)cudaGetLastError();
        }
    must(gyre_slab_layout_make(spec, (uint32_t)n_ranks, GYRE_SLAB_NO_RING_PREV, &layout), "layout");
    for (int rank = 0; rank < n_ranks; rank++) {
        void *slab;
        must(gyre_device_cuda.open(rank % rig->n_gpus, &rig->devices[rank]), "open");
        must(gyre_device_cuda.mem_alloc(rig->devices[rank], layout.n_bytes, &slab), "slab");
        must(gyre_device_cuda.zero(rig->devices[rank], slab, layout.n_bytes), "slab");
        rig->slabs[rank] = slab;
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        struct gyre_connector *connectors =
            calloc((size_t)n_ranks * spec->n_fifos * 2, sizeof(*connectors));
        connect_rank(rig, &layout, rank, grouping, connectors);
        gyre_fault_init(&rig->faults[rank]);
        const struct gyre_executor_config config = {
            .device = rig->devices[rank],
            .rank = rank,
            .n_ranks = n_ranks,
            .spec = *spec,
            .connectors = connectors,
            .overlaps_launches = true,
            .block_placement_bytes = gpu_rig_block_placement_bytes,
            .fault = &rig->faults[rank],
        };
        must(gyre_executor_cuda.open(&config, &rig->executors[rank]), "executor");
        gpu_rig_use(rig, rank);
        GPU_OK(cudaStreamCreateWithFlags(&rig->streams[rank], cudaStreamNonBlocking));
        free(connectors);
    }
}

void gpu_rig_close(struct gpu_rig *rig)
{
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        gyre_executor_cuda.close(rig->executors[rank]);
        gpu_rig_use(rig, rank);
        GPU_OK(cudaStreamDestroy(rig->streams[rank]));
    }
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        (void)gyre_device_cuda.mem_free(rig->devices[rank], rig->slabs[rank]);
        gyre_device_cuda.close(rig->devices[rank]);
        gyre_fault_fini(&rig->faults[rank]);
    }
}

bool gpu_rig_wait(struct gpu_rig *rig, double timeout_s)
{
    const uint64_t end_ns = gyre_now_ns() + (uint64_t)(timeout_s * 1e9);
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        gpu_rig_use(rig, rank);
        for (;;) {
            const cudaError_t error = cudaStreamQuery(rig->streams[rank]);
            if (error == cudaSuccess)
                break;
            if (error != cudaErrorNotReady)
                GPU_OK(error);
            if (gyre_now_ns() > end_ns)
                return false;
            sched_yield();
        }
    }
    return true;
}

bool gpu_rig_await_begun(struct gpu_rig *rig, int rank, uint64_t n_begun)
{
    const uint64_t end_ns = gyre_now_ns() + (uint64_t)(GPU_RIG_DEADLINE_S * 1e9);
    while (gyre_executor_cuda.progress(rig->executors[rank]).activity < n_begun) {
        if (gyre_now_ns() > end_ns)
            return false;
        sched_yield();
    }
    return true;
}

void gpu_rig_set_epoch(struct gpu_rig *rig, enum gyre_proto proto, uint64_t n_slots)
{
    struct gyre_slab_layout layout;
    must(gyre_slab_layout_make(&rig->spec, (uint32_t)rig->n_ranks, GYRE_SLAB_NO_RING_PREV, &layout),
         "layout");
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        struct gyre_device *device = rig->devices[rank];
        must(gyre_cuda_executor_set_epoch(rig->executors[rank], proto, n_slots), "epoch");
        for (uint32_t i = 0; i < (uint32_t)rig->n_ranks * rig->spec.n_fifos; i++) {
            const uint32_t peer = i / rig->spec.n_fifos, fifo = i % rig->spec.n_fifos;
            const size_t skip = gyre_proto_slots(proto) * sizeof(n_slots);
            unsigned char *inbox = rig->slabs[rank] + gyre_slab_inbox_offset(&layout, peer, fifo);
            unsigned char *credit = rig->slabs[rank] + gyre_slab_credit_offset(&layout, peer, fifo);
            must(device->ops->copy(device, inbox + skip, &n_slots, sizeof(n_slots)), "tail");
            must(device->ops->copy(device, credit + skip, &n_slots, sizeof(n_slots)), "head");
        }
    }
}

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

void gpu_run_all_reduce(struct gpu_rig *gpus, const struct gpu_loads *loads, int n_launched)
{
    for (int rank = 0; rank < n_launched; rank++) {
        struct test_work work = {.loaded = loads->loaded[rank],
                                 .in = loads->buffers[rank],
                                 .out = loads->buffers[rank],
                                 .split = gpu_run_split(&loads->run, loads->programs[0]->n_chunks),
                                 .reduction = loads->run.reduction};
        CHECK_OK(test_enqueue(gpus->executors[rank], &work, 1, gpus->streams[rank]));
    }
}

void gpu_run_load_all(struct gpu_rig *gpus, const struct gpu_run *run, struct gpu_loads *loads)
{
    loads->run = *run;
    const struct gyre_shape shape = {.coll = run->coll, .n_ranks = (uint16_t)gpus->n_ranks};
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        CHECK_OK(gyre_algorithm_emit(run->algorithm, &shape, rank, &loads->programs[rank]));
        const struct gyre_load_config config = {.program = loads->programs[rank],
                                                .n_channels = run->n_channels,
                                                .proto = run->proto,
                                                .n_threads = run->n_threads};
        CHECK_OK(gyre_executor_cuda.load(gpus->executors[rank], &config, &loads->loaded[rank]));
        gpu_rig_use(gpus, rank);
        GPU_OK(cudaMalloc((void **)&loads->buffers[rank], run->count * 4));
        float *ones = malloc(run->count * 4);
        for (uint64_t i = 0; i < run->count; i++)
            ones[i] = 1.0f;
        GPU_OK(cudaMemcpy(loads->buffers[rank], ones, run->count * 4, cudaMemcpyHostToDevice));
        free(ones);
    }
}

void gpu_run_unload_all(struct gpu_rig *gpus, struct gpu_loads *loads)
{
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gyre_executor_cuda.unload(gpus->executors[rank], loads->loaded[rank]);
        gyre_program_free(loads->programs[rank]);
        GPU_OK(cudaFree(loads->buffers[rank]));
    }
}
