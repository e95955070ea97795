/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels whose rates `limits` measures, and the one that holds a stream back until the host
 * has filled it. All are enqueued on a stream of the current GPU. Whatever waits in a kernel gives
 * up after BENCH_KERNEL_WAIT_NS and says so on the flags.
 */
#ifndef GYRE_BENCH_LIMITS_KERNELS_H
#define GYRE_BENCH_LIMITS_KERNELS_H

#include "bench/limits/limits.h"

#include <assert.h>

#define BENCH_KERNEL_WAIT_NS 2000000000ULL
#define BENCH_TMA_BYTES      16384U /* of a bulk copy */

/* Pinned host memory that all GPUs see. */
struct bench_flag_page {
    uint32_t may_start;    /* the gate; written by the host */
    uint32_t is_overdue;   /* set to 1 by any kernel that gave up; cleared by the host */
    uint64_t ping_pong_ns; /* of all rounds; written by the GPU that begins */
};
static_assert(sizeof(struct bench_flag_page) == 16, "the same layout on host and GPU");

/* One side's part in sending a number to and fro. */
struct bench_ping_pong {
    uint32_t *mine;   /* memory of this GPU, zeroed before; written by the other GPU only */
    uint32_t *theirs; /* memory of the other GPU */
    uint32_t n_rounds;
    bool begins;
    struct bench_flag_page *flags;
};

/* Where the pieces of one GPU's buffer go: piece i to GPU i's memory, none to itself. */
struct bench_scatter {
    void *to[BENCH_LIMITS_MAX_GPUS];
    const void *from; /* n_gpus pieces */
    uint64_t piece_bytes;
    uint32_t gpu; /* itself */
    uint32_t n_gpus;
};

#ifdef __cplusplus
extern "C" {
#endif

/** bench_kernels_load - load all kernels on the current GPU now: loading one later, while another
 * kernel waits at the gate, could wait for that kernel (CUDA Programming Guide, "Lazy Loading",
 * "Potential Hazards"). @arch: of the GPU. Errors of all entries: DEVICE. */
gyre_status bench_kernels_load(uint32_t arch);

/** bench_enqueue_sync - what follows on the stream starts when the host sets flags->may_start. */
gyre_status bench_enqueue_sync(struct bench_flag_page *flags, gyre_stream stream);

/** bench_enqueue_copy - 512 threads a block, 16 bytes an access.
 * @to, @from: of any GPU that this one can address, aligned to 16 bytes, apart from each other.
 * @n_bytes: a multiple of 16. */
gyre_status bench_enqueue_copy(void *to, const void *from, uint64_t n_bytes, uint32_t n_blocks,
                               gyre_stream stream);

/** bench_enqueue_scatter - like bench_enqueue_copy, to all other GPUs at the same time.
 * @scatter: pieces of a multiple of 16 bytes, buffers aligned to 16. */
gyre_status bench_enqueue_scatter(const struct bench_scatter *scatter, uint32_t n_blocks,
                                  gyre_stream stream);

/** bench_enqueue_tma_copy - one thread of a block moves chunks of BENCH_TMA_BYTES through shared
 * memory by bulk copies (PTX ISA, cp.async.bulk). GPUs from sm_90 on.
 * @from: this GPU's memory. @n_bytes: a multiple of BENCH_TMA_BYTES. */
gyre_status bench_enqueue_tma_copy(void *to, const void *from, uint64_t n_bytes, uint32_t n_blocks,
                                   struct bench_flag_page *flags, gyre_stream stream);

/** bench_enqueue_ping_pong - one thread; both GPUs' sides have to run at the same time. */
gyre_status bench_enqueue_ping_pong(const struct bench_ping_pong *side, gyre_stream stream);

/** bench_enqueue_nothing - a kernel of one warp that does nothing. */
gyre_status bench_enqueue_nothing(gyre_stream stream);

#ifdef __cplusplus
}
#endif

#endif
