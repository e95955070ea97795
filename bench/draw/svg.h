/* SPDX-License-Identifier: Apache-2.0
 *
 * A picture for papers and slides while it is drawn. svg.c draws the picture from panels, and
 * svg_panel.c draws one panel.
 */
#ifndef GYRE_BENCH_DRAW_SVG_H
#define GYRE_BENCH_DRAW_SVG_H

#include "bench/draw/layout.h"

#include <stdio.h>

#define BENCH_SVG_MAX_PANELS   12
#define BENCH_SVG_CAPTION_ROOM 24

struct bench_svg {
    const struct bench_drawing *drawing;
    struct bench_draw_layout layout;
    struct bench_draw_state state;
    FILE *file;
    bool *has;                             /* by rank: scratch for contributors */
    uint32_t n_applied;                    /* rounds that `state` has gone through */
    uint32_t panels[BENCH_SVG_MAX_PANELS]; /* how many rounds each panel is after */
    uint32_t n_panels;
    uint32_t n_columns;
    double scale;
};

/** bench_svg_define_columns - define the background of the two columns of a rank, as symbols e0
 * (the chunks that the rank works on) and e1 (its output). Panels use them. */
void bench_svg_define_columns(const struct bench_svg *picture);

/** bench_svg_draw_panel - draw the panel of the present state, with its caption: the chunks of
 * every rank, and the slots that were sent in the round before. Bars use the
 * symbols of values, v1, v2 and so on. */
void bench_svg_draw_panel(const struct bench_svg *picture);

#endif
