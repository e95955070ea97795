/* SPDX-License-Identifier: Apache-2.0
 *
 * The instruction on plain memory, for the threads of one block: copies free of dtype, reductions
 * by dtype and operation. Vector accesses of 16 bytes where all addresses allow it, else of a
 * smaller power of two (copies) or of one element (reductions).
 */
#ifndef GYRE_KERNELS_CUDA_MOVE_CUH
#define GYRE_KERNELS_CUDA_MOVE_CUH

#include "kernels/cuda/element.cuh"
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

template <int BYTES> static __device__ __forceinline__ pack<BYTES> load(const unsigned char *from);

/* Streams: what is read here is not read again, so it should not stay in L1. */
template <> __device__ __forceinline__ pack<16> load<16>(const unsigned char *from)
{
    pack<16> to;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3])
                 : "l"(from)
                 : "memory");
    return to;
}

template <> __device__ __forceinline__ pack<8> load<8>(const unsigned char *from)
{
    pack<8> to;
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(to.words[0]), "=r"(to.words[1])
                 : "l"(from)
                 : "memory");
    return to;
}

template <> __device__ __forceinline__ pack<4> load<4>(const unsigned char *from)
{
    pack<4> to;
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];"
                 : "=r"(to.words[0])
                 : "l"(from)
                 : "memory");
    return to;
}

template <> __device__ __forceinline__ pack<2> load<2>(const unsigned char *from)
{
    pack<2> to;
    uint16_t value;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(value) : "l"(from) : "memory");
    to.words[0] = value;
    return to;
}

template <> __device__ __forceinline__ pack<1> load<1>(const unsigned char *from)
{
    pack<1> to;
    uint16_t value;
    asm volatile("ld.global.u8 %0, [%1];" : "=h"(value) : "l"(from) : "memory");
    to.words[0] = value;
    return to;
}

template <int BYTES>
static __device__ __forceinline__ void store(unsigned char *to, const pack<BYTES> &from)
{
    if (BYTES == 16)
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(from.words[0]),
                     "r"(from.words[1 % ((BYTES + 3) / 4)]), "r"(from.words[2 % ((BYTES + 3) / 4)]),
                     "r"(from.words[3 % ((BYTES + 3) / 4)])
                     : "memory");
    else if (BYTES == 8)
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(from.words[0]),
                     "r"(from.words[1 % ((BYTES + 3) / 4)])
                     : "memory");
    else if (BYTES == 4)
        asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(from.words[0]) : "memory");
    else if (BYTES == 2)
        asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"((uint16_t)from.words[0]) : "memory");
    else
        asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "h"((uint16_t)from.words[0]) : "memory");
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

/* What is left at the end, or all of it at odd addresses. Out of line, like reduce_odd(): seldom
 * run code would lie between what every message fetches. */
static __device__ __noinline__ void copy_odd(const struct move &move, uint32_t n_outs,
                                             uint32_t misalignment, struct share share)
{
    const bool is_all = share.begin == 0;
    if (is_all && misalignment % 4 == 0) {
        const uint32_t whole = share.end & ~3U;
        copy_packs<4, 8>(move, n_outs, {0, whole, share.thread, share.n_threads});
        share.begin = whole;
    }
    if (is_all && misalignment % 4 == 2 && share.end % 2 == 0)
        copy_packs<2, 8>(move, n_outs, share);
    else if (is_all && misalignment % 4 != 0)
        copy_packs<1, 8>(move, n_outs, share);
    else
        copy_packs<1, 1>(move, n_outs, share);
}

static __device__ __forceinline__ void copy_bytes(const struct move_head &head,
                                                  const struct move &move, uint32_t thread,
                                                  uint32_t n_threads)
{
    const uint32_t whole = head.misalignment == 0 ? head.n_bytes & ~15U : 0;
    if (whole > 0)
        copy_packs<16, 8>(move, head.n_outs, {0, whole, thread, n_threads});
    if (whole < head.n_bytes)
        copy_odd(move, head.n_outs, head.misalignment, {whole, head.n_bytes, thread, n_threads});
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
template <int DTYPE, int OP>
static __device__ __noinline__ void reduce_odd(const struct move_head &head,
                                               const struct move &move, struct share share)
{
    reduce_packs<DTYPE, OP, (int)sizeof(typename element<DTYPE>::stored), 2>(head, move, share);
}

template <int DTYPE, int OP>
static __device__ __forceinline__ void reduce_bytes(const struct move_head &head,
                                                    const struct move &move, uint32_t thread,
                                                    uint32_t n_threads)
{
    const int elem_bytes = (int)sizeof(typename element<DTYPE>::stored);
    const uint32_t whole = head.misalignment == 0 ? head.n_bytes & ~15U : 0;
    uint32_t done = 0;
    if (whole > 0 && head.n_ins == 2 && head.scale_mask == 0 && head.divisor <= 1)
        done = reduce_pairs<DTYPE, OP, 4>(move, head.n_outs, {0, whole, thread, n_threads});
    /* 8-bit types take 16 registers a pack in the computing type */
    if (done < whole)
        reduce_packs<DTYPE, OP, 16, elem_bytes == 1 ? 1 : 2>(head, move,
                                                             {done, whole, thread, n_threads});
    if (whole < head.n_bytes)
        reduce_odd<DTYPE, OP>(head, move, {whole, head.n_bytes, thread, n_threads});
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
