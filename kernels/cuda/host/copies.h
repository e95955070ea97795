/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a program's copy tail (gyre_program_copy_tail) into copies and sync kernels, which publish
 * and await slots, for a sink.
 */
#ifndef GYRE_KERNELS_CUDA_COPIES_H
#define GYRE_KERNELS_CUDA_COPIES_H

#include "kernels/cuda/host/program.h"
#include "kernels/executor.h"

/* Of a chain, each with a stream, so that a sync kernel runs beside another's copy. */
#define GYRE_CUDA_COPY_CHANNELS 3

/* n_rows of row_bytes, pitch_bytes apart on both sides. */
struct gyre_cuda_copy {
    int32_t peer; /* whose OUT is written; -1 = this rank's */
    bool from_in; /* else from this rank's OUT */
    uint64_t from_offset;
    uint64_t to_offset;
    uint64_t row_bytes;
    uint64_t pitch_bytes;
    uint64_t n_rows;
};

/* Takes operations in the order of enqueuing. Each channel's run in order; copies within this
 * rank's memory must end before the last sync kernel only. */
struct gyre_cuda_copies_sink {
    void *context;
    gyre_status (*sync)(void *context, uint32_t channel, const struct gyre_cuda_sync_entry *entries,
                        uint32_t n_entries);
    gyre_status (*copy)(void *context, uint32_t channel, const struct gyre_cuda_copy *copy);
    /* Of all channels. */
    gyre_status (*ends)(void *context, bool is_last, const struct gyre_cuda_sync_entry *entries,
                        uint32_t n_entries);
};

struct gyre_cuda_copies;

/** Errors: UNSUPPORTED (no tail, missing connections or such as cannot
 * place, too many peers), OUT_OF_MEMORY. */
gyre_status gyre_cuda_copies_make(const struct gyre_fifo_spec *spec,
                                  const struct gyre_connector *connectors, int n_ranks,
                                  const struct gyre_load_config *config,
                                  struct gyre_cuda_copies **copies_out);

/** One call. One thread at a time. @split: n_channels as loaded. */
gyre_status gyre_cuda_copies_walk(struct gyre_cuda_copies *copies, const struct gyre_split *split,
                                  uint32_t elem_bytes, const struct gyre_cuda_copies_sink *sink);

#endif
