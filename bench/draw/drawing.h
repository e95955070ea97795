/* SPDX-License-Identifier: Apache-2.0
 *
 * A picture's contents: rounds of steps, contributions in their results, the verdict, and times.
 */
#ifndef GYRE_BENCH_DRAW_DRAWING_H
#define GYRE_BENCH_DRAW_DRAWING_H

#include "bench/tools/schedule_predict.h"

#include <stdio.h>

#define BENCH_DRAW_NEVER     UINT32_MAX /* for steps that cannot run */
#define BENCH_DRAW_NOTHING   0U         /* no value, or no meaning */
#define BENCH_DRAW_MAX_RANKS 1024U      /* more take long to prove */
#define BENCH_DRAW_MAX_STEPS 100000U    /* more are slow in browsers */

struct bench_draw_step {
    uint32_t round;
    uint32_t value;
};

/* Entry i is value i + 1. Inputs come first, then results. */
struct bench_draw_value {
    uint32_t rank;
    uint32_t chunk; /* of IN, in all contributions */
    uint32_t first_operand;
    uint32_t n_operands; /* 0 = an input */
    bool is_final;
};

/* After a round. */
struct bench_draw_state {
    uint32_t *now; /* [rank][n_parts]: last computed */
    uint32_t *out; /* [rank][n_parts] */
};

struct bench_draw_times {
    struct gyre_simulation simulation;
    struct gyre_prediction prediction;
    const char *cost;
    struct gyre_simulated_step *steps; /* of the drawn variant */
    uint32_t n_steps;
    uint32_t n_tiles;
    bool is_measured;    /* from a trace, and only sizes of `simulation` are set */
    const char *missing; /* NULL = there are times */
};

/* In units of a box and its gap: to the right, and down. */
struct bench_draw_place {
    double x, y;
};

struct bench_drawing {
    const struct gyre_program *const *programs;
    const struct gyre_grouping *grouping; /* NULL = one host */
    uint32_t n_ranks;
    uint32_t variant;
    uint32_t n_parts;
    uint32_t n_rounds;
    bool is_stuck;
    uint32_t *first_step; /* by rank, n_ranks + 1 */
    struct bench_draw_step *steps;
    struct bench_draw_value *values;
    uint32_t n_values, values_capacity;
    uint32_t *operands;
    uint32_t n_operands, operands_capacity;
    struct bench_draw_place *places; /* by rank; NULL = no line, tree or grid */
    double n_columns, n_rows;        /* of `places` */
    bool is_proved;
    bool is_wrong_in_place_only;
    struct gyre_verify_report report; /* out of place, or in place if only that fails */
    struct bench_draw_times times;
};

/** The programs may be wrong. They and @grouping outlive the drawing. Errors: INVALID_ARGUMENT (not
 * all ranks of a shape), UNSUPPORTED (too many steps), OUT_OF_MEMORY. */
gyre_status bench_drawing_open(const struct gyre_program *const *programs, int n_ranks,
                               const struct gyre_grouping *grouping,
                               struct bench_drawing *drawing_out);
void bench_drawing_close(struct bench_drawing *drawing);

/** Before the first round, with each rank's input. Errors: OUT_OF_MEMORY. */
gyre_status bench_draw_state_open(const struct bench_drawing *drawing,
                                  struct bench_draw_state *state_out);
void bench_draw_state_close(struct bench_draw_state *state);

void bench_draw_apply(const struct bench_drawing *drawing, uint32_t rank, uint32_t step,
                      struct bench_draw_state *state);

/** `has` is by rank and never cleared. A rank that contributes twice counts twice. */
uint32_t bench_draw_contributors(const struct bench_drawing *drawing, uint32_t value, bool *has);

/** Does the collective want the value in the rank's OUT(chunk)? False without such a buffer. */
bool bench_draw_is_done(const struct bench_drawing *drawing, uint32_t rank, uint32_t chunk,
                        uint32_t value);

/** "ring all_reduce, 8 ranks on 2 hosts, variant 1". @title_out: malloc'ed. */
gyre_status bench_draw_title(const struct bench_drawing *drawing, char **title_out);

/** Fills in `places`. Errors: OUT_OF_MEMORY. */
gyre_status bench_draw_find_places(struct bench_drawing *drawing);

/** Errors: as bench_schedule_simulate(). */
gyre_status bench_draw_find_times(struct bench_drawing *drawing,
                                  const struct bench_schedule_request *request, uint64_t n_bytes);

/** Of the first channel that runs the drawing's rail program. @call: number in the trace, -1 = the
 * last call that ran these programs on all ranks. Errors: as bench_trace_read(), INVALID_ARGUMENT
 * (no such call), OUT_OF_MEMORY. */
gyre_status bench_draw_measured_times(struct bench_drawing *drawing, const char *path, int call);

/** Writes one self-contained file. A failed write stays in the file's error flag. Errors:
 * OUT_OF_MEMORY. */
gyre_status bench_draw_page(const struct bench_drawing *drawing, const char *title, FILE *file);

/** Writes the data that docs/draw.md describes. Errors: OUT_OF_MEMORY. */
gyre_status bench_draw_json(const struct bench_drawing *drawing, const char *title, FILE *file);

/** @round: the only one, or -1: the first, the last and others between. Errors: INVALID_ARGUMENT
 * (no such round), OUT_OF_MEMORY. */
gyre_status bench_draw_svg(const struct bench_drawing *drawing, const char *title, int round,
                           FILE *file);

/** Errors: UNSUPPORTED (too large), OUT_OF_MEMORY. */
gyre_status bench_draw_fabric(const struct gyre_fabric *fabric, const char *title, FILE *file);

/* The build embeds the page's files (cmake/embed.cmake). */
struct bench_draw_embedded {
    const unsigned char *bytes; /* a zero byte follows */
    size_t n_bytes;
};

extern const struct bench_draw_embedded bench_draw_page_html;
extern const struct bench_draw_embedded bench_draw_page_css;

extern const struct bench_draw_embedded *const bench_draw_scripts[];

#endif
