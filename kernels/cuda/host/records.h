/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_CUDA_HOST_RECORDS_H
#define GYRE_KERNELS_CUDA_HOST_RECORDS_H

#include "core/foundation/trace/trace.h"
#include "kernels/cuda/host/program.h"

struct gyre_cuda_clock_round {
    uint64_t asked_ns; /* host's clock */
    uint64_t gpu_ns;
    uint64_t answered_ns; /* host's clock */
};

/* At one or two moments; the clocks run evenly between. */
struct gyre_cuda_clock {
    uint64_t gpu_ns[2];
    uint64_t host_ns[2];
    uint64_t error_ns; /* of host_ns, at most */
    uint32_t n_points;
};

/** A third moment replaces the second. */
void gyre_cuda_clock_add(struct gyre_cuda_clock *clock, const struct gyre_cuda_clock_round *rounds,
                         uint32_t n_rounds);

uint64_t gyre_cuda_clock_to_host(const struct gyre_cuda_clock *clock, uint64_t gpu_ns);

/** gyre_cuda_span_read - @spans: [GYRE_CUDA_SPANS][n_blocks]. @work: the launch's first. False: no
 * block has a span of it. */
bool gyre_cuda_span_read(const struct gyre_cuda_span *spans, uint32_t n_blocks, uint64_t work,
                         const struct gyre_cuda_clock *clock, uint64_t *begin_ns_out,
                         uint64_t *end_ns_out);

struct gyre_cuda_record_program {
    struct gyre_cuda_program *lowered; /* a copy. NULL: copy engines run all */
    uint32_t variant;
    uint32_t first_step; /* among all variants' steps */
    uint32_t n_workers;
    uint32_t n_in_flight;    /* tiles, in the interpreter */
    uint32_t channel_stride; /* to the next channel */
    uint32_t n_kernel_steps; /* before the copy tail, which is in no worker */
};

struct gyre_cuda_records {
    const struct gyre_cuda_recorder *recorder; /* a copy in host memory, with its entries */
    uint32_t n_blocks;                         /* at most GYRE_CUDA_MAX_BLOCKS */
    uint32_t ends_per_rank;
    struct gyre_cuda_clock clock;
    const struct gyre_cuda_record_program *programs; /* by number in the trace */
    uint32_t n_programs;
};

/** In the host's time, one launch from all its blocks. A worker's steps do
 * not overlap, even if waits do. Phases and copies become events of their first step. Steps of a
 * launch with overwritten entries are left out. @events_out: malloc'ed. Errors: OUT_OF_MEMORY. */
gyre_status gyre_cuda_records_read(const struct gyre_cuda_records *records,
                                   struct gyre_trace_events *events_out);

#endif
