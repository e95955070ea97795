/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways in which a drawing is written: a page, a picture, the data of the page.
 */
#ifndef GYRE_BENCH_DRAW_PAGE_H
#define GYRE_BENCH_DRAW_PAGE_H

#include "bench/draw/drawing.h"

#include <stdio.h>

/** bench_draw_page - write one self-contained HTML file, which shows the drawing step by step. A
 * failed write stays in the file's error flag. Errors: OUT_OF_MEMORY. */
gyre_status bench_draw_page(const struct bench_drawing *drawing, const char *title, FILE *file);

/** bench_draw_json - write the data that the page's scripts read (docs/draw.md). Errors:
 * OUT_OF_MEMORY. */
gyre_status bench_draw_json(const struct bench_drawing *drawing, const char *title, FILE *file);

/** bench_draw_svg - write a picture for papers: rounds side by side.
 * @round: the only round that is shown, or -1: the first and the last one and, evenly spread, as
 * many others as there is room for. Errors: INVALID_ARGUMENT (no such round), OUT_OF_MEMORY. */
gyre_status bench_draw_svg(const struct bench_drawing *drawing, const char *title, int round,
                           FILE *file);

#endif
