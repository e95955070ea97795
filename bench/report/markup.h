/* SPDX-License-Identifier: Apache-2.0
 *
 * Text in pages and pictures.
 */
#ifndef GYRE_BENCH_MARKUP_H
#define GYRE_BENCH_MARKUP_H

#include <stdio.h>

/** bench_markup_escape - write text so that it can stand in HTML, in SVG and in a quoted attribute.
 */
void bench_markup_escape(const char *text, FILE *file);

#endif
