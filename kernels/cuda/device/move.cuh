/* SPDX-License-Identifier: Apache-2.0
 *
 * The instruction of a step on plain memory, in accesses of 16 bytes. At other addresses a warp
 * shifts what it loads and stores (unaligned.cuh).
 */
#ifndef GYRE_KERNELS_CUDA_MOVE_CUH
#define GYRE_KERNELS_CUDA_MOVE_CUH

#include "kernels/cuda/device/unaligned.cuh"
#include "kernels/cuda/device/sync.cuh"

/* One word of 16 bytes, read before any address. */
struct move_head {
    uint32_t n_bytes;
    uint8_t n_ins;
    uint8_t n_outs;
    uint8_t misalignment; /* bitwise or of all addresses, modulo 16 */
    uint8_t is_stopped;   /* 1: aborted */
    uint16_t scale_mask;
    uint16_t is_last; /* of the block */
    uint32_t divisor;
};

static_assert(sizeof(struct move_head) == 16, "read as one word");

struct move {
    uint4 head;
    uint64_t scalar;
    const unsigned char *ins[GYRE_STEP_MAX_INS];
    unsigned char *outs[GYRE_STEP_MAX_OUTS];
};

static __device__ __forceinline__ struct move_head read_head(const struct move *move)
{
    const uint4 word = move->head;
    struct move_head head;
    memcpy(&head, &word, sizeof(head));
    return head;
}

static __device__ __forceinline__ void write_head(struct move *move, const struct move_head &head)
{
    memcpy(&move->head, &head, sizeof(head));
}

struct share {
    uint32_t begin;
    uint32_t end;
    uint32_t thread;
    uint32_t n_threads;
};

template <int BYTES, int UNROLL>
static __device__ __forceinline__ void copy_packs(const struct move &move, uint32_t n_outs,
                                                  struct share share)
{
    const unsigned char *in = move.ins[0];
    unsigned char *out = move.outs[0];
    const uint32_t stride = share.n_threads * BYTES;
    uint32_t at = share.begin + share.thread * BYTES;
    pack<BYTES> packs[UNROLL];
    for (; at + (UNROLL - 1) * stride < share.end; at += UNROLL * stride) {
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            packs[k] = load<BYTES>(in + at + k * stride);
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            store<BYTES>(out + at + k * stride, packs[k]);
        for (uint32_t o = 1; o < n_outs; o++) {
            unsigned char *more = move.outs[o];
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                store<BYTES>(more + at + k * stride, packs[k]);
        }
    }
    for (; at < share.end; at += stride) {
        packs[0] = load<BYTES>(in + at);
        for (uint32_t o = 0; o < n_outs; o++)
            store<BYTES>(move.outs[o] + at, packs[0]);
    }
}

/* In whole packs. Elements are moved around it. */
struct inner {
    uint32_t begin;
    uint32_t end;
};

/* In whole unaligned spans. At least 16 bytes are left before and after, because fetch_span() reads
 * beyond a span. Begins where an output is aligned, because such an output needs no shifting. */
static __device__ __forceinline__ struct inner spans_of(const struct move &move, uint32_t n_outs,
                                                        uint32_t n_bytes, uint32_t span_bytes)
{
    struct inner inner;
    uint32_t skip = (uint32_t)(uintptr_t)move.outs[0] & 15U;
    for (uint32_t o = 1; o < n_outs; o++)
        if (((uintptr_t)move.outs[o] & 15U) == 0)
            skip = 0;
    inner.begin = min(16 + (-skip & 15U), n_bytes);
    inner.end = inner.begin;
    if (n_bytes >= inner.begin + 16)
        inner.end += (n_bytes - inner.begin - 16) / span_bytes * span_bytes;
    return inner;
}

/* All code for odd addresses is out of line: few messages run it, and all others would fetch it. */
static __device__ __noinline__ void copy_rest(const struct move &move, uint32_t n_outs,
                                              uint32_t n_bytes, struct inner inner, uint32_t thread,
                                              uint32_t n_threads)
{
    const int unroll = 8;
    const uint32_t n_rest = inner.begin + n_bytes - inner.end;
    for (uint32_t first = thread; first < n_rest; first += n_threads * unroll) {
        pack<1> bytes[unroll];
        uint32_t at[unroll];
#pragma unroll
        for (int k = 0; k < unroll; k++) {
            at[k] = first + k * n_threads;
            at[k] += at[k] < inner.begin ? 0 : inner.end - inner.begin;
            if (at[k] < n_bytes)
                bytes[k] = load<1>(move.ins[0] + at[k]);
        }
        for (uint32_t o = 0; o < n_outs; o++) {
#pragma unroll
            for (int k = 0; k < unroll; k++)
                if (at[k] < n_bytes)
                    store<1>(move.outs[o] + at[k], bytes[k]);
        }
    }
}

