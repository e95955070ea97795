/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the round in which each step of a drawing runs, and the value that the step computes.
 */
#ifndef GYRE_BENCH_DRAW_DRAWING_WALK_H
#define GYRE_BENCH_DRAW_DRAWING_WALK_H

#include "bench/draw/drawing.h"

/** bench_drawing_walk - run the programs step by step, and fill in the rounds, values and operands
 * of the drawing. Its steps must be allocated, with the round BENCH_DRAW_NEVER; that round stays
 * where a step cannot run. Errors: OUT_OF_MEMORY. */
gyre_status bench_drawing_walk(struct bench_drawing *drawing);

#endif
