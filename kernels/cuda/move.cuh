/* SPDX-License-Identifier: Apache-2.0
 *
 * The instruction on plain memory, for the threads of one block: copies free of dtype, reductions
 * by dtype and operation. Accesses are of 16 bytes; where an address is no multiple of that, of 4
 * bytes (copies) or one element, and where these are shorter than 4 bytes, a warp shifts what it
 * loads and stores (stretch.cuh).
 */
#ifndef GYRE_KERNELS_CUDA_MOVE_CUH
#define GYRE_KERNELS_CUDA_MOVE_CUH

#include "kernels/cuda/stretch.cuh"
#include "kernels/cuda/sync.cuh"

/* What a thread must know of a step before its first address: one word of 16 bytes. */
struct move_head {
    uint32_t n_bytes;
    uint8_t n_ins;
    uint8_t n_outs;
    uint8_t misalignment; /* all addresses or'ed, modulo 16 */
    uint8_t is_stopped;   /* aborted: nothing is moved any more */
    uint16_t scale_mask;  /* as in struct arithmetic */
    uint16_t pad;
    uint32_t divisor;
};

static_assert(sizeof(struct move_head) == 16, "read as one word");

/* One step, resolved. */
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

/* A thread's share: packs at begin + (thread + k * n_threads) * BYTES below end. */
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

/* What is left of a range behind whole packs. Out of line, like all for odd addresses: seldom run
 * code would lie between what every message fetches. */
static __device__ __noinline__ void copy_rest(const struct move &move, uint32_t n_outs,
                                              struct share share)
{
    copy_packs<1, 1>(move, n_outs, share);
}

/* Packs at multiples of 4. Shifting takes longer than short accesses (all-gather of 256 MiB over 2
 * H200 417 instead of 405 us, at multiples of 16 388; 2026-11). */
static __device__ __noinline__ void copy_words(const struct move &move, uint32_t n_outs,
                                               struct share share)
{
    copy_packs<4, 16>(move, n_outs, share);
}

/* Packs at other addresses. */
static __device__ __noinline__ void copy_odd(const struct move &move, uint32_t n_outs,
                                             uint32_t n_packs, uint32_t thread, uint32_t n_threads)
{
    const int n_rows = 4;
    const uint32_t lane = thread % 32;
    for (uint32_t first = thread / 32 * n_rows * 32; first < n_packs; first += n_threads * n_rows) {
        struct stretch<n_rows> own;
        fetch_stretch(move.ins[0], n_packs, first, lane, &own);
        align_stretch(move.ins[0], lane, &own);
        for (uint32_t o = 0; o < n_outs; o++)
            store_stretch<n_rows>(move.outs[o] + first * 16, min(n_packs - first, n_rows * 32U),
                                  lane, own.rows);
    }
}

static __device__ __forceinline__ void copy_bytes(const struct move_head &head,
                                                  const struct move &move, uint32_t thread,
                                                  uint32_t n_threads)
{
    const uint32_t whole = head.n_bytes & ~15U;
    if (head.misalignment % 4 != 0)
        copy_odd(move, head.n_outs, whole / 16, thread, n_threads);
    else if (head.misalignment != 0)
        copy_words(move, head.n_outs, {0, whole, thread, n_threads});
    else if (whole > 0)
        copy_packs<16, 8>(move, head.n_outs, {0, whole, thread, n_threads});
    if (whole < head.n_bytes)
        copy_rest(move, head.n_outs, {whole, head.n_bytes, thread, n_threads});
}

/* The loads of the next input are issued before the last one's are used. */
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
        const bool is_whole = at + (UNROLL - 1) * stride < share.end;
        const unsigned char *in = move.ins[0] + at;
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            if (is_whole || at + k * stride < share.end)
                packs[k] = load<BYTES>(in + k * stride);
        for (uint32_t i = 0; i < n_ins; i++) {
            if (i + 1 < n_ins) {
                in = move.ins[i + 1] + at;
#pragma unroll
                for (int k = 0; k < UNROLL; k++)
                    if (is_whole || at + k * stride < share.end)
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
                if (is_whole || at + k * stride < share.end)
                    store<BYTES>(out + k * stride, packs[k]);
        }
    }
}

/* Two inputs, the hot case of rings: no loop over inputs. */
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

/* Element by element. */
template <int DTYPE, int OP, int UNROLL>
static __device__ __noinline__ void reduce_elements(const struct move_head &head,
                                                    const struct move &move, struct share share)
{
    reduce_packs<DTYPE, OP, (int)sizeof(typename element<DTYPE>::stored), UNROLL>(head, move,
                                                                                  share);
}

/* Packs of short elements. The next input is fetched before the last one is used. */
template <int DTYPE, int OP>
static __device__ __noinline__ void reduce_odd(const struct move_head &head,
                                               const struct move &move, uint32_t n_packs,
                                               uint32_t thread, uint32_t n_threads)
{
    const int n_rows = (int)sizeof(typename element<DTYPE>::stored); /* more want more registers */
    const uint32_t lane = thread % 32;
    const uint64_t scalar = head.scale_mask != 0 ? move.scalar : 0;
    for (uint32_t first = thread / 32 * n_rows * 32; first < n_packs; first += n_threads * n_rows) {
        reducer<DTYPE, OP, 16> results[n_rows];
        struct stretch<n_rows> own, next;
        fetch_stretch(move.ins[0], n_packs, first, lane, &own);
        for (uint32_t i = 0; i < head.n_ins; i++) {
            const bool is_scaled = (head.scale_mask >> i & 1) != 0;
            if (i + 1 < head.n_ins)
                fetch_stretch(move.ins[i + 1], n_packs, first, lane, &next);
            align_stretch(move.ins[i], lane, &own);
#pragma unroll
            for (int k = 0; k < n_rows; k++) {
                if (i == 0)
                    results[k].begin(own.rows[k], is_scaled, scalar);
                else
                    results[k].add(own.rows[k], is_scaled, scalar);
            }
            own = next;
        }
#pragma unroll
        for (int k = 0; k < n_rows; k++)
            own.rows[k] = results[k].end(head.divisor);
        for (uint32_t o = 0; o < head.n_outs; o++)
            store_stretch<n_rows>(move.outs[o] + first * 16, min(n_packs - first, n_rows * 32U),
                                  lane, own.rows);
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
    if (head.misalignment != 0 && whole > 0) {
        if constexpr (elem_bytes < 4)
            reduce_odd<DTYPE, OP>(head, move, whole / 16, thread, n_threads);
        else
            reduce_elements<DTYPE, OP, 32 / elem_bytes>(head, move, {0, whole, thread, n_threads});
        done = whole;
    } else if (whole > 0 && head.n_ins == 2 && head.scale_mask == 0 && head.divisor <= 1) {
        done = reduce_pairs<DTYPE, OP, 4>(move, head.n_outs, {0, whole, thread, n_threads});
    }
    /* 8-bit types take 16 registers a pack in the computing type */
    if (done < whole)
        reduce_packs<DTYPE, OP, 16, elem_bytes == 1 ? 1 : 2>(head, move,
                                                             {done, whole, thread, n_threads});
    if (whole < head.n_bytes)
        reduce_elements<DTYPE, OP, 1>(head, move, {whole, head.n_bytes, thread, n_threads});
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