/* Between multiples of 4, accesses of 4 bytes are faster than shifting. */
static __device__ __noinline__ void copy_words(const struct move &move, uint32_t n_outs,
                                               struct share share)
{
    copy_packs<4, 16>(move, n_outs, share);
}

static __device__ __noinline__ void copy_odd(const struct move &move, uint32_t n_outs,
                                             uint32_t n_bytes, uint32_t thread, uint32_t n_threads)
{
    const int n_rows = 6;
    const uint32_t lane = thread % 32;
    const struct inner inner = spans_of(move, n_outs, n_bytes, n_rows * ROW_BYTES);
    copy_rest(move, n_outs, n_bytes, inner, thread, n_threads);
    for (uint32_t at = inner.begin + thread / 32 * n_rows * ROW_BYTES; at < inner.end;
         at += n_threads / 32 * n_rows * ROW_BYTES) {
        struct unaligned_span<n_rows> own;
        fetch_span(move.ins[0] + at, lane, &own);
        align_span(move.ins[0] + at, lane, &own);
        for (uint32_t o = 0; o < n_outs; o++)
            store_span<n_rows>(move.outs[o] + at, lane, own.rows);
    }
}

static __device__ __forceinline__ void copy_bytes(const struct move_head &head,
                                                  const struct move &move, uint32_t thread,
                                                  uint32_t n_threads)
{
    const uint32_t whole = head.n_bytes & ~15U;
    if (head.misalignment % 4 != 0)
        return copy_odd(move, head.n_outs, head.n_bytes, thread, n_threads);
    if (head.misalignment != 0)
        copy_words(move, head.n_outs, {0, whole, thread, n_threads});
    else if (whole > 0)
        copy_packs<16, 8>(move, head.n_outs, {0, whole, thread, n_threads});
    if (whole < head.n_bytes)
        copy_rest(move, head.n_outs, head.n_bytes, {0, whole}, thread, n_threads);
}

/* An input's loads are issued before the values of the input before it are used. */
template <int DTYPE, int OP, int BYTES, int UNROLL>
static __device__ __forceinline__ void reduce_packs(const struct move_head &head,
                                                    const struct move &move, struct share share)
{
    const uint32_t n_ins = head.n_ins;
    const uint32_t n_outs = head.n_outs;
    const uint32_t scale_mask = head.scale_mask;
    const uint64_t scalar = scale_mask != 0 ? move.scalar : 0;
    const uint32_t stride = share.n_threads * BYTES;
    for (uint32_t at = share.begin + share.thread * BYTES; at < share.end; at += UNROLL * stride) {
        reducer<DTYPE, OP, BYTES> results[UNROLL];
        pack<BYTES> packs[UNROLL], next[UNROLL];
        const bool is_full = at + (UNROLL - 1) * stride < share.end;
        const unsigned char *in = move.ins[0] + at;
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            if (is_full || at + k * stride < share.end)
                packs[k] = load<BYTES>(in + k * stride);
        for (uint32_t i = 0; i < n_ins; i++) {
            if (i + 1 < n_ins) {
                in = move.ins[i + 1] + at;
#pragma unroll
                for (int k = 0; k < UNROLL; k++)
                    if (is_full || at + k * stride < share.end)
                        next[k] = load<BYTES>(in + k * stride);
            }
            const bool is_scaled = (scale_mask >> i & 1) != 0;
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
                if (i == 0)
                    results[k].begin(packs[k], is_scaled, scalar);
                else
                    results[k].add(packs[k], is_scaled, scalar);
                packs[k] = next[k];
            }
        }
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            packs[k] = results[k].end(head.divisor);
        for (uint32_t o = 0; o < n_outs; o++) {
            unsigned char *out = move.outs[o] + at;
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                if (is_full || at + k * stride < share.end)
                    store<BYTES>(out + k * stride, packs[k]);
        }
    }
}

