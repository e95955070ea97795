/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes events of a trace from the rings that recording kernels have written, and compares the
 * clocks of GPU and host. Pure: built and tested without nvcc.
 */
#ifndef GYRE_KERNELS_CUDA_HOST_RECORDS_H
#define GYRE_KERNELS_CUDA_HOST_RECORDS_H

#include "core/foundation/trace/trace.h"
#include "kernels/cuda/host/program.h"

/* The host asked the GPU for its time, and got the answer. */
struct gyre_cuda_clock_round {
    uint64_t asked_ns; /* clock of the host */
    uint64_t gpu_ns;
    uint64_t answered_ns; /* clock of the host */
};

/* Both clocks at one or two moments. Between two moments both run evenly. */
struct gyre_cuda_clock {
    uint64_t gpu_ns[2];
    uint64_t host_ns[2];
    uint64_t error_ns; /* of host_ns, at most */
    uint32_t n_points;
};

/** gyre_cuda_clock_add - add a moment. A third one replaces the second. The GPU was asked after
 * asked_ns and before answered_ns, so each round bounds the difference of the clocks. */
void gyre_cuda_clock_add(struct gyre_cuda_clock *clock, const struct gyre_cuda_clock_round *rounds,
                         uint32_t n_rounds);

/** gyre_cuda_clock_to_host - a time of the GPU as a time of the host. */
uint64_t gyre_cuda_clock_to_host(const struct gyre_cuda_clock *clock, uint64_t gpu_ns);

/** gyre_cuda_span_read - when the blocks of a launch ran: from the first begin to the last end.
 * @spans: [GYRE_CUDA_SPANS][n_blocks]. @work: the number of the launch's first work.
 * Returns false if no block has a span of that launch. */
bool gyre_cuda_span_read(const struct gyre_cuda_span *spans, uint32_t n_blocks, uint64_t work,
                         const struct gyre_cuda_clock *clock, uint64_t *begin_ns_out,
                         uint64_t *end_ns_out);

/* A program as the host needs it to make events of the entries. */
struct gyre_cuda_record_program {
    struct gyre_cuda_program *lowered; /* a copy, of all variants. NULL: copy engines run all */
    uint32_t variant;
    uint32_t first_step;     /* of the variant, among the steps of all variants */
    uint32_t n_workers;      /* of each variant */
    uint32_t n_in_flight;    /* tiles that the interpreter moves together */
    uint32_t channel_stride; /* connectors from a channel to the next */
    uint32_t n_kernel_steps; /* the first step of the tail of copies; they are in no worker */
};

/* The input of gyre_cuda_records_read(): the rings of a GPU, and what makes events of them. */
struct gyre_cuda_records {
    const struct gyre_cuda_recorder *recorder; /* a copy in host memory, with its entries */
    uint32_t n_blocks;                         /* rings; at most GYRE_CUDA_MAX_BLOCKS */
    uint32_t ends_per_rank;                    /* connectors of one peer */
    struct gyre_cuda_clock clock;
    const struct gyre_cuda_record_program *programs; /* by their number in the trace */
    uint32_t n_programs;
};

/** gyre_cuda_records_read - all events of the rings, with times of the host. What the blocks of a
 * launch recorded becomes one launch. A step begins when the step before it of the same worker has
 * ended, even if its wait began earlier. The phases of a fused program, and the copies of copy
 * engines, become events of their first step. Of a launch whose oldest entries were overwritten
 * the steps are left out.
 * @events_out: events are malloc'ed. Errors: OUT_OF_MEMORY. */
gyre_status gyre_cuda_records_read(const struct gyre_cuda_records *records,
                                   struct gyre_trace_events *events_out);

#endif
