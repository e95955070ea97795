/* SPDX-License-Identifier: Apache-2.0
 *
 * What the line formats of the interpreter and the fused kernels share.
 */
#ifndef GYRE_KERNELS_CUDA_LINE_CUH
#define GYRE_KERNELS_CUDA_LINE_CUH

#include "kernels/cuda/device/access.cuh"
#include "kernels/cuda/device/fifo.cuh"

#define LINE_BYTES 16 /* a line of one thread: LL, LAMPORT */

/* For a connection, the flag of its lines. */
struct line_operand {
    unsigned char *base;
    uint64_t flag;
};

/* What a thread moves at once: a line's 8 data bytes in LL; in LL128 16 bytes, or 8 in the lane
 * that has the flag. */
struct line_place {
    uint32_t line;
    uint32_t data_bytes; /* offset in the chunk */
    uint32_t n_valid;    /* how many of the thread's bytes exist */
    bool exists;
};

/* Each warp lane resolves one operand of a step. */
#define LINE_OPERANDS  20 /* inputs from 0, outputs from LINE_FIRST_OUT */
#define LINE_FIRST_OUT GYRE_STEP_MAX_INS

template <int PROTO> static __device__ __forceinline__ uint64_t line_flag(uint64_t number)
{
    return PROTO == GYRE_PROTO_LL ? gyre_ll_flag(number) : number + 1;
}

/* Also clears the line. */
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

template <int PROTO> struct line_mover;

#endif
