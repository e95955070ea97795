/* SPDX-License-Identifier: Apache-2.0
 *
 * The build turns the files of the page into arrays (cmake/embed.cmake).
 */
#ifndef GYRE_BENCH_DRAW_PAGE_H
#define GYRE_BENCH_DRAW_PAGE_H

#include "bench/draw/drawing.h"

#include <stddef.h>
#include <stdio.h>

/** bench_draw_page - one self-contained file. A failed write stays in the file's error flag.
 * Errors: OUT_OF_MEMORY. */
gyre_status bench_draw_page(const struct bench_drawing *drawing, const char *title, FILE *file);

/** bench_draw_json - docs/draw.md. Errors: OUT_OF_MEMORY. */
gyre_status bench_draw_json(const struct bench_drawing *drawing, const char *title, FILE *file);

/** bench_draw_svg - @round: the only one, or -1: the first, the last and, evenly spread, as many as
 * there is room for. Errors: INVALID_ARGUMENT (no such round), OUT_OF_MEMORY. */
gyre_status bench_draw_svg(const struct bench_drawing *drawing, const char *title, int round,
                           FILE *file);

struct bench_draw_embedded {
    const unsigned char *bytes; /* a zero byte follows the last one */
    size_t n_bytes;
};

extern const struct bench_draw_embedded bench_draw_page_html;
extern const struct bench_draw_embedded bench_draw_page_css;

extern const struct bench_draw_embedded *const bench_draw_scripts[];

#endif
