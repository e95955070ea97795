/* SPDX-License-Identifier: Apache-2.0
 *
 * What it costs the host to launch a kernel, whatever is in it: the floor of a call on a GPU.
 */
#ifndef GYRE_BENCH_LAUNCHES_H
#define GYRE_BENCH_LAUNCHES_H

#include "core/gyre.h"

#define BENCH_PARAMETER_BYTES 712 /* about as many as gyre's kernels for short calls have */

#ifdef __cplusplus
extern "C" {
#endif

/** bench_enqueue_nothing - a kernel of one warp with BENCH_PARAMETER_BYTES that does nothing.
 * Errors: DEVICE. */
gyre_status bench_enqueue_nothing(gyre_stream stream);

/** bench_load_nothing - load it on the current GPU now (bench_kernels_load() says why). */
gyre_status bench_load_nothing(void);

#ifdef __cplusplus
}
#endif

#endif
