/* SPDX-License-Identifier: Apache-2.0
 *
 * A picture while it is drawn.
 */
#ifndef GYRE_BENCH_DRAW_SVG_H
#define GYRE_BENCH_DRAW_SVG_H

#include "bench/draw/drawing.h"

struct bench_draw_box {
    double x, y, width, height;
};

struct bench_draw_layout {
    double width, height;
    struct bench_draw_box *ranks;
    struct bench_draw_box *hosts;
    uint32_t n_hosts;      /* 0 = one, without a frame */
    double step_x, step_y; /* between neighbours; 0 = other layouts */
};

/** Places ranks as `places` says, on a circle without them, or in a frame for each host. @scale: 1
 * = as one of several rounds. Errors: OUT_OF_MEMORY. */
gyre_status bench_draw_layout_open(const struct bench_drawing *drawing, double scale,
                                   struct bench_draw_layout *layout_out);
void bench_draw_layout_close(struct bench_draw_layout *layout);

/** The colour is the page's. @text_out: "#rrggbb". */
void bench_draw_rank_colour(uint32_t rank, uint32_t n_ranks, char text_out[8]);

#define BENCH_SVG_MAX_PANELS   12
#define BENCH_SVG_CAPTION_ROOM 24

struct bench_svg {
    const struct bench_drawing *drawing;
    struct bench_draw_layout layout;
    struct bench_draw_state state;
    FILE *file;
    bool *has;
    uint32_t n_applied;                    /* rounds in `state` */
    uint32_t panels[BENCH_SVG_MAX_PANELS]; /* rounds before each */
    uint32_t n_panels;
    uint32_t n_left_out; /* rounds between the panel before and this one */
    uint32_t n_columns;
    double scale;
};

/** Defines two backgrounds: e0 for the chunks that a rank works on, e1 for its output. */
void bench_svg_define_columns(const struct bench_svg *picture);

/** Draws the present state and the slots of the round before. Bars use the symbols of values, v1,
 * v2 and so on. */
void bench_svg_draw_panel(const struct bench_svg *picture);

#endif
