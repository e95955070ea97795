/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels whose rates `limits` measures, and the sync kernel that holds a stream back until
 * the host has filled it. All of them are enqueued on a stream of the current GPU. A kernel that
 * waits gives up after BENCH_KERNEL_WAIT_NS and sets is_overdue in the flag page.
 */
#ifndef GYRE_BENCH_LIMITS_KERNELS_H
#define GYRE_BENCH_LIMITS_KERNELS_H

#include "bench/limits/limits.h"

#include <assert.h>

#define BENCH_KERNEL_WAIT_NS 2000000000ULL
#define BENCH_TMA_BYTES      16384U /* of one bulk copy */

/* The flag page: pinned host memory that all GPUs can access. */
struct bench_flag_page {
    uint32_t may_start;    /* releases the sync kernels; written by the host */
    uint32_t is_overdue;   /* set to 1 by any kernel that gave up; cleared by the host */
    uint64_t ping_pong_ns; /* time of all rounds; written by the GPU that begins */
};
static_assert(sizeof(struct bench_flag_page) == 16, "the same layout on host and GPU");

/* One GPU's part in sending a number to the other GPU and back. */
struct bench_ping_pong {
    uint32_t *mine;   /* memory of this GPU, zero at first; written by the other GPU only */
    uint32_t *theirs; /* memory of the other GPU */
    uint32_t n_rounds;
    bool begins;
    struct bench_flag_page *flags;
};

/* A copy by SMs or by TMA. */
struct bench_copy {
    void *to;
    const void *from;
    uint64_t n_bytes;
    uint32_t n_blocks;
};

/* A scatter: piece i of one GPU's buffer goes to GPU i. The GPU's own piece stays. */
struct bench_scatter {
    void *to[BENCH_LIMITS_MAX_GPUS];
    const void *from; /* n_gpus pieces */
    uint64_t piece_bytes;
    uint32_t gpu; /* the GPU that sends */
    uint32_t n_gpus;
};

#ifdef __cplusplus
extern "C" {
#endif

/** bench_kernels_load - load all kernels on the current GPU. Loading a kernel later, while a sync
 * kernel waits, could wait for that sync kernel (CUDA Programming Guide, "Lazy Loading", "Potential
 * Hazards").
 * @arch: of the GPU. Errors of all functions here: DEVICE. */
gyre_status bench_kernels_load(uint32_t arch);

/** bench_enqueue_sync - enqueue a sync kernel: the rest of the stream starts when the host sets
 * flags->may_start. */
gyre_status bench_enqueue_sync(struct bench_flag_page *flags, gyre_stream stream);

/** bench_enqueue_copy - copy with 512 threads a block and 16 bytes an access.
 * @copy: from and to memory of any GPU that this GPU can address, aligned to 16 bytes and not
 * overlapping; a multiple of 16 bytes. */
gyre_status bench_enqueue_copy(const struct bench_copy *copy, gyre_stream stream);

/** bench_enqueue_scatter - as bench_enqueue_copy(), to all other GPUs at the same time.
 * @scatter: the pieces are multiples of 16 bytes, and the buffers are aligned to 16. */
gyre_status bench_enqueue_scatter(const struct bench_scatter *scatter, uint32_t n_blocks,
                                  gyre_stream stream);

/** bench_enqueue_tma_copy - one thread of each block moves chunks of BENCH_TMA_BYTES through shared
 * memory by bulk copies (PTX ISA, cp.async.bulk). It needs sm_90 or later.
 * @copy: from memory of this GPU; a multiple of BENCH_TMA_BYTES. */
gyre_status bench_enqueue_tma_copy(const struct bench_copy *copy, struct bench_flag_page *flags,
                                   gyre_stream stream);

/** bench_enqueue_ping_pong - one GPU's side, a kernel of one thread. Both sides must run at the
 * same time. */
gyre_status bench_enqueue_ping_pong(const struct bench_ping_pong *side, gyre_stream stream);

/** bench_enqueue_nothing - a kernel of one warp that does nothing. */
gyre_status bench_enqueue_nothing(gyre_stream stream);

#ifdef __cplusplus
}
#endif

#endif
