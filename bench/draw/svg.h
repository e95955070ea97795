/* SPDX-License-Identifier: Apache-2.0
 *
 * A picture while it is drawn. svg_panel.c draws one panel.
 */
#ifndef GYRE_BENCH_DRAW_SVG_H
#define GYRE_BENCH_DRAW_SVG_H

#include "bench/draw/drawing.h"

#include <stdio.h>

struct bench_draw_box {
    double x, y, width, height;
};

struct bench_draw_layout {
    double width, height;
    struct bench_draw_box *ranks;
    struct bench_draw_box *hosts;
    uint32_t n_hosts; /* 0 = one host, without a frame */
};

/** bench_draw_layout_open - ranks on a circle, or in one frame for each host. @scale: 1 = as one of
 * several rounds. Errors: OUT_OF_MEMORY. */
gyre_status bench_draw_layout_open(const struct bench_drawing *drawing, double scale,
                                   struct bench_draw_layout *layout_out);
void bench_draw_layout_close(struct bench_draw_layout *layout);

/** bench_draw_arrow - bent to the left, so that the two directions lie beside each other.
 * @curve_out: start, control point and end of a quadratic curve, each x and y. */
void bench_draw_arrow(const struct bench_draw_layout *layout, uint32_t from, uint32_t to,
                      double curve_out[6]);

/** bench_draw_rank_colour - as in the page. @text_out: "#rrggbb". */
void bench_draw_rank_colour(uint32_t rank, uint32_t n_ranks, char text_out[8]);

#define BENCH_SVG_MAX_PANELS   12
#define BENCH_SVG_CAPTION_ROOM 24

struct bench_svg {
    const struct bench_drawing *drawing;
    struct bench_draw_layout layout;
    struct bench_draw_state state;
    FILE *file;
    bool *has;
    uint32_t n_applied;                    /* rounds of `state` */
    uint32_t panels[BENCH_SVG_MAX_PANELS]; /* rounds before each panel */
    uint32_t n_panels;
    uint32_t n_columns;
    double scale;
};

/** bench_svg_define_columns - the backgrounds of a rank's two columns: e0 (the chunks that the rank
 * works on) and e1 (its output). */
void bench_svg_define_columns(const struct bench_svg *picture);

/** bench_svg_draw_panel - the present state, and the slots that were sent in the round before. Bars
 * use the symbols of values, v1, v2 and so on. */
void bench_svg_draw_panel(const struct bench_svg *picture);

#endif
