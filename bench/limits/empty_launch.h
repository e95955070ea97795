/* SPDX-License-Identifier: Apache-2.0
 *
 * The least time of any call on a GPU.
 */
#ifndef GYRE_BENCH_EMPTY_LAUNCH_H
#define GYRE_BENCH_EMPTY_LAUNCH_H

#include "core/gyre.h"

#define BENCH_PARAMETER_BYTES 712 /* as gyre's kernels for short calls */

#ifdef __cplusplus
extern "C" {
#endif

struct bench_empty_args {
    char bytes[BENCH_PARAMETER_BYTES];
};

extern const void *const bench_empty_kernel;

/** One kernel of one warp after the other. @stream: of GPU `ordinal`. @us_out: of one launch.
 * Errors: DEVICE. */
gyre_status bench_time_launches(int ordinal, gyre_stream stream, int n_launches, double *us_out);

#ifdef __cplusplus
}
#endif

#endif
