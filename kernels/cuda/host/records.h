/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes trace events from recorded rings, and compares the clocks.
 */
#ifndef GYRE_KERNELS_CUDA_HOST_RECORDS_H
#define GYRE_KERNELS_CUDA_HOST_RECORDS_H

#include "core/foundation/trace/trace.h"
#include "kernels/cuda/host/program.h"

/* The host asked the GPU for its time. */
struct gyre_cuda_clock_round {
    uint64_t asked_ns; /* clock of the host */
    uint64_t gpu_ns;
    uint64_t answered_ns; /* clock of the host */
};

/* Both clocks at one or two moments; they run evenly between. */
struct gyre_cuda_clock {
    uint64_t gpu_ns[2];
    uint64_t host_ns[2];
    uint64_t error_ns; /* of host_ns, at most */
    uint32_t n_points;
};

/** gyre_cuda_clock_add - add a moment; a third replaces the second. The GPU was asked after
 * asked_ns and before answered_ns, so each round bounds the difference. */
void gyre_cuda_clock_add(struct gyre_cuda_clock *clock, const struct gyre_cuda_clock_round *rounds,
                         uint32_t n_rounds);

uint64_t gyre_cuda_clock_to_host(const struct gyre_cuda_clock *clock, uint64_t gpu_ns);

/** gyre_cuda_span_read - from a launch's first begin to its last end.
 * @spans: [GYRE_CUDA_SPANS][n_blocks]. @work: its first work's number. Returns false if no block
 * has a span of it. */
bool gyre_cuda_span_read(const struct gyre_cuda_span *spans, uint32_t n_blocks, uint64_t work,
                         const struct gyre_cuda_clock *clock, uint64_t *begin_ns_out,
                         uint64_t *end_ns_out);

struct gyre_cuda_record_program {
    struct gyre_cuda_program *lowered; /* a copy, of all variants. NULL: copy engines run all */
    uint32_t variant;
    uint32_t first_step;     /* of the variant, among all variants' steps */
    uint32_t n_workers;      /* of each variant */
    uint32_t n_in_flight;    /* tiles, in the interpreter */
    uint32_t channel_stride; /* from a channel to the next */
    uint32_t n_kernel_steps; /* the first step of the copy tail; later ones are in no worker */
};

struct gyre_cuda_records {
    const struct gyre_cuda_recorder *recorder; /* a copy in host memory, with its entries */
    uint32_t n_blocks;                         /* rings; at most GYRE_CUDA_MAX_BLOCKS */
    uint32_t ends_per_rank;                    /* connectors of one peer */
    struct gyre_cuda_clock clock;
    const struct gyre_cuda_record_program *programs; /* by number in the trace */
    uint32_t n_programs;
};

/** gyre_cuda_records_read - all events of the rings, in the host's time, one launch from all its
 * blocks. A step begins after the one before it of its worker, even if its wait began earlier.
 * Phases and copies become events of their first step. Steps of a launch with overwritten entries
 * are left out.
 * @events_out: events are malloc'ed. Errors: OUT_OF_MEMORY. */
gyre_status gyre_cuda_records_read(const struct gyre_cuda_records *records,
                                   struct gyre_trace_events *events_out);

#endif
