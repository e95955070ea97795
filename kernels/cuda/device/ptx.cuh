/* SPDX-License-Identifier: Apache-2.0
 *
 * Every PTX instruction that CUDA C++ lacks. The stand-in GPU of the tests has the same file.
 */
#ifndef GYRE_KERNELS_CUDA_PTX_CUH
#define GYRE_KERNELS_CUDA_PTX_CUH

#include <stdint.h>

/* ---- plain memory: not read again, so loads do not keep it in L1 ---- */

static __device__ __forceinline__ uint4 load_16_bytes(const void *from)
{
    uint4 to;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                 : "l"(from)
                 : "memory");
    return to;
}

static __device__ __forceinline__ uint2 load_8_bytes(const void *from)
{
    uint2 to;
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(to.x), "=r"(to.y)
                 : "l"(from)
                 : "memory");
    return to;
}

static __device__ __forceinline__ uint32_t load_4_bytes(const void *from)
{
    uint32_t to;
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(to) : "l"(from) : "memory");
    return to;
}

static __device__ __forceinline__ uint16_t load_2_bytes(const void *from)
{
    uint16_t to;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(to) : "l"(from) : "memory");
    return to;
}

static __device__ __forceinline__ uint16_t load_1_byte(const void *from)
{
    uint16_t to;
    asm volatile("ld.global.u8 %0, [%1];" : "=h"(to) : "l"(from) : "memory");
    return to;
}

static __device__ __forceinline__ void store_16_bytes(void *to, uint32_t x, uint32_t y, uint32_t z,
                                                      uint32_t w)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x), "r"(y), "r"(z),
                 "r"(w)
                 : "memory");
}

static __device__ __forceinline__ void store_8_bytes(void *to, uint32_t x, uint32_t y)
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(x), "r"(y) : "memory");
}

static __device__ __forceinline__ void store_4_bytes(void *to, uint32_t value)
{
    asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

static __device__ __forceinline__ void store_2_bytes(void *to, uint16_t value)
{
    asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(value) : "memory");
}

static __device__ __forceinline__ void store_1_byte(void *to, uint16_t value)
{
    asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "h"(value) : "memory");
}

/* ---- words that another GPU, the host or another block writes or reads ---- */

static __device__ __forceinline__ uint64_t load_acquire_sys(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t load_relaxed_sys(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

static __device__ __forceinline__ uint32_t load_relaxed_sys(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

static __device__ __forceinline__ void store_relaxed_sys(uint64_t *word, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

static __device__ __forceinline__ void store_relaxed_sys(uint32_t *word, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

static __device__ __forceinline__ void fence_acq_rel_sys()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

static __device__ __forceinline__ void fence_sc_sys()
{
    asm volatile("fence.sc.sys;" ::: "memory");
}

/* As two 64-bit elements. */
static __device__ __forceinline__ ulonglong2 load_line(const void *line)
{
    ulonglong2 value;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(value.x), "=l"(value.y)
                 : "l"(line)
                 : "memory");
    return value;
}

static __device__ __forceinline__ void store_line(void *line, uint64_t x, uint64_t y)
{
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(line), "l"(x), "l"(y)
                 : "memory");
}

/* Of LL128 or LAMPORT, after its data were used. */
static __device__ __forceinline__ void clear_line(void *line)
{
    asm volatile("st.global.v2.b64 [%0], {%1, %1};" ::"l"(line), "l"(0ULL) : "memory");
}

static __device__ __forceinline__ uint64_t global_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

/* Every thread calls this before it accesses memory that a launch writes. */
static __device__ __forceinline__ void await_last_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next launch start. One thread of each block calls this once every peer block that this
 * launch depends on is running. The next launch then occupies multiprocessors until this one ends.
 * If it started earlier, it could hold a multiprocessor that a peer's block needs: launches of two
 * communicators could fill two GPUs in different orders and wait for each other. */
static __device__ __forceinline__ void allow_dependent_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* The whole warp takes part. */
static __device__ __forceinline__ void barrier_sync(int id, int n_threads)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

static __device__ __forceinline__ void barrier_arrive(int id, int n_threads)
{
    asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

/* Polls between two looks for an abort. A poll of local memory takes about 0.5 us: a look at device
 * memory every half millisecond, and one at host memory (1 to 2 us over PCIe) every 8 ms. */
#define ABORT_POLLS      1024U
#define ABORT_HOST_POLLS 16384U

/* ---- the asynchronous proxy, from sm_90 on; elsewhere these do nothing ---- */

/* Earlier stores of this thread to shared memory come before bulk stores from there. */
static __device__ __forceinline__ void fence_proxy_async_shared()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* @n_bytes: a multiple of 16. From shared memory. */
static __device__ __forceinline__ void bulk_store(void *to, const void *from, uint32_t n_bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"((uint32_t)__cvta_generic_to_shared(from)), "r"(n_bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
    (void)to, (void)from, (void)n_bytes;
#endif
}

/* Until this thread's bulk stores have been performed. */
static __device__ __forceinline__ void bulk_await()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

static __device__ __forceinline__ float f16_widen(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

static __device__ __forceinline__ uint16_t f16_narrow(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

static __device__ __forceinline__ uint16_t bf16_narrow(float value)
{
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

/* Instructions from compute capability 8.9 on. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define F8_CONVERSIONS(name, type)                                                               \
    static __device__ __forceinline__ float name##_widen(uint8_t bits)                           \
    {                                                                                            \
        uint32_t halves;                                                                         \
        asm("cvt.rn.f16x2." type "x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)bits));             \
        return f16_widen((uint16_t)halves);                                                      \
    }                                                                                            \
    static __device__ __forceinline__ uint8_t name##_narrow(float value)                         \
    {                                                                                            \
        uint16_t pair;                                                                           \
        asm("cvt.rn.satfinite." type "x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value)); \
        return (uint8_t)pair;                                                                    \
    }
F8_CONVERSIONS(f8e4m3, "e4m3")
F8_CONVERSIONS(f8e5m2, "e5m2")
#undef F8_CONVERSIONS
#else
#define f8e4m3_widen  gyre_f8e4m3_to_f32
#define f8e4m3_narrow gyre_f32_to_f8e4m3
#define f8e5m2_widen  gyre_f8e5m2_to_f32
#define f8e5m2_narrow gyre_f32_to_f8e5m2
#endif

static __device__ __forceinline__ uint32_t multiprocessor()
{
    uint32_t number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}

#endif
