/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured times for a drawing, from a trace (docs/trace.md).
 */
#ifndef GYRE_BENCH_DRAW_MEASURED_H
#define GYRE_BENCH_DRAW_MEASURED_H

#include "bench/draw/drawing.h"

/** bench_draw_measured_times - take the times of one call from a trace. One channel is taken, the
 * first one that runs the drawing's variant.
 * @call: number of the call in the trace; -1 = the last one that ran these programs on all ranks.
 * Errors: those of bench_trace_read(); INVALID_ARGUMENT (there is no such call); OUT_OF_MEMORY. */
gyre_status bench_draw_measured_times(struct bench_drawing *drawing, const char *path, int call);

#endif
