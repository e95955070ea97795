/* SPDX-License-Identifier: Apache-2.0
 *
 * What it costs the host to launch a kernel, whatever is in it: the floor of a call on a GPU.
 */
#ifndef GYRE_BENCH_EMPTY_LAUNCH_H
#define GYRE_BENCH_EMPTY_LAUNCH_H

#include "core/gyre.h"

#define BENCH_PARAMETER_BYTES 712 /* as many as gyre's kernels for short calls have */

#ifdef __cplusplus
extern "C" {
#endif

/** bench_launch_empty - a kernel of one warp with BENCH_PARAMETER_BYTES that does nothing, on a
 * stream of the current GPU; loads it on first use. Errors: DEVICE. */
gyre_status bench_launch_empty(gyre_stream stream);

/** bench_time_launches - the time of so many launches of it one after the other, per launch; they
 * are over when this returns. @stream: of GPU `ordinal`. Errors: DEVICE. */
gyre_status bench_time_launches(int ordinal, gyre_stream stream, int n_launches, double *us_out);

#ifdef __cplusplus
}
#endif

#endif
