/* SPDX-License-Identifier: Apache-2.0
 *
 * The values that the ranks of a drawing hold after a round, and the meaning of a value: the ranks
 * that contribute to it, and whether it is the result that the collective wants.
 */
#include "bench/draw/drawing.h"

#include "algorithms/verify/memory.h"
#include "core/foundation/base/status.h"

#include <stdlib.h>

/* A rank's place for its input: the chunk with this number, or, where OUT alone consists of blocks,
 * the block of this rank. */
static void place_inputs(const struct bench_drawing *drawing, uint32_t *now)
{
    for (uint32_t i = 0; i < drawing->n_values && drawing->values[i].n_operands == 0; i++) {
        const struct bench_draw_value *value = &drawing->values[i];
        const struct gyre_collective_traits *traits =
            &gyre_collectives[drawing->programs[value->rank]->coll];
        const uint32_t part = traits->out_blocks && !traits->in_blocks ? value->rank : value->chunk;
        now[(size_t)value->rank * drawing->n_parts + part] = i + 1;
    }
}

gyre_status bench_draw_state_open(const struct bench_drawing *drawing,
                                  struct bench_draw_state *state_out)
{
    const size_t n = (size_t)drawing->n_ranks * drawing->n_parts;
    state_out->now = calloc(n, sizeof(*state_out->now));
    state_out->out = calloc(n, sizeof(*state_out->out));
    if (state_out->now == NULL || state_out->out == NULL) {
        bench_draw_state_close(state_out);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a drawing of %zu chunks", n);
    }
    place_inputs(drawing, state_out->now);
    return GYRE_SUCCESS;
}

void bench_draw_state_close(struct bench_draw_state *state)
{
    free(state->now);
    free(state->out);
    state->now = state->out = NULL;
}

void bench_draw_apply(const struct bench_drawing *drawing, uint32_t rank, uint32_t step_number,
                      struct bench_draw_state *state)
{
    const struct gyre_program *program = drawing->programs[rank];
    const struct gyre_step *step = &program->steps[step_number];
    const uint32_t value = drawing->steps[drawing->first_step[rank] + step_number].value;
    state->now[(size_t)rank * drawing->n_parts + step->chunk] = value;
    for (uint32_t i = 0; i < step->n_outs; i++) {
        const struct gyre_operand operand = step->outs[i];
        if (operand.kind == GYRE_OPERAND_OUT)
            state->out[(size_t)rank * drawing->n_parts + operand.index] = value;
        else if (operand.is_placed != 0)
            state->out[(size_t)program->connections[operand.index].peer * drawing->n_parts +
                       step->chunk] = value;
    }
}

/* ---- the meaning of a value ---------------------------------------------------------------- */

uint32_t bench_draw_contributors(const struct bench_drawing *drawing, uint32_t value, bool *has)
{
    if (value == BENCH_DRAW_NOTHING)
        return 0;
    const struct bench_draw_value *known = &drawing->values[value - 1];
    uint32_t n = 0;
    if (known->n_operands == 0) {
        has[known->rank] = true;
        return 1;
    }
    for (uint32_t i = 0; i < known->n_operands; i++)
        n += bench_draw_contributors(drawing, drawing->operands[known->first_operand + i], has);
    return n;
}

bool bench_draw_is_done(const struct bench_drawing *drawing, uint32_t rank, uint32_t chunk,
                        uint32_t value)
{
    const struct gyre_program *program = drawing->programs[rank];
    const struct gyre_expectation expect = gyre_verify_expect(program, chunk);
    if (value == BENCH_DRAW_NOTHING || !expect.is_owned ||
        chunk >= gyre_program_n_parts(program, GYRE_OPERAND_OUT))
        return false;
    const struct bench_draw_value *known = &drawing->values[value - 1];
    if (known->chunk != expect.chunk)
        return false;
    if (!expect.from_all)
        return known->n_operands == 0 && known->rank == expect.source;
    bool *has = calloc(drawing->n_ranks, sizeof(*has));
    if (has == NULL)
        return false; /* only a mark in a picture is lost */
    const bool is_whole =
        known->is_final && bench_draw_contributors(drawing, value, has) == drawing->n_ranks;
    free(has);
    return is_whole;
}
