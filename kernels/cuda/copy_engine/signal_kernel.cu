/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of one-sided calls. All counters are in device memory, so captured calls replay
 * without the host.
 *
 * Why a signal comes behind the data of puts: earlier copies of the stream have arrived when this
 * kernel begins. fence.sc.sys and the store of `arrived` behind it are a release pattern at system
 * scope, which is cumulative over what was ordered before the fence. The waiting kernel reads
 * `arrived` with ld.acquire.sys, and what follows in its stream is ordered behind it.
 *
 * Why no signal is lost: several streams of a rank may send the same signal at once. PCIe has no
 * atomic additions in the peer's memory, so each kernel adds to `sent` on its own GPU and stores a
 * value that it reads there in `arrived`. Let T be the kernel whose store to `arrived` is the last
 * one in the word's order, let it store v, and let U be the kernel that made `sent` v + 1. U
 * executes a fence.sc between its addition and its last store to `arrived`; T executes one between
 * its store of v and its last load of `sent`. Of two such fences one precedes the other ("Fence-SC
 * order"). If T's is first, T's store precedes U's and is not the last one. If U's is first, T's
 * load sees U's addition, and T stores again. So v is the number of all signals sent. A kernel that
 * stores the count of another kernel's signal, too, has read it with ld.acquire behind that
 * kernel's fence, so the data of both have arrived.
 */
#include "kernels/cuda/device/sync.cuh"
#include "kernels/cuda/runtime/kernel_table.h"

static __global__ void __launch_bounds__(1)
    signal_kernel(const __grid_constant__ struct gyre_cuda_args_signal args)
{
    /* After an abort the data may not be right. */
    if (load_relaxed_sys(&args.control->is_aborted) != 0)
        return;
    fence_acq_rel_sys();
    atomicAdd((unsigned long long *)args.sent, 1ULL);
    uint64_t n_sent = load_acquire_sys(args.sent), n_told;
    do { /* another stream may send a signal meanwhile */
        n_told = n_sent;
        fence_sc_sys();
        store_relaxed_sys(args.arrived, n_told);
        fence_sc_sys();
        n_sent = load_acquire_sys(args.sent);
    } while (n_sent != n_told);
}

/* True once it has told of a wait that has lasted too long, or whose sending rank has left. The
 * host's abort then ends the wait. The host's word is read every 8 ms. */
static __device__ bool tell_host(const struct gyre_cuda_args_await &args,
                                 const struct gyre_cuda_await_entry &entry, uint64_t goal,
                                 uint64_t begin_ns, uint32_t n_polls)
{
    const uint64_t told = (uint64_t)entry.index + 1;
    if (args.timeout_ns != 0 && global_ns() - begin_ns > args.timeout_ns) {
        store_relaxed_sys(&args.common.mailbox->late_signal, told);
        return true;
    }
    /* The host learns that a rank has left after its signals have arrived, so the counter read
     * behind has_left has all of them. */
    if (n_polls % ABORT_HOST_POLLS != 0 ||
        load_acquire_sys(&args.has_left[entry.index / GYRE_N_SIGNALS]) == 0 ||
        load_acquire_sys(&args.arrived[entry.index]) >= goal)
        return false;
    store_relaxed_sys(&args.common.mailbox->lost_signal, told);
    return true;
}

static __device__ __forceinline__ void await_entry(const struct gyre_cuda_args_await &args,
                                                   const struct gyre_cuda_await_entry &entry)
{
    /* Waits on several streams may take the same signal at once. */
    const uint64_t goal = atomicAdd((unsigned long long *)&args.awaited[entry.index],
                                    (unsigned long long)entry.count) +
                          entry.count;
    const uint64_t begin_ns = global_ns();
    bool has_told = false;
    uint32_t n_polls = 0;
    while (load_acquire_sys(&args.arrived[entry.index]) < goal && !must_stop(args.common, n_polls))
        if (!has_told && n_polls % ABORT_POLLS == 0)
            has_told = tell_host(args, entry, goal, begin_ns, n_polls);
}

static __global__ void __launch_bounds__(GYRE_CUDA_AWAIT_THREADS)
    await_kernel(const __grid_constant__ struct gyre_cuda_args_await args)
{
    if (load_relaxed_sys(&args.common.control->is_aborted) != 0)
        return;
    for (uint32_t i = threadIdx.x; i < args.n_entries; i += blockDim.x)
        await_entry(args, args.entries[i]);
}

extern "C" const void *const gyre_cuda_kernel_signal = (const void *)&signal_kernel;
extern "C" const void *const gyre_cuda_kernel_await = (const void *)&await_kernel;
