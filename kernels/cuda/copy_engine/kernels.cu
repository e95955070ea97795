/* SPDX-License-Identifier: Apache-2.0
 *
 * Small kernels beside those of programs. The sync kernel, of one block, stands between copies of
 * copy engines: it tells the peers that this rank's copies are complete and waits for theirs.
 */
#include "kernels/cuda/device/fifo.cuh"
#include "kernels/cuda/device/move.cuh"
#include "kernels/cuda/device/sync.cuh"
#include "kernels/cuda/runtime/kernel_table.h"

struct sync_end {
    struct fifo fifo; /* fifo.number: that of the entry's slot */
    uint32_t depth;
};

static __device__ __forceinline__ struct sync_end open_end(const struct gyre_cuda_common &common,
                                                           const struct gyre_cuda_sync_entry &entry)
{
    const struct gyre_connector *end = &common.connectors[entry.index];
    return {{end->inbox, end->credit, common.counters[entry.index] + entry.slot, entry.index},
            end->depth};
}

/* Earlier copies of the stream have arrived, and the fence orders them before the tail. */
static __device__ __forceinline__ void post(const struct gyre_cuda_args_sync &args,
                                            const struct gyre_cuda_sync_entry &entry)
{
    const struct sync_end end = open_end(args.common, entry);
    if ((entry.acts & GYRE_CUDA_SYNC_OPEN) != 0)
        fifo_announce_entry(end.fifo);
    if ((entry.acts & GYRE_CUDA_SYNC_POST) == 0)
        return;
    fifo_describe(end.fifo, end.fifo.number % end.depth,
                  gyre_slot_info(entry.n_bytes, args.signature));
    fence_acq_rel_sys();
    fifo_publish(end.fifo, 1);
}

static __device__ __forceinline__ bool await_peer(const struct gyre_cuda_args_sync &args,
                                                  const struct gyre_cuda_sync_entry &entry)
{
    const struct gyre_cuda_common &common = args.common;
    const struct sync_end end = open_end(common, entry);
    if ((entry.acts & GYRE_CUDA_SYNC_ENTER) != 0 && !fifo_await_entry(common, end.fifo))
        return false;
    if ((entry.acts & GYRE_CUDA_SYNC_CREDIT) != 0 &&
        !fifo_await_room(common, end.fifo, 1, end.depth))
        return false;
    if ((entry.acts & GYRE_CUDA_SYNC_TAKE) == 0)
        return true;
    if (!fifo_await_slot(common, end.fifo, 0) ||
        !fifo_is_of_call(common, end.fifo, end.fifo.number % end.depth,
                         gyre_slot_info(entry.n_bytes, args.signature)))
        return false;
    /* No fence: only the slot's header was read, and the comparison has used it. */
    fifo_return(end.fifo, 1);
    return true;
}

static __global__ void __launch_bounds__(GYRE_CUDA_SYNC_THREADS)
    sync_kernel(const __grid_constant__ struct gyre_cuda_args_sync args)
{
    const struct gyre_cuda_common &common = args.common;
    const uint64_t sequence = begin_launch(common);
    announce_launch(common, sequence);
    bool goes_on = load_relaxed_sys(&common.control->is_aborted) == 0;
    for (uint32_t i = threadIdx.x; i < args.n_entries && goes_on; i += blockDim.x)
        post(args, args.entries[i]);
    for (uint32_t i = threadIdx.x; i < args.n_entries && goes_on; i += blockDim.x)
        goes_on = await_peer(args, args.entries[i]);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < args.n_entries; i += blockDim.x)
        if ((args.entries[i].acts & GYRE_CUDA_SYNC_COUNT) != 0)
            common.counters[args.entries[i].index] += args.entries[i].slot;
    end_launch(common, sequence, 0, {common.recording.program, 1, 0, 0});
}

/* Within this GPU's memory, because a copy engine would have less bandwidth left for peers. */
static __global__ void __launch_bounds__(GYRE_CUDA_COPY_THREADS)
    copy_within(const __grid_constant__ struct gyre_cuda_args_copy args)
{
    struct move move;
    struct move_head head = {.n_ins = 1, .n_outs = 1};
    head.misalignment = (uint8_t)(((uintptr_t)args.from | (uintptr_t)args.to) & 15U);
    for (uint64_t at = (uint64_t)blockIdx.x * GYRE_CUDA_COPY_PIECE; at < args.n_bytes;
         at += (uint64_t)gridDim.x * GYRE_CUDA_COPY_PIECE) {
        move.ins[0] = args.from + at;
        move.outs[0] = args.to + at;
        head.n_bytes = (uint32_t)gyre_cuda_min(args.n_bytes - at, GYRE_CUDA_COPY_PIECE);
        move_bytes<DTYPE_NONE, GYRE_SUM>(head, move, threadIdx.x, blockDim.x);
    }
}

extern "C" const void *const gyre_cuda_kernel_copy_within = (const void *)&copy_within;
extern "C" const void *const gyre_cuda_kernel_sync = (const void *)&sync_kernel;

/* One-sided calls. All counters are in device memory, so captured calls replay without the host.
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

/* The host gives up earlier. */
#define PATIENCE_NS 1000000000ULL

/* Answers the host's questions with the GPU's time, to compare the two clocks. */
static __global__ void answer_times(struct gyre_cuda_clock_words *words)
{
    const uint64_t begin_ns = global_ns();
    for (uint32_t i = 0; i < GYRE_CUDA_CLOCK_ROUNDS; i++) {
        while (load_relaxed_sys(&words->n_asked) <= i)
            if (global_ns() - begin_ns > PATIENCE_NS)
                return;
        store_relaxed_sys(&words->answers_ns[i], global_ns());
    }
}

extern "C" const void *const gyre_cuda_kernel_clock = (const void *)&answer_times;
