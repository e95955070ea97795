/* SPDX-License-Identifier: Apache-2.0
 *
 * Without barriers, waits and fences.
 */
#ifndef GYRE_TESTS_GPU_DECODE_H
#define GYRE_TESTS_GPU_DECODE_H

#include "kernels/cuda/host/program.h"

#include <cuda_runtime_api.h>

struct decode_times {
    double decode_ns;   /* of one warp: SIMPLE's waiter, any warp of the lines */
    double dispatch_ns; /* the resolved step moves nothing */
};

#ifdef __cplusplus
extern "C" {
#endif

/** One block on the current GPU. @args: of a launch without connections; the first worker's steps
 * are gone through. @stream: has earlier work with the same arguments. */
cudaError_t decode_measure(const struct gyre_cuda_args_one *args, enum gyre_proto proto,
                           uint32_t shared_bytes, cudaStream_t stream,
                           struct decode_times *times_out);

#ifdef __cplusplus
}
#endif

#endif
