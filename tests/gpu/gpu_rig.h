/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator without a transport: n executors whose connectors are device memory of this
 * process. Ranks share GPUs when there are fewer. And runs of programs on it.
 */
#ifndef GYRE_TESTS_GPU_GPU_RIG_H
#define GYRE_TESTS_GPU_GPU_RIG_H

#include "algorithms/algorithm.h"
#include "core/foundation/base/thread.h"
#include "kernels/executor.h"

#include <cuda_runtime_api.h>

enum { GPU_RIG_MAX_RANKS = 8 };

struct gpu_rig {
    int n_ranks;
    int n_gpus;
    struct gyre_fifo_spec spec;
    struct gyre_device *devices[GPU_RIG_MAX_RANKS];
    unsigned char *slabs[GPU_RIG_MAX_RANKS];
    struct gyre_fault faults[GPU_RIG_MAX_RANKS];
    struct gyre_executor *executors[GPU_RIG_MAX_RANKS];
    cudaStream_t streams[GPU_RIG_MAX_RANKS];
};

/* block_placement_bytes of the executors that gpu_rig_open() opens. */
extern uint64_t gpu_rig_block_placement_bytes;

/** On GPUs rank % n_gpus. Exits the process on failure. */
void gpu_rig_open(struct gpu_rig *rig, int n_ranks, const struct gyre_fifo_spec *spec);
/** Connections between hosts are marked as a proxy's. @grouping: NULL = one host. */
void gpu_rig_open_hosts(struct gpu_rig *rig, int n_ranks, const struct gyre_fifo_spec *spec,
                        const struct gyre_grouping *grouping);

void gpu_rig_close(struct gpu_rig *rig);

/** Make rank's GPU current. */
void gpu_rig_use(const struct gpu_rig *rig, int rank);

/** Tells "late" from "never", even on a stand-in GPU with two busy processors. */
#define GPU_RIG_DEADLINE_S 100.0

/** Until all streams are idle. False: timeout_s passed. */
bool gpu_rig_wait(struct gpu_rig *rig, double timeout_s);

/** As the rank's kernels say; false after GPU_RIG_DEADLINE_S. */
bool gpu_rig_await_begun(struct gpu_rig *rig, int rank, uint64_t n_begun);

/** As if every FIFO had moved n_slots. */
void gpu_rig_set_epoch(struct gpu_rig *rig, enum gyre_proto proto, uint64_t n_slots);

/** Check a CUDA call; exits with its text. */
#define GPU_OK(call) gpu_ok((call), #call, __FILE__, __LINE__)
void gpu_ok(cudaError_t error, const char *call, const char *file, int line);

#define GPU_RUN_FIFOS        8 /* 4 channels of programs with 2 lanes */
#define GPU_RUN_SIMPLE_BYTES 4096
#define GPU_RUN_LL_BYTES     4096
#define GPU_RUN_LL128_BYTES  4096

struct gpu_run {
    const struct gyre_algorithm *algorithm;
    enum gyre_collective coll;
    enum gyre_proto proto;
    uint64_t count;
    uint32_t root;
    uint16_t most_range; /* of a step; 0 = no limit */
    uint32_t n_channels;
    uint32_t n_threads;
    uint32_t misaligned_elems;
    bool misaligns_last; /* only the last rank's buffers are */
    bool in_place;
    bool is_placed;
    bool by_copy_engines;
    const struct gyre_grouping *grouping; /* hosts that the ranks count as; NULL = one */
    struct gyre_reduction reduction;
};

/** The FIFOs of rigs for these runs. */
extern const struct gyre_fifo_spec gpu_run_spec;

/** Of 5000 floats, on two channels. */
extern const struct gpu_run gpu_run_ring;

/** A slot of either executor holds the tile, on the same cuts. */
struct gyre_split gpu_run_split(const struct gpu_run *run, uint32_t n_chunks);

/** For messages; one at a time. */
const char *gpu_run_text(const struct gpu_run *run);

/* A run on all ranks of a rig. */
struct gpu_loads {
    struct gpu_run run;
    struct gyre_program *programs[GPU_RIG_MAX_RANKS];
    struct gyre_loaded *loaded[GPU_RIG_MAX_RANKS];
    float *buffers[GPU_RIG_MAX_RANKS]; /* of ones, at first */
};

void gpu_run_load_all(struct gpu_rig *gpus, const struct gpu_run *run, struct gpu_loads *loads);
void gpu_run_unload_all(struct gpu_rig *gpus, struct gpu_loads *loads);

/** In place on every rank below n_launched. */
void gpu_run_all_reduce(struct gpu_rig *gpus, const struct gpu_loads *loads, int n_launched);

#endif
