/* SPDX-License-Identifier: Apache-2.0
 *
 * The places of the ranks in a picture: on a circle, or in one frame for each host.
 */
#ifndef GYRE_BENCH_DRAW_LAYOUT_H
#define GYRE_BENCH_DRAW_LAYOUT_H

#include "bench/draw/drawing.h"

struct bench_draw_box {
    double x, y, width, height;
};

struct bench_draw_layout {
    double width, height;
    struct bench_draw_box *ranks;
    struct bench_draw_box *hosts;
    uint32_t n_hosts; /* frames to draw; 0 = one host, without a frame */
};

/** bench_draw_layout_open - place all ranks in a picture whose size follows from their number.
 * @scale: 1 = as one of several rounds. Errors: OUT_OF_MEMORY. */
gyre_status bench_draw_layout_open(const struct bench_drawing *drawing, double scale,
                                   struct bench_draw_layout *layout_out);
void bench_draw_layout_close(struct bench_draw_layout *layout);

/** bench_draw_arrow - compute the curve of the arrow between two ranks. Arrows are bent to their
 * left, so that the arrows of the two directions lie beside each other.
 * @curve_out: start, control point and end of a quadratic curve, each x and y. */
void bench_draw_arrow(const struct bench_draw_layout *layout, uint32_t from, uint32_t to,
                      double curve_out[6]);

/** bench_draw_rank_colour - the colour of a rank's contributions, as in the page. @text_out:
 * "#rrggbb".
 */
void bench_draw_rank_colour(uint32_t rank, uint32_t n_ranks, char text_out[8]);

#endif
