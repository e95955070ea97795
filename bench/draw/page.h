/* SPDX-License-Identifier: Apache-2.0
 *
 * The build embeds the page's files (cmake/embed.cmake).
 */
#ifndef GYRE_BENCH_DRAW_PAGE_H
#define GYRE_BENCH_DRAW_PAGE_H

#include "bench/draw/drawing.h"

#include <stddef.h>
#include <stdio.h>

/** Writes one self-contained file. A failed write stays in the file's error flag. Errors:
 * OUT_OF_MEMORY. */
gyre_status bench_draw_page(const struct bench_drawing *drawing, const char *title, FILE *file);

/** Writes the data that docs/draw.md describes. Errors: OUT_OF_MEMORY. */
gyre_status bench_draw_json(const struct bench_drawing *drawing, const char *title, FILE *file);

/** @round: the only one, or -1: the first, the last and others between. Errors: INVALID_ARGUMENT
 * (no such round), OUT_OF_MEMORY. */
gyre_status bench_draw_svg(const struct bench_drawing *drawing, const char *title, int round,
                           FILE *file);

/** Writes an SVG of hosts, switches and links. Errors: UNSUPPORTED (too large), OUT_OF_MEMORY. */
gyre_status bench_draw_fabric(const struct gyre_fabric *fabric, const char *title, FILE *file);

struct bench_draw_embedded {
    const unsigned char *bytes; /* a zero byte follows */
    size_t n_bytes;
};

extern const struct bench_draw_embedded bench_draw_page_html;
extern const struct bench_draw_embedded bench_draw_page_css;

extern const struct bench_draw_embedded *const bench_draw_scripts[];

#endif
