/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels whose rates `limits` measures, the sync kernel that holds a stream back until the
 * host has filled it, and the rig: the GPUs that are measured. A kernel that waits gives up after
 * BENCH_KERNEL_WAIT_NS and sets is_overdue in the flag page.
 */
#ifndef GYRE_BENCH_LIMITS_KERNELS_H
#define GYRE_BENCH_LIMITS_KERNELS_H

#include "bench/limits/limits.h"
#include "core/foundation/device/cuda_error.h"
#include "core/foundation/device/device.h"

#include <assert.h>

#define BENCH_KERNEL_WAIT_NS 2000000000ULL
#define BENCH_TMA_BYTES      16384U

/* Pinned host memory that all GPUs can access. */
struct bench_flag_page {
    uint32_t may_start;    /* set by the host; releases the sync kernels */
    uint32_t is_overdue;   /* set by any kernel that gave up; cleared by the host */
    uint64_t ping_pong_ns; /* of all rounds; set by the GPU that begins */
};
static_assert(sizeof(struct bench_flag_page) == 16, "the same layout on host and GPU");

struct bench_ping_pong {
    uint32_t *mine; /* zero at first; written by the other GPU only */
    uint32_t *theirs;
    uint32_t n_rounds;
    bool begins;
    struct bench_flag_page *flags;
};

struct bench_copy {
    void *to;
    const void *from;
    uint64_t n_bytes;
    uint32_t n_blocks;
};

/* Part i of one GPU's buffer goes to GPU i. The GPU's own stays. */
struct bench_scatter {
    void *to[BENCH_LIMITS_MAX_GPUS];
    const void *from; /* n_gpus parts */
    uint64_t piece_bytes;
    uint32_t gpu; /* that sends */
    uint32_t n_gpus;
};

#ifdef __cplusplus
extern "C" {
#endif

/** bench_kernels_load - all kernels, on the current GPU: loading one later could wait for a waiting
 * sync kernel (CUDA Programming Guide, "Lazy Loading", "Potential Hazards"). @arch: of the GPU.
 * Errors of all functions here: DEVICE. */
gyre_status bench_kernels_load(uint32_t arch);

/** bench_enqueue_sync - until the host sets flags->may_start. */
gyre_status bench_enqueue_sync(struct bench_flag_page *flags, gyre_stream stream);

/** bench_enqueue_copy - 512 threads a block and 16 bytes an access. @copy: memory of any GPU that
 * this GPU can address, aligned to 16 bytes and not overlapping; a multiple of 16 bytes. */
gyre_status bench_enqueue_copy(const struct bench_copy *copy, gyre_stream stream);

gyre_status bench_enqueue_scatter(const struct bench_scatter *scatter, uint32_t n_blocks,
                                  gyre_stream stream);

/** bench_enqueue_tma_copy - one thread of each block moves chunks of BENCH_TMA_BYTES through shared
 * memory by bulk copies (PTX ISA, cp.async.bulk). From sm_90 on. @copy: from memory of this GPU; a
 * multiple of BENCH_TMA_BYTES. */
gyre_status bench_enqueue_tma_copy(const struct bench_copy *copy, struct bench_flag_page *flags,
                                   gyre_stream stream);

/** bench_enqueue_ping_pong - one thread. Both sides must run at the same time. */
gyre_status bench_enqueue_ping_pong(const struct bench_ping_pong *side, gyre_stream stream);

/** bench_enqueue_nothing - one warp. */
gyre_status bench_enqueue_nothing(gyre_stream stream);

#ifdef __cplusplus
}
#endif

/* ---- the rig ---------------------------------------------------------------------------- */

struct bench_rig_gpu {
    struct gyre_device *device;
    struct gyre_device_info info;
    gyre_stream stream;
    cudaEvent_t begin;
    cudaEvent_t end;
    void *from;                          /* n_bytes; holds the pattern of its GPU's number */
    void *to;                            /* zeroed before each transfer */
    bool reaches[BENCH_LIMITS_MAX_GPUS]; /* it can load and store there; true for itself */
};

struct bench_rig {
    int n_gpus;
    uint64_t n_bytes;
    struct bench_flag_page *flags;
    struct bench_rig_gpu gpus[BENCH_LIMITS_MAX_GPUS];
};

struct bench_transfer {
    enum bench_limits_path path;
    uint64_t point; /* in the path's unit */
    int n_gpus;     /* a ring of one copies within its own memory */
};

/** bench_rig_open - all visible GPUs, up to BENCH_LIMITS_MAX_GPUS, with two buffers of n_bytes
 * each, and peer access where that is possible. Errors: UNSUPPORTED (no GPU), DEVICE,
 * OUT_OF_MEMORY. */
gyre_status bench_rig_open(uint64_t n_bytes, struct bench_rig *rig_out);

/** bench_rig_close - also after bench_rig_open() failed. */
void bench_rig_close(struct bench_rig *rig);

gyre_status bench_rig_use(int gpu);

/** bench_rig_time - for one GPU in one direction: the bytes of a pass over the time of the slowest
 * GPU, the best of three rounds of several passes. All GPUs start a round together once everything
 * is enqueued. Afterwards every byte is checked. Errors: DEVICE (a CUDA call failed, or bytes did
 * not arrive), TIMEOUT. */
gyre_status bench_rig_time(struct bench_rig *rig, const struct bench_transfer *transfer,
                           double *gbytes_per_s_out);

/** bench_rig_check_overdue - TIMEOUT if a kernel gave up waiting. After the kernels ended. @what:
 * for the message. */
gyre_status bench_rig_check_overdue(const struct bench_rig *rig, const char *what);

#endif
