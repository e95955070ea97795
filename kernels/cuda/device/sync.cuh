/* SPDX-License-Identifier: Apache-2.0
 *
 * Every access to a word that another GPU, the host or another block writes or reads. Each function
 * has the memory ordering that its name says. The paragraphs below prove that the orderings are
 * enough; names in quotation marks are sections of PTX ISA, "Memory Consistency Model".
 *
 * SIMPLE, data to the peer. All worker threads store the slot with weak stores. `bar.sync` makes
 * those stores precede, in causality order, what the posting thread does next ("Causality order":
 * base causality order through synchronising barriers). That thread stores slot_info, executes
 * fence.acq_rel.sys and stores tail with st.relaxed.sys: a release pattern on tail at system scope
 * ("Release and acquire patterns"), cumulative over what was ordered before the fence, so it covers
 * the other threads' stores as well. The receiver's waiting thread reads tail with ld.acquire.sys:
 * if it sees the value, the two patterns synchronise ("Synchronizes-with"), and after its own
 * barrier all worker threads may read the slot with weak loads. st.release.sys would do the
 * same; the fence is a separate instruction because one fence serves up to nine connections.
 *
 * SIMPLE, the slot back to the sender. Workers' loads of the slot precede the barrier; the posting
 * thread's fence and st.relaxed.sys of head are a release pattern again; the sender's waiting
 * thread reads head with ld.acquire.sys before its workers overwrite the slot. Without the release
 * a load might observe the overwriting store.
 *
 * LL. Each half of a line is one 64-bit element {data, flag} of a vector store
 * st.relaxed.sys.v2.b64 and is read by ld.relaxed.sys.v2.b64. A vector access is a set of scalar
 * accesses in no order
 * ("Vector data types"), each of them single-copy atomic: the data of a half have arrived when its
 * flag has arrived. Nothing else is communicated, so no fence is needed. Credit: values of a slot's
 * lines are used (compared, reduced) before the barrier, then one thread stores head with
 * st.relaxed.sys. The model does not order earlier relaxed loads before a later relaxed store by
 * dependency alone; a load whose value was used has been performed on every GPU, and the sender's
 * store to that line happens only after a round trip. A fence here would cost up to a microsecond,
 * because it also waits for the lines that the block has under way to other peers.
 *
 * LL128. The flag is the last word of a 128-byte line which eight lanes store in one instruction.
 * PTX does not promise that such a store becomes visible as a whole. NVLink and the memory system
 * behind it have this property. A transport that cannot promise it gives connections no LL128
 * slots, and loading a program then fails. The receiver loads the line again after it saw the flag,
 * so the proof does not depend on how the receiver's own load was split.
 *
 * LAMPORT. A half of a line is one 64-bit element of a vector store, and it is 0 until it is
 * stored. As in LL, the element itself tells that it has arrived. The receiver stores 0 there
 * again, and the sender must not store the next line before those zeros have been performed. The
 * stores of a launch have been performed when the next launch begins, and the next launch gives the
 * credit (lines.cuh). Within a launch, a barrier and fence.acq_rel.sys come before st.relaxed.sys
 * of head. The sender reads head relaxed: its stores to the line depend on the value that it read,
 * and arrive over a link after the zeros were performed. LL128 uses the same slots, so its
 * receivers clear them too.
 *
 * Zeros that are stored in bulk (bulk.cuh) come from one thread of the warp and go through the
 * asynchronous proxy. The thread issues them after a vote that depends on the values that all lanes
 * of the warp received, so those lines are in this GPU's memory by then. The zeros have been
 * performed, for this launch and the next one, when cp.async.bulk.wait_group returns.
 *
 * Signals of one-sided calls. copy_engine/kernels.cu argues why a signal comes behind the data of
 * puts, and why none is lost where several streams send at the same time.
 *
 * Counters of FIFOs and the launch sequence (launch_sequence.cuh) are ordered between kernels
 * by stream order. A launch can begin while the launch before it ends (programmatic dependent
 * launch). Before griddepcontrol.wait it reads only tables that no launch writes (addresses of
 * slots and windows), and it writes shared memory alone. griddepcontrol.wait returns when the
 * launch before has completed and its stores are visible.
 */
#ifndef GYRE_KERNELS_CUDA_SYNC_CUH
#define GYRE_KERNELS_CUDA_SYNC_CUH

#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/host/program.h"

/* The host gives its size with the launch. */
extern __shared__ uint4 shared_words[];

/* Functions that wait return false when aborted, where their comments say nothing else. */
static __device__ __forceinline__ bool must_stop(const struct gyre_cuda_common &common,
                                                 uint32_t &n_polls)
{
    n_polls++;
    if (n_polls % ABORT_POLLS != 0)
        return false;
    if (load_relaxed_sys(&common.control->is_aborted) != 0)
        return true;
    if (n_polls % ABORT_HOST_POLLS != 0 || load_relaxed_sys(&common.mailbox->abort) == 0)
        return false;
    store_relaxed_sys(&common.control->is_aborted, 1U);
    return true;
}

/* Also tells the host every 8 ms which word the caller polls, to explain a call that stands still.
 * Waits for lines have no registers left for it. */
static __device__ __forceinline__ bool must_stop_at(const struct gyre_cuda_common &common,
                                                    uint32_t &n_polls, const uint64_t *word,
                                                    uint64_t value)
{
    const bool stops = must_stop(common, n_polls);
    if (n_polls % ABORT_HOST_POLLS == 0)
        store_line(&common.mailbox->awaited[blockIdx.x], (uint64_t)word, value);
    return stops;
}

#endif
