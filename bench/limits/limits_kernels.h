/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured kernels, the sync kernel that holds a stream until the host has filled it, and the
 * measured GPUs. A waiting kernel gives up after BENCH_KERNEL_WAIT_NS and sets is_overdue in the
 * flag page.
 */
#ifndef GYRE_BENCH_LIMITS_KERNELS_H
#define GYRE_BENCH_LIMITS_KERNELS_H

#include "bench/limits/limits.h"
#include "core/foundation/device/cuda_error.h"
#include "core/foundation/device/device.h"

#include <assert.h>

#define BENCH_KERNEL_WAIT_NS 2000000000ULL
#define BENCH_TMA_BYTES      16384U

/* Pinned host memory, accessible to all GPUs. */
struct bench_flag_page {
    uint32_t may_start;    /* set by the host, releases sync kernels */
    uint32_t is_overdue;   /* set by a kernel that gave up, cleared by the host */
    uint64_t ping_pong_ns; /* all rounds, set by the GPU that begins */
};
static_assert(sizeof(struct bench_flag_page) == 16, "the same layout on host and GPU");

struct bench_ping_pong {
    uint32_t *mine; /* zero at first, written only by the other GPU */
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

/* Part i goes to GPU i; the GPU's own stays. */
struct bench_scatter {
    void *to[BENCH_LIMITS_MAX_GPUS];
    const void *from; /* n_gpus parts */
    uint64_t piece_bytes;
    uint32_t gpu; /* the sender */
    uint32_t n_gpus;
};

#ifdef __cplusplus
extern "C" {
#endif

/** Loads all kernels on the current GPU, as later loading could wait for a waiting sync kernel
 * (CUDA Programming Guide, "Lazy Loading", "Potential Hazards"). @arch: of the GPU. Errors of all
 * functions here: DEVICE. */
gyre_status bench_kernels_load(uint32_t arch);

/** Until the host sets flags->may_start. */
gyre_status bench_enqueue_sync(struct bench_flag_page *flags, gyre_stream stream);

/** Copies with 512 threads a block and 16 bytes an access. @copy: memory that this GPU can address,
 * aligned to 16 bytes, without overlap, in multiples of 16 bytes. */
gyre_status bench_enqueue_copy(const struct bench_copy *copy, gyre_stream stream);

gyre_status bench_enqueue_scatter(const struct bench_scatter *scatter, uint32_t n_blocks,
                                  gyre_stream stream);

/** One thread a block moves BENCH_TMA_BYTES at a time through shared memory (PTX ISA,
 * cp.async.bulk), from sm_90 on. @copy: from this GPU's memory, in multiples of BENCH_TMA_BYTES. */
gyre_status bench_enqueue_tma_copy(const struct bench_copy *copy, struct bench_flag_page *flags,
                                   gyre_stream stream);

/** One thread. Both sides must run at once. */
gyre_status bench_enqueue_ping_pong(const struct bench_ping_pong *side, gyre_stream stream);

/** The kernel has one warp. */
gyre_status bench_enqueue_nothing(gyre_stream stream);

#ifdef __cplusplus
}
#endif

struct bench_rig_gpu {
    struct gyre_device *device;
    struct gyre_device_info info;
    gyre_stream stream;
    cudaEvent_t begin;
    cudaEvent_t end;
    void *from;                          /* n_bytes of its GPU's pattern */
    void *to;                            /* zeroed before transfers */
    bool reaches[BENCH_LIMITS_MAX_GPUS]; /* can load and store there, true for itself */
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
    int n_gpus;     /* 1 = within own memory */
};

/** All visible GPUs, up to BENCH_LIMITS_MAX_GPUS, with two buffers of n_bytes each and peer access
 * where possible. Errors: UNSUPPORTED (no GPU), DEVICE, OUT_OF_MEMORY. */
gyre_status bench_rig_open(uint64_t n_bytes, struct bench_rig *rig_out);

/** Also after a failed bench_rig_open(). */
void bench_rig_close(struct bench_rig *rig);

gyre_status bench_rig_use(int gpu);

/** The rate of one direction of one GPU: the bytes of a pass over the slowest GPU's time, best of
 * three rounds. All GPUs start a round together, and all bytes are checked afterwards. Errors:
 * DEVICE (CUDA failed, or wrong bytes), TIMEOUT. */
gyre_status bench_rig_time(struct bench_rig *rig, const struct bench_transfer *transfer,
                           double *gbytes_per_s_out);

/** TIMEOUT if a kernel gave up waiting. All kernels must have ended. @what: for the message. */
gyre_status bench_rig_check_overdue(const struct bench_rig *rig, const char *what);

#endif