/* Two inputs, as in rings, without a loop over inputs. Returns the bytes done. */
template <int DTYPE, int OP, int UNROLL>
static __device__ __forceinline__ uint32_t reduce_pairs(const struct move &move, uint32_t n_outs,
                                                        struct share share)
{
    const unsigned char *a = move.ins[0];
    const unsigned char *b = move.ins[1];
    const uint32_t stride = share.n_threads * 16;
    const uint32_t round = UNROLL * stride;
    const uint32_t end = share.end / round * round;
    for (uint32_t at = share.thread * 16; at < end; at += round) {
        pack<16> x[UNROLL], y[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            x[k] = load<16>(a + at + k * stride);
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            y[k] = load<16>(b + at + k * stride);
#pragma unroll
        for (int k = 0; k < UNROLL; k++) {
            reducer<DTYPE, OP, 16> result;
            result.begin(x[k], false, 0);
            result.add(y[k], false, 0);
            x[k] = result.end(1);
        }
        for (uint32_t o = 0; o < n_outs; o++) {
            unsigned char *out = move.outs[o] + at;
#pragma unroll
            for (int k = 0; k < UNROLL; k++)
                store<16>(out + k * stride, x[k]);
        }
    }
    return end;
}

template <int DTYPE, int OP>
static __device__ __noinline__ void reduce_rest(const struct move_head &head,
                                                const struct move &move, struct share share)
{
    reduce_packs<DTYPE, OP, (int)sizeof(typename element<DTYPE>::stored), 1>(head, move, share);
}

template <int DTYPE, int OP>
static __device__ __noinline__ void reduce_odd(const struct move_head &head,
                                               const struct move &move, uint32_t thread,
                                               uint32_t n_threads)
{
    /* As many rows as registers can hold in the computing type (docs/lab_notes.md). */
    const int elem_bytes = (int)sizeof(typename element<DTYPE>::stored);
    const int n_rows = elem_bytes == 1 ? 2 : elem_bytes == 2 ? 3 : 4;
    const uint32_t lane = thread % 32;
    const uint64_t scalar = head.scale_mask != 0 ? move.scalar : 0;
    const struct inner inner = spans_of(move, head.n_outs, head.n_bytes, n_rows * ROW_BYTES);
    reduce_rest<DTYPE, OP>(head, move, {0, inner.begin, thread, n_threads});
    reduce_rest<DTYPE, OP>(head, move,
                           {inner.end, head.n_bytes, n_threads - 1 - thread, n_threads});
    for (uint32_t at = inner.begin + thread / 32 * n_rows * ROW_BYTES; at < inner.end;
         at += n_threads / 32 * n_rows * ROW_BYTES) {
        reducer<DTYPE, OP, 16> results[n_rows];
        struct unaligned_span<n_rows> own, next;
        fetch_span(move.ins[0] + at, lane, &own);
        fetch_span(move.ins[head.n_ins > 1] + at, lane, &next);
        align_span(move.ins[0] + at, lane, &own);
#pragma unroll
        for (int k = 0; k < n_rows; k++)
            results[k].begin(own.rows[k], (head.scale_mask & 1) != 0, scalar);
        for (uint32_t i = 1; i < head.n_ins;) {
            align_span(move.ins[i] + at, lane, &next);
#pragma unroll
            for (int k = 0; k < n_rows; k++)
                results[k].add(next.rows[k], (head.scale_mask >> i & 1) != 0, scalar);
            if (++i < head.n_ins)
                fetch_span(move.ins[i] + at, lane, &next);
        }
#pragma unroll
        for (int k = 0; k < n_rows; k++)
            own.rows[k] = results[k].end(head.divisor);
        for (uint32_t o = 0; o < head.n_outs; o++)
            store_span<n_rows>(move.outs[o] + at, lane, own.rows);
    }
}

template <int DTYPE, int OP>
static __device__ __forceinline__ void reduce_bytes(const struct move_head &head,
                                                    const struct move &move, uint32_t thread,
                                                    uint32_t n_threads)
{
    const int elem_bytes = (int)sizeof(typename element<DTYPE>::stored);
    const uint32_t whole = head.n_bytes & ~15U;
    uint32_t done = 0;
    if (head.misalignment != 0)
        return reduce_odd<DTYPE, OP>(head, move, thread, n_threads);
    if (whole > 0 && head.n_ins == 2 && head.scale_mask == 0 && head.divisor <= 1)
        done = reduce_pairs<DTYPE, OP, 4>(move, head.n_outs, {0, whole, thread, n_threads});
    /* A pack of an 8-bit type takes 16 registers in the computing type. */
    if (done < whole)
        reduce_packs<DTYPE, OP, 16, elem_bytes == 1 ? 1 : 2>(head, move,
                                                             {done, whole, thread, n_threads});
    if (whole < head.n_bytes)
        reduce_rest<DTYPE, OP>(head, move, {whole, head.n_bytes, thread, n_threads});
}

template <int DTYPE, int OP>
static __device__ __forceinline__ void move_bytes(const struct move_head &head,
                                                  const struct move &move, uint32_t thread,
                                                  uint32_t n_threads)
{
    if constexpr (DTYPE == DTYPE_NONE) {
        copy_bytes(head, move, thread, n_threads);
    } else {
        if (head.n_ins == 1 && head.scale_mask == 0 && head.divisor <= 1)
            copy_bytes(head, move, thread, n_threads);
        else
            reduce_bytes<DTYPE, OP>(head, move, thread, n_threads);
    }
}

#endif
