/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator without a transport, for tests on GPUs: n executors whose connectors are plain
 * device memory of this process, peer access enabled. Ranks share GPUs when there are fewer.
 */
#ifndef GYRE_TESTS_GPU_RIG_H
#define GYRE_TESTS_GPU_RIG_H

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

/** gpu_rig_open - ranks on GPUs rank % n_gpus. Exits the process on failure, with the cause. */
void gpu_rig_open(struct gpu_rig *rig, int n_ranks, const struct gyre_fifo_spec *spec);
/** gpu_rig_open_hosts - likewise, and connections between ranks of different hosts are marked as
 * those that a proxy serves. @grouping: NULL = one host. */
void gpu_rig_open_hosts(struct gpu_rig *rig, int n_ranks, const struct gyre_fifo_spec *spec,
                        const struct gyre_grouping *grouping);

void gpu_rig_close(struct gpu_rig *rig);

/** gpu_rig_use - make rank's GPU current. */
void gpu_rig_use(const struct gpu_rig *rig, int rank);

/** Tells "late" from "never", also where the stand-in GPU shares two processors with other tests.
 */
#define GPU_RIG_DEADLINE_S 100.0

/** gpu_rig_wait - until all streams are idle or `timeout_s` passed; false then. */
bool gpu_rig_wait(struct gpu_rig *rig, double timeout_s);

/** gpu_rig_await_begun - until the rank's kernels say that `n_begun` calls began; false if that did
 * not happen in GPU_RIG_DEADLINE_S. */
bool gpu_rig_await_begun(struct gpu_rig *rig, int rank, uint64_t n_begun);

/** gpu_rig_set_epoch - as if every FIFO had already moved n_slots by this protocol. */
void gpu_rig_set_epoch(struct gpu_rig *rig, enum gyre_proto proto, uint64_t n_slots);

/** Check a CUDA call; exits with its text. */
#define GPU_OK(call) gpu_ok((call), #call, __FILE__, __LINE__)
void gpu_ok(cudaError_t error, const char *call, const char *file, int line);

#endif
