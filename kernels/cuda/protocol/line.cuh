/* SPDX-License-Identifier: Apache-2.0
 *
 * What the formats of lines share. Each line protocol has one file here that says how a thread
 * loads its part of a chunk, sends it as a line, sees that a line has arrived, and clears it. The
 * interpreter and the fused kernels use the same formats.
 */
#ifndef GYRE_KERNELS_CUDA_LINE_CUH
#define GYRE_KERNELS_CUDA_LINE_CUH

#include "kernels/cuda/device/access.cuh"
#include "kernels/cuda/device/fifo.cuh"

#define LINE_BYTES 16 /* of a line that one thread stores: LL, LAMPORT */

/* One operand of a step: where its bytes begin, and of a connection the flag that marks them. */
struct line_operand {
    unsigned char *base;
    uint64_t flag;
};

/* What a thread moves at once: of LL a line's 8 bytes, of LL128 its lane's part of a line, 16 bytes
 * or, beside the flag, 8. */
struct line_place {
    uint32_t line;       /* of the slot */
    uint32_t data_bytes; /* offset of the thread's bytes in the chunk */
    uint32_t n_valid;    /* bytes of them that exist */
    bool exists;         /* the line exists */
};

/* A warp resolves the operands of a step, one in a lane. */
#define LINE_OPERANDS  20 /* inputs from 0, outputs from LINE_FIRST_OUT */
#define LINE_FIRST_OUT GYRE_STEP_MAX_INS

template <int PROTO> static __device__ __forceinline__ uint64_t line_flag(uint64_t number)
{
    return PROTO == GYRE_PROTO_LL ? gyre_cuda_ll_flag(number) : number + 1;
}

/* Loads the line again until its data have arrived, then clears it. Returns false when aborted. */
template <class FORMAT>
static __device__ __forceinline__ bool receive_line(const struct gyre_cuda_common &common,
                                                    const struct line_operand &in, uint32_t at,
                                                    ulonglong2 *halves)
{
    unsigned char *line = in.base + (size_t)at * LINE_BYTES;
    uint32_t n_polls = 0;
    while (!FORMAT::has_arrived(*halves, in.flag)) {
        if (must_stop(common, n_polls))
            return false;
        *halves = load_line(line);
    }
    FORMAT::clear(line);
    return true;
}

/* A protocol's way to move in a fused kernel what one thread moves at once (struct line_place). */
template <int PROTO> struct line_mover;

#endif
