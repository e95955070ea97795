/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of each element type, from interp_types.cu.in and interp_copy.cu, which are compiled
 * again for lean kernels (device/lean.cuh), except SIMPLE's. Valid as C11 and as CUDA.
 */
#ifndef GYRE_KERNELS_CUDA_KERNEL_TABLE_H
#define GYRE_KERNELS_CUDA_KERNEL_TABLE_H

#include "kernels/cuda/host/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* By rounds in flight. */
enum gyre_cuda_lines {
    GYRE_CUDA_LINES_LL,
    GYRE_CUDA_LINES_LL128,
    GYRE_CUDA_LINES_LL128_DEEP,
    GYRE_CUDA_LINES_LL128_LONG,
    GYRE_CUDA_N_LINES
};

struct gyre_cuda_kernels {
    const void *one_shot[GYRE_MIN + 1];   /* LL, in few instructions */
    const void *fused[GYRE_CUDA_N_LINES]; /* sums */
    /* Floating-point sums for 1, 3 and 7 peers. SIMPLE's two-shot: staged, placed. LAMPORT's of
     * each kind: general, EXACT_FIT. */
    const void *twoshot[GYRE_CUDA_PEERS_KERNELS][2];
    const void *lamport[GYRE_CUDA_PEERS_KERNELS][GYRE_CUDA_LAMPORT_KINDS][2];
    const void *by_op[GYRE_N_PROTOS][GYRE_MIN + 1];
};

struct gyre_cuda_copy_kernels {
    const void *fused[GYRE_CUDA_N_LINES][2]; /* all-gathers, all-to-alls */
    /* Lean: for LL and LL128. */
    const void *message[GYRE_N_PROTOS];
    const void *in_rows[2]; /* lean: messages; all-to-alls of two ranks */
    const void *one[GYRE_N_PROTOS];
    const void *few[GYRE_N_PROTOS];  /* take struct gyre_cuda_args_few */
    const void *many[GYRE_N_PROTOS]; /* take struct gyre_cuda_args_many */
    /* In the full table. */
    const void *mixed_few; /* takes struct gyre_cuda_args_mixed_few */
    const void *mixed;     /* takes struct gyre_cuda_args_mixed */
    const void *placed;    /* all-gathers; takes struct gyre_cuda_args_fused */
};

#define GYRE_CUDA_KERNELS_DECLARE(id, name, bytes, is_float)      \
    extern const struct gyre_cuda_kernels gyre_cuda_kernels_##id; \
    extern const struct gyre_cuda_kernels gyre_cuda_lean_kernels_##id;
GYRE_DTYPE_TABLE(GYRE_CUDA_KERNELS_DECLARE)
#undef GYRE_CUDA_KERNELS_DECLARE

extern const struct gyre_cuda_copy_kernels gyre_cuda_kernels_copy;
extern const struct gyre_cuda_copy_kernels gyre_cuda_lean_kernels_copy;
extern const void *const gyre_cuda_kernel_sync;        /* takes struct gyre_cuda_args_sync */
extern const void *const gyre_cuda_kernel_copy_within; /* takes struct gyre_cuda_args_copy */
extern const void *const gyre_cuda_kernel_signal;      /* takes struct gyre_cuda_args_signal */
extern const void *const gyre_cuda_kernel_await;       /* takes struct gyre_cuda_args_await */
extern const void *const gyre_cuda_kernel_clock;       /* takes struct gyre_cuda_clock_words * */

#ifdef __cplusplus
}
#endif

#endif
