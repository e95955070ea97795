/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of the page, which the build turns into arrays (cmake/embed.cmake).
 */
#ifndef GYRE_BENCH_DRAW_EMBEDDED_H
#define GYRE_BENCH_DRAW_EMBEDDED_H

#include <stddef.h>

struct bench_draw_embedded {
    const unsigned char *bytes; /* a zero byte follows the last one */
    size_t n_bytes;
};

extern const struct bench_draw_embedded bench_draw_page_html;
extern const struct bench_draw_embedded bench_draw_page_css;

/** The scripts in the order in which they run, ended by NULL. */
extern const struct bench_draw_embedded *const bench_draw_scripts[];

#endif
