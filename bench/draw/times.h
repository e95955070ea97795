/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicted times for a drawing.
 */
#ifndef GYRE_BENCH_DRAW_TIMES_H
#define GYRE_BENCH_DRAW_TIMES_H

#include "bench/draw/drawing.h"
#include "bench/tools/schedule_predict.h"

/** bench_draw_find_times - simulate one call and keep when its steps ran.
 * @request: as for bench_schedule_simulate().
 * @n_bytes: of the whole vector or of all blocks.
 * Errors: as bench_schedule_simulate(). */
gyre_status bench_draw_find_times(struct bench_drawing *drawing,
                                  const struct bench_schedule_request *request, uint64_t n_bytes);

#endif
