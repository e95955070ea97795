/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/gpu_world.h"

#include "core/base/util.h"
#include "core/plan/plan.h"
#include "kernels/cuda/runtime/exec.h"
#include "tests/support/check.h"
#include "transport/slab.h"

#include <sched.h>

void gpu_ok(cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
    exit(1);
}

uint64_t gpu_world_block_placement_bytes = GYRE_BLOCK_PLACEMENT_BYTES;

static void must(gyre_status status, const char *what)
{
    if (status == GYRE_SUCCESS)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, gyre_status_name(status), gyre_cause());
    exit(1);
}

void gpu_world_use(const struct gpu_world *world, int rank)
{
    GPU_OK(cudaSetDevice(rank % world->n_gpus));
}

/* Every rank is peer number `rank` in everybody's slab, itself too. */
static void connect_rank(const struct gpu_world *world, const struct gyre_slab_layout *layout,
                         int rank, struct gyre_connector *connectors)
{
    const struct gyre_fifo_spec *spec = &world->spec;
    for (int peer = 0; peer < world->n_ranks; peer++)
        for (uint32_t i = 0; i < spec->n_fifos * 2; i++) {
            const bool is_send = i % 2 != 0;
            const uint32_t fifo = i / 2;
            const uint32_t sender = (uint32_t)(is_send ? rank : peer);
            const uint32_t receiver = (uint32_t)(is_send ? peer : rank);
            struct gyre_connector *end =
                &connectors[gyre_connector_index(spec, (uint32_t)peer, fifo, is_send)];
            if (peer == rank)
                continue;
            unsigned char *slab = world->slabs[receiver];
            end->inbox = (void *)(slab + gyre_slab_inbox_offset(layout, sender, fifo));
            end->credit =
                (void *)(world->slabs[sender] + gyre_slab_credit_offset(layout, receiver, fifo));
            for (unsigned proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++)
                if (layout->area_bytes[proto] > 0)
                    end->slots[proto] = slab + gyre_slab_slots_offset(layout, sender, fifo, proto);
            end->slot_bytes = spec->slot_bytes[GYRE_PROTO_SIMPLE];
            end->depth = (uint16_t)spec->depth;
        }
}

static void enable_peers(int n_gpus)
{
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
}

void gpu_world_open(struct gpu_world *world, int n_ranks, const struct gyre_fifo_spec *spec)
{
    struct gyre_slab_layout layout;
    memset(world, 0, sizeof(*world));
    world->n_ranks = n_ranks;
    world->spec = *spec;
    must(gyre_device_cuda.count(&world->n_gpus), "count");
    if (world->n_gpus > n_ranks)
        world->n_gpus = n_ranks;
    enable_peers(world->n_gpus);
    must(gyre_slab_layout_make(spec, (uint32_t)n_ranks, GYRE_SLAB_NO_RING_PREV, &layout), "layout");
    for (int rank = 0; rank < n_ranks; rank++) {
        void *slab;
        must(gyre_device_cuda.open(rank % world->n_gpus, &world->devices[rank]), "open");
        must(gyre_device_cuda.mem_alloc(world->devices[rank], layout.n_bytes, &slab), "slab");
        must(gyre_device_cuda.zero(world->devices[rank], slab, layout.n_bytes), "slab");
        world->slabs[rank] = slab;
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        struct gyre_connector *connectors =
            calloc((size_t)n_ranks * spec->n_fifos * 2, sizeof(*connectors));
        connect_rank(world, &layout, rank, connectors);
        gyre_fault_init(&world->faults[rank]);
        const struct gyre_executor_config config = {
            .device = world->devices[rank],
            .rank = rank,
            .n_ranks = n_ranks,
            .spec = *spec,
            .connectors = connectors,
            .overlaps_launches = true,
            .block_placement_bytes = gpu_world_block_placement_bytes,
            .fault = &world->faults[rank],
        };
        must(gyre_executor_cuda.open(&config, &world->executors[rank]), "executor");
        gpu_world_use(world, rank);
        GPU_OK(cudaStreamCreateWithFlags(&world->streams[rank], cudaStreamNonBlocking));
        free(connectors);
    }
}

gyre_status gpu_world_load(struct gpu_world *world, int rank, const struct gyre_load_config *config,
                           const struct gyre_reduction *reduction, struct gyre_loaded **loaded_out)
{
    struct gyre_executor *executor = world->executors[rank];
    GYRE_TRY(gyre_executor_cuda.load(executor, config, loaded_out));
    return gyre_executor_cuda.prepare(executor, *loaded_out, reduction);
}

void gpu_world_close(struct gpu_world *world)
{
    for (int rank = 0; rank < world->n_ranks; rank++) {
        gyre_executor_cuda.close(world->executors[rank]);
        gpu_world_use(world, rank);
        GPU_OK(cudaStreamDestroy(world->streams[rank]));
    }
    for (int rank = 0; rank < world->n_ranks; rank++) {
        (void)gyre_device_cuda.mem_free(world->devices[rank], world->slabs[rank]);
        gyre_device_cuda.close(world->devices[rank]);
        gyre_fault_fini(&world->faults[rank]);
    }
}

bool gpu_world_wait(struct gpu_world *world, double timeout_s)
{
    const uint64_t end_ns = gyre_now_ns() + (uint64_t)(timeout_s * 1e9);
    for (int rank = 0; rank < world->n_ranks; rank++) {
        gpu_world_use(world, rank);
        for (;;) {
            const cudaError_t error = cudaStreamQuery(world->streams[rank]);
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

void gpu_world_set_epoch(struct gpu_world *world, enum gyre_proto proto, uint64_t n_slots)
{
    struct gyre_slab_layout layout;
    must(gyre_slab_layout_make(&world->spec, (uint32_t)world->n_ranks, GYRE_SLAB_NO_RING_PREV,
                               &layout),
         "layout");
    for (int rank = 0; rank < world->n_ranks; rank++) {
        struct gyre_device *device = world->devices[rank];
        must(gyre_cuda_executor_set_epoch(world->executors[rank], proto, n_slots), "epoch");
        for (uint32_t i = 0; i < (uint32_t)world->n_ranks * world->spec.n_fifos; i++) {
            const uint32_t peer = i / world->spec.n_fifos, fifo = i % world->spec.n_fifos;
            const size_t skip = gyre_proto_slots(proto) * sizeof(n_slots);
            unsigned char *inbox = world->slabs[rank] + gyre_slab_inbox_offset(&layout, peer, fifo);
            unsigned char *credit =
                world->slabs[rank] + gyre_slab_credit_offset(&layout, peer, fifo);
            must(device->ops->copy(device, inbox + skip, &n_slots, sizeof(n_slots)), "tail");
            must(device->ops->copy(device, credit + skip, &n_slots, sizeof(n_slots)), "head");
        }
    }
}
