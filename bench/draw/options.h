/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of `draw`.
 */
#ifndef GYRE_BENCH_DRAW_OPTIONS_H
#define GYRE_BENCH_DRAW_OPTIONS_H

#include "bench/tools/schedule_predict.h"
#include "bench/tools/shape_options.h"

/* Texts are those of argv; NULL or 0 = the option was not given. */
struct bench_draw_options {
    struct bench_shape_options shape;
    struct bench_schedule_request request; /* cost, proto, channels, tile, depth of the times */
    const char *html;                      /* files to write; "-" = standard output */
    const char *svg;
    const char *json;
    const char *trace; /* its times are shown instead of predicted ones */
    int call;          /* of the trace; -1 = the last one that fits */
    uint64_t n_bytes;
    bool asks_for_times; /* some option is about them */
    int round;           /* the only one in the SVG; -1 = several */
    bool wants_help;
};

void bench_draw_print_usage(const char *program, FILE *out);

/** bench_draw_parse - read the command line and check that its options go together. Returns false
 * after it has printed what is wrong. */
bool bench_draw_parse(int argc, char **argv, struct bench_draw_options *options_out);

#endif
