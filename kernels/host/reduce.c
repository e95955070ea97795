/* SPDX-License-Identifier: Apache-2.0
 *
 * A step runs in blocks that stay in the L1 cache, so memory is read and written once. The
 * baseline's and AVX2's loops (reduce_loops.h) give the same bits, because no loop reassociates or
 * contracts.
 */
#include "kernels/host/host_exec.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "kernels/numeric.h"

/* 8 KiB for the widest type: of 4-byte types three areas and the inputs' blocks fit L1's 32 KiB. */
#define BLOCK_ELEMS    1024
#define ELEM_MAX_BYTES 8

struct op_loops {
    void (*pair)(void *out, const void *a, const void *b, size_t n_elems);
    void (*start)(void *out, const void *a, const void *b, size_t n_elems);
    void (*more)(void *out, const void *a, const void *b, size_t n_elems);
    void (*end)(void *out, const void *a, const void *b, size_t n_elems);
};

struct type_loops {
    struct op_loops ops[GYRE_MIN + 1];
    void (*scale)(void *out, const void *in, const void *scalar, size_t n_elems);
    void (*divide)(void *in_out, uint32_t divisor, size_t n_elems);
};

/* For buffers of any alignment and declared type. */
#define DECLARE_STORED(id, stored, type, family, load, store) \
    typedef stored __attribute__((may_alias, aligned(1))) stored_##id;
GYRE_NUMERIC_TABLE(DECLARE_STORED)

#define LOOPS_OPS(LOOP, id, type, family, load, store) \
    LOOP(id, sum, type, family, load, store)           \
    LOOP(id, prod, type, family, load, store)          \
    LOOP(id, max, type, family, load, store)           \
    LOOP(id, min, type, family, load, store)

/* Averages of floats multiply instead. */
static void divide_nothing(void *in_out, uint32_t divisor, size_t n_elems)
{
    (void)in_out;
    (void)divisor;
    (void)n_elems;
}

#define LOOPS_TARGET
#define LOOPS_NAME(name) name##_baseline
#define LOOPS_TABLE      loops_baseline
#include "kernels/host/reduce_loops.h"
#undef LOOPS_TARGET
#undef LOOPS_NAME
#undef LOOPS_TABLE

/* A test defines it, to run the other loops. */
#if defined(__x86_64__) && !defined(GYRE_REDUCE_BASELINE_ONLY)
#define HAVE_AVX2_LOOPS  1
#define LOOPS_TARGET     __attribute__((target("avx2")))
#define LOOPS_NAME(name) name##_avx2
#define LOOPS_TABLE      loops_avx2
#include "kernels/host/reduce_loops.h"
#include "kernels/host/reduce_f16c.h"
#endif

static const struct type_loops *loops_of(uint8_t dtype)
{
#ifdef HAVE_AVX2_LOOPS
    if (__builtin_cpu_supports("avx2"))
        return dtype == GYRE_FLOAT16 && has_f16c() ? &loops_f16c : &loops_avx2[dtype];
#endif
    return &loops_baseline[dtype];
}

struct block {
    const struct gyre_reduce_step *step;
    const struct type_loops *loops;
    const struct op_loops *op;
    uint64_t skip_bytes;
    size_t n_elems;
    unsigned char *scaled; /* for at most two inputs at a time */
    unsigned char *chain;
};

static const void *block_input(const struct block *block, uint32_t k)
{
    const struct gyre_reduce_step *step = block->step;
    const void *in = (const unsigned char *)step->ins[k] + block->skip_bytes;
    if ((step->premultiply_mask >> k & 1U) == 0)
        return in;
    void *scaled = block->scaled + (k & 1U) * BLOCK_ELEMS * ELEM_MAX_BYTES;
    block->loops->scale(scaled, in, &step->reduction->scalar, block->n_elems);
    return scaled;
}

static void reduce_block(const struct block *block, void *out)
{
    const struct op_loops *op = block->op;
    const uint32_t n_ins = block->step->n_ins;
    const size_t n = block->n_elems;
    const void *first = block_input(block, 0);
    if (n_ins == 1) {
        if (out != first)
            gyre_copy(out, first, n * gyre_dtype_bytes((gyre_dtype)block->step->reduction->dtype));
        return;
    }
    if (n_ins == 2) {
        op->pair(out, first, block_input(block, 1), n);
        return;
    }
    op->start(block->chain, first, block_input(block, 1), n);
    for (uint32_t k = 2; k + 1 < n_ins; k++)
        op->more(block->chain, block->chain, block_input(block, k), n);
    op->end(out, block->chain, block_input(block, n_ins - 1), n);
}

void gyre_reduce_run(const struct gyre_reduce_step *step)
{
    const struct gyre_reduction *reduction = step->reduction;
    const unsigned elem_bytes = gyre_dtype_bytes((gyre_dtype)reduction->dtype);
    if (step->n_elems == 0 || step->n_outs == 0)
        return;
    if (step->n_ins == 1 && step->premultiply_mask == 0 && !step->divide) {
        const uint64_t n_bytes = step->n_elems * elem_bytes;
        for (uint32_t k = 0; k < step->n_outs; k++)
            if (step->outs[k] != step->ins[0])
                gyre_copy(step->outs[k], step->ins[0], n_bytes);
        return;
    }
    const struct type_loops *loops = loops_of(reduction->dtype);
    if (step->n_ins == 2 && step->n_outs == 1 && step->premultiply_mask == 0 && !step->divide)
        loops->ops[reduction->op].pair(step->outs[0], step->ins[0], step->ins[1], step->n_elems);
    else {
        _Alignas(64) unsigned char scaled[2 * BLOCK_ELEMS * ELEM_MAX_BYTES];
        _Alignas(64) unsigned char chain[BLOCK_ELEMS * ELEM_MAX_BYTES];
        struct block block = {step, loops, &loops->ops[step->reduction->op], 0, 0, scaled, chain};
        for (uint64_t first = 0; first < step->n_elems; first += BLOCK_ELEMS) {
            block.n_elems = (size_t)gyre_min_u64(BLOCK_ELEMS, step->n_elems - first);
            block.skip_bytes = first * elem_bytes;
            unsigned char *result = (unsigned char *)step->outs[0] + block.skip_bytes;
            reduce_block(&block, result);
            if (step->divide)
                loops->divide(result, step->reduction->divisor, block.n_elems);
            for (uint32_t k = 1; k < step->n_outs; k++)
                gyre_copy((unsigned char *)step->outs[k] + block.skip_bytes, result,
                          block.n_elems * elem_bytes);
        }
    }
}
