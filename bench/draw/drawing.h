/* SPDX-License-Identifier: Apache-2.0
 *
 * The contents of a picture of programs: the round in which each step runs, the contributions that
 * its result holds, the verifier's verdict, and the times of steps.
 */
#ifndef GYRE_BENCH_DRAW_DRAWING_H
#define GYRE_BENCH_DRAW_DRAWING_H

#include "algorithms/simulate/simulate.h"
#include "algorithms/verify/verify.h"
#include "bench/tools/schedule_predict.h"

#define BENCH_DRAW_NEVER     UINT32_MAX /* of a step that cannot run */
#define BENCH_DRAW_NOTHING   0U         /* of a chunk that was not written, or has no meaning */
#define BENCH_DRAW_MAX_RANKS 1024U      /* proofs of more ranks take long */
#define BENCH_DRAW_MAX_STEPS 100000U    /* browsers show a page with more steps slowly */

struct bench_draw_step {
    uint32_t round;
    uint32_t value;
};

/* Number i of the list is value i + 1. First there are all inputs, then all results. */
struct bench_draw_value {
    uint32_t rank;
    uint32_t chunk; /* of IN; of all contributions */
    uint32_t first_operand;
    uint32_t n_operands; /* 0 = an input */
    bool is_final;
};

/* After a round. */
struct bench_draw_state {
    uint32_t *now; /* [rank][n_parts]: last computed for this chunk */
    uint32_t *out; /* [rank][n_parts] */
};

struct bench_draw_times {
    struct gyre_simulation simulation;
    struct gyre_prediction prediction;
    const char *cost;
    struct gyre_simulated_step *steps; /* of the drawn variant */
    uint32_t n_steps;
    uint32_t n_tiles;
    bool is_measured;    /* from a trace; of `simulation` only sizes are set */
    const char *missing; /* NULL = there are times */
};

struct bench_drawing {
    const struct gyre_program *const *programs;
    const struct gyre_grouping *grouping; /* NULL = one host */
    uint32_t n_ranks;
    uint32_t variant;
    uint32_t n_parts;
    uint32_t n_rounds;
    bool is_stuck;
    uint32_t *first_step; /* by rank; n_ranks + 1 entries */
    struct bench_draw_step *steps;
    struct bench_draw_value *values;
    uint32_t n_values, values_capacity;
    uint32_t *operands;
    uint32_t n_operands, operands_capacity;
    bool is_proved;
    bool is_wrong_in_place_only;
    struct gyre_verify_report
        report; /* of the run out of place, unless only the run in place found an error */
    struct bench_draw_times times;
};

/** bench_drawing_open - the programs may be wrong, and must outlive the drawing, as @grouping.
 * Errors: INVALID_ARGUMENT (not the programs of all ranks of a shape), UNSUPPORTED (too many
 * steps), OUT_OF_MEMORY. */
gyre_status bench_drawing_open(const struct gyre_program *const *programs, int n_ranks,
                               const struct gyre_grouping *grouping,
                               struct bench_drawing *drawing_out);
void bench_drawing_close(struct bench_drawing *drawing);

/** bench_draw_state_open - before the first round: every rank has its own input. Errors:
 * OUT_OF_MEMORY. */
gyre_status bench_draw_state_open(const struct bench_drawing *drawing,
                                  struct bench_draw_state *state_out);
void bench_draw_state_close(struct bench_draw_state *state);

/** bench_draw_apply - @step: of the rank's program. */
void bench_draw_apply(const struct bench_drawing *drawing, uint32_t rank, uint32_t step,
                      struct bench_draw_state *state);

/** bench_draw_contributors - @has: by rank; set where a rank contributes, not cleared. A rank that
 * is counted twice counts twice. */
uint32_t bench_draw_contributors(const struct bench_drawing *drawing, uint32_t value, bool *has);

/** bench_draw_is_done - is the value what the collective wants in OUT(chunk) of the rank? False if
 * the rank has no such buffer. */
bool bench_draw_is_done(const struct bench_drawing *drawing, uint32_t rank, uint32_t chunk,
                        uint32_t value);

/** bench_draw_title - "ring all_reduce, 8 ranks on 2 hosts, variant 1". @title_out: malloc'ed. */
gyre_status bench_draw_title(const struct bench_drawing *drawing, char **title_out);

/** bench_drawing_walk - fill in the rounds, values and operands. The steps are allocated, with the
 * round BENCH_DRAW_NEVER. Errors: OUT_OF_MEMORY. */
gyre_status bench_drawing_walk(struct bench_drawing *drawing);

/** bench_draw_find_times - simulate one call. Errors: as bench_schedule_simulate(). */
gyre_status bench_draw_find_times(struct bench_drawing *drawing,
                                  const struct bench_schedule_request *request, uint64_t n_bytes);

/** bench_draw_measured_times - of one call of a trace, of the first channel that runs the drawing's
 * rail program. @call: number in the trace; -1 = the last one that ran these programs on all ranks.
 * Errors: those of bench_trace_read(); INVALID_ARGUMENT (there is no such call); OUT_OF_MEMORY. */
gyre_status bench_draw_measured_times(struct bench_drawing *drawing, const char *path, int call);

#endif
