/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/progress.h"

#include "core/foundation/base/sync.h"

struct gyre_progress gyre_cuda_mailbox_read(const struct gyre_cuda_mailbox *mailbox)
{
    const uint64_t begun = gyre_load_acquire_u64(&mailbox->begun);
    const uint32_t n_reports = (begun & 0xff) + 1;
    const uint64_t n_works = begun >> 8 & 0xff;
    const uint64_t n_before = begun >> 17;
    const uint64_t n_after = n_before + ((begun >> 16 & 1) != 0 ? n_works : 0);
    uint32_t n_ended = 0;
    while (n_ended < n_reports && gyre_load_acquire_u64(&mailbox->ended[n_ended]) >= n_after)
        n_ended++;
    return (struct gyre_progress){
        .completed = n_ended == n_reports ? n_after : n_before,
        .activity = n_before + n_works,
        .mismatch = gyre_load_acquire_u64(&mailbox->mismatch),
        .late_signal = gyre_load_acquire_u64(&mailbox->late_signal),
        .lost_signal = gyre_load_acquire_u64(&mailbox->lost_signal),
    };
}
