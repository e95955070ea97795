/* SPDX-License-Identifier: Apache-2.0
 *
 * The resident kernel of the NIC process: each block waits for copies in its mailbox, and makes
 * them (nic_copier_queue.h).
 *
 * Order. The NIC stores the words of a copy after its source is complete. A worker's fence after
 * the words, and the barrier after the fence, order the loads of all its threads after the words.
 * The barrier after the copy orders the stores of all threads before the first thread's fence,
 * which is cumulative at system scope, and n_done is stored after the fence: whoever has read
 * n_done, on the host or on any GPU, sees the bytes. The NIC posts the next request of a queue pair
 * after that, so a flag that it carries becomes visible after the data.
 */
#include "kernels/cuda/device/sync.cuh"
#include "tests/nic/verbs_wire/nic/nic_copier_queue.h"

#define IN_FLIGHT 8 /* loads of a thread before its first store: each takes a round trip */
#define ALL_LANES 0xffffffffU

struct job {
    unsigned char *to;
    const unsigned char *from;
    uint32_t n_bytes;
    bool is_end; /* of the kernel: there is no copy */
};

template <typename unit>
static __device__ void copy_units(unsigned char *to, const unsigned char *from, uint32_t n)
{
    unit values[IN_FLIGHT];
    for (uint32_t first = threadIdx.x; first < n; first += IN_FLIGHT * NIC_COPIER_THREADS) {
#pragma unroll
        for (uint32_t k = 0; k < IN_FLIGHT; k++)
            if (first + k * NIC_COPIER_THREADS < n)
                values[k] = __ldcv((const unit *)from + first + k * NIC_COPIER_THREADS);
#pragma unroll
        for (uint32_t k = 0; k < IN_FLIGHT; k++)
            if (first + k * NIC_COPIER_THREADS < n)
                ((unit *)to)[first + k * NIC_COPIER_THREADS] = values[k];
    }
}

/* In units of the largest size to which both addresses can be aligned, so that a word that has the
 * same alignment at both ends is stored whole. */
static __device__ void copy(const struct job *job)
{
    const uint32_t differ = (uint32_t)((uintptr_t)job->to ^ (uintptr_t)job->from) | 16;
    const uint32_t unit_bytes = differ & (0 - differ);
    const uint32_t before = (0 - (uint32_t)(uintptr_t)job->to) & (unit_bytes - 1);
    const uint32_t head = before < job->n_bytes ? before : job->n_bytes;
    const uint32_t n = (job->n_bytes - head) / unit_bytes;
    const uint32_t n_edge = job->n_bytes - n * unit_bytes; /* head, and what follows the units */
    if (threadIdx.x < n_edge) {
        const uint32_t at = threadIdx.x < head ? threadIdx.x : job->n_bytes - n_edge + threadIdx.x;
        job->to[at] = __ldcv(job->from + at);
    }
    switch (unit_bytes) {
    case 16:
        copy_units<uint4>(job->to + head, job->from + head, n);
        break;
    case 8:
        copy_units<unsigned long long>(job->to + head, job->from + head, n);
        break;
    case 4:
        copy_units<unsigned int>(job->to + head, job->from + head, n);
        break;
    case 2:
        copy_units<unsigned short>(job->to + head, job->from + head, n);
        break;
    default:
        copy_units<unsigned char>(job->to + head, job->from + head, n);
        break;
    }
}

/* Puts the halves of a copy together, which the lanes of the first warp hold. */
static __device__ void assemble(uint32_t half, struct job *job)
{
    const uint64_t to_low = __shfl_sync(ALL_LANES, half, NIC_COPIER_TO_LOW);
    const uint64_t to_high = __shfl_sync(ALL_LANES, half, NIC_COPIER_TO_HIGH);
    const uint64_t from_low = __shfl_sync(ALL_LANES, half, NIC_COPIER_FROM_LOW);
    const uint64_t from_high = __shfl_sync(ALL_LANES, half, NIC_COPIER_FROM_HIGH);
    const uint32_t n_bytes = __shfl_sync(ALL_LANES, half, NIC_COPIER_BYTES);
    if (threadIdx.x == 0) {
        job->to = (unsigned char *)(to_high << 32 | to_low);
        job->from = (const unsigned char *)(from_high << 32 | from_low);
        job->n_bytes = n_bytes;
    }
}

/* The first warp waits for the copy with this number, or for the end. All lanes poll at once: the
 * words of the mailbox, and which launch shall end. Returns false for the end. */
static __device__ bool await_job(struct nic_copier_queue *queue, uint64_t number, uint64_t launch,
                                 uint64_t idle_ns, struct job *job)
{
    const bool has_word = threadIdx.x < NIC_COPIER_N_WORDS;
    const uint64_t *word =
        has_word ? &queue->mailboxes[blockIdx.x].words[threadIdx.x] : &queue->ended;
    const uint64_t since_ns = global_ns();
    for (;;) {
        const uint64_t value = load_relaxed_sys(word);
        const bool is_there = !has_word || value >> 32 == (number & 0xffffffffU);
        const bool is_ended = !has_word && value >= launch;
        if (__all_sync(ALL_LANES, is_there)) {
            fence_acq_rel_sys();
            assemble((uint32_t)value, job);
            return true;
        }
        if (__any_sync(ALL_LANES, is_ended))
            return false;
        if (blockIdx.x == 0 && global_ns() - since_ns > idle_ns)
            store_relaxed_sys(&queue->ended, launch);
    }
}

/* @launch: of this kernel; it ends when queue->ended has reached that number. @idle_ns: it ends
 * when nothing was posted for so long, also because its process was killed. */
extern "C" __global__ void __launch_bounds__(NIC_COPIER_THREADS)
    nic_copier_kernel(struct nic_copier_queue *queue, uint64_t launch, uint64_t idle_ns)
{
    __shared__ struct job job;
    uint64_t number = load_relaxed_sys(&queue->n_done[blockIdx.x]);
    for (;;) {
        number++;
        if (threadIdx.x < 32) {
            const bool is_end = !await_job(queue, number, launch, idle_ns, &job);
            if (threadIdx.x == 0)
                job.is_end = is_end;
        }
        __syncthreads();
        if (job.is_end)
            return;
        copy(&job);
        __syncthreads();
        if (threadIdx.x == 0) {
            fence_sc_sys();
            store_relaxed_sys(&queue->n_done[blockIdx.x], number);
        }
    }
}
