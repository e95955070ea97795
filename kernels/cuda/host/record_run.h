/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_CUDA_RECORD_RUN_H
#define GYRE_KERNELS_CUDA_RECORD_RUN_H

#include "kernels/cuda/host/records.h"

struct gyre_cuda_reading {
    const struct gyre_cuda_records *records;
    struct gyre_trace_events steps;
    struct gyre_trace_events runs;
};

struct gyre_cuda_block_run {
    const struct gyre_cuda_record_program *program; /* of the block's variant, or NULL */
    const struct gyre_cuda_worker *worker;          /* likewise */
    uint64_t first;                                 /* of its first entry */
    uint64_t last;                                  /* in the run's first entry */
    uint32_t ring;
    uint32_t channel;
    uint32_t n_ends;
    uint32_t n_steps;
    uint32_t n_tiles;
    uint32_t kind;
    uint32_t slot_bytes;
    bool is_whole;               /* nothing was overwritten */
    struct gyre_trace_event run; /* in the host's time */
    uint64_t marks_ns[4];        /* likewise; 0 = not reached */
};

static inline const union gyre_cuda_record *
gyre_cuda_record_entry(const struct gyre_cuda_records *records, uint32_t ring, uint64_t number)
{
    const struct gyre_cuda_recorder *recorder = records->recorder;
    return recorder->entries + (size_t)ring * recorder->capacity +
           (number & (recorder->capacity - 1));
}

/** gyre_cuda_add_steps - each begins after the one before it. Has room for an event each. */
void gyre_cuda_add_steps(struct gyre_cuda_reading *reading, const struct gyre_cuda_block_run *run);

/** gyre_cuda_add_phases - at most 3 events. */
void gyre_cuda_add_phases(struct gyre_cuda_reading *reading, const struct gyre_cuda_block_run *run);

/** gyre_cuda_add_copies - 2 events. @before, @closes: the launches around the copies. */
void gyre_cuda_add_copies(struct gyre_cuda_reading *reading,
                          const struct gyre_cuda_block_run *before,
                          const struct gyre_cuda_block_run *closes);

#endif
