/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of a line protocol, resolved by a warp for one tile.
 */
#ifndef GYRE_KERNELS_CUDA_LINE_STEP_CUH
#define GYRE_KERNELS_CUDA_LINE_STEP_CUH

#include "kernels/cuda/device/block.cuh"
#include "kernels/cuda/protocol/line.cuh"

/* A bit of simple_mask that no operand has, so other steps take no further branch. */
#define LINE_RECORDED 0x80000000U
/* No step's operand: the address of a recorded step's entry, and when the step began. */
#define LINE_RECORD (LINE_OPERANDS - 1)

static_assert(GYRE_STEP_MAX_INS + GYRE_STEP_MAX_OUTS <= LINE_RECORD && LINE_OPERANDS < 32,
              "a lane for each operand");

/* Two words of 16 bytes, read before any operand. */
struct line_head {
    uint32_t n_bytes;
    uint8_t n_ins;
    uint8_t n_outs;
    uint16_t recv_mask;
    uint16_t send_mask;
    uint16_t clean_mask; /* LL: outputs of which every line is written */
    uint16_t short_mask; /* outputs without credit when the step was resolved */
    uint16_t scale_mask;
    uint32_t divisor;
    uint32_t simple_mask; /* operands in SIMPLE's slots, by lane, in no other mask */
    uint32_t net_mask;    /* outputs whose lines a proxy sends, by lane; also in send_mask */
    uint32_t pad;
};

static_assert(sizeof(struct line_head) == 32, "copied as two words");

/* In shared memory. */
struct line_slot {
    uint4 head[2];
    struct line_operand operands[LINE_OPERANDS];
};

static_assert(sizeof(struct line_slot) == GYRE_CUDA_LINE_STEP_BYTES, "as the host sizes it");

struct line_step : line_head {
    const struct line_operand *operands;
};

static __device__ __forceinline__ struct line_step read_line_step(const struct line_slot *slot)
{
    const uint4 words[2] = {slot->head[0], slot->head[1]}; /* both loads come before a use */
    struct line_head head;
    memcpy(&head, words, sizeof(head));
    return {head, slot->operands};
}

static __device__ __forceinline__ struct arithmetic line_arithmetic(const struct block &block,
                                                                    const struct line_step &line)
{
    return {block.work.scalar, line.scale_mask, line.divisor};
}

#endif
