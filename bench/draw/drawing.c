/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/draw/drawing.h"

#include "core/foundation/base/status.h"

#include <stdio.h>
#include <stdlib.h>

static gyre_status check(struct bench_drawing *drawing)
{
    uint64_t n_steps = 0;
    drawing->n_parts = 1;
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        const struct gyre_program *program = drawing->programs[rank];
        const uint32_t n_in = gyre_program_n_parts(program, GYRE_OPERAND_IN);
        const uint32_t n_out = gyre_program_n_parts(program, GYRE_OPERAND_OUT);
        if (program->rank != rank || program->n_ranks != drawing->n_ranks)
            return gyre_fail(
                GYRE_ERROR_INVALID_ARGUMENT,
                "program %u of %u is of rank %u of %u ranks: each rank has one program, in "
                "the order of the ranks",
                rank, drawing->n_ranks, program->rank, program->n_ranks);
        if (program->coll != drawing->programs[0]->coll)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "rank %u runs %s, rank 0 runs %s", rank,
                             gyre_collectives[program->coll].name,
                             gyre_collectives[drawing->programs[0]->coll].name);
        if (program->names != NULL)
            return gyre_fail(
                GYRE_ERROR_UNSUPPORTED,
                "%s names its blocks, which draw cannot show; schedule --rounds prints them",
                program->algorithm);
        n_steps += program->n_steps;
        drawing->n_parts = n_in > drawing->n_parts ? n_in : drawing->n_parts;
        drawing->n_parts = n_out > drawing->n_parts ? n_out : drawing->n_parts;
    }
    if (n_steps > BENCH_DRAW_MAX_STEPS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%llu steps of %u ranks are too many to draw (at most %u): give fewer "
                         "ranks",
                         (unsigned long long)n_steps, drawing->n_ranks, BENCH_DRAW_MAX_STEPS);
    return GYRE_SUCCESS;
}

static gyre_status open_steps(struct bench_drawing *drawing)
{
    drawing->first_step = calloc(drawing->n_ranks + 1, sizeof(*drawing->first_step));
    if (drawing->first_step != NULL) {
        for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
            drawing->first_step[rank + 1] =
                drawing->first_step[rank] + drawing->programs[rank]->n_steps;
        drawing->steps = calloc(drawing->first_step[drawing->n_ranks] + 1, sizeof(*drawing->steps));
    }
    if (drawing->first_step == NULL || drawing->steps == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a drawing");
    for (uint32_t i = 0; i < drawing->first_step[drawing->n_ranks]; i++)
        drawing->steps[i].round = BENCH_DRAW_NEVER;
    return GYRE_SUCCESS;
}

/* Out of place, then in place; keeps the first refusal. */
static gyre_status verify(struct bench_drawing *drawing)
{
    for (int i = 0; i < 2; i++) {
        const struct gyre_verify_options options = {.in_place = i == 1};
        struct gyre_verify_report report;
        const gyre_status status =
            gyre_verify(drawing->programs, (int)drawing->n_ranks, &options, &report);
        if (status == GYRE_ERROR_OUT_OF_MEMORY)
            return status;
        drawing->is_proved = status == GYRE_SUCCESS;
        drawing->is_wrong_in_place_only = !drawing->is_proved && i == 1;
        if (i == 0 || !drawing->is_proved)
            drawing->report = report;
        if (!drawing->is_proved)
            break;
    }
    return GYRE_SUCCESS;
}

gyre_status bench_drawing_open(const struct gyre_program *const *programs, int n_ranks,
                               const struct gyre_grouping *grouping,
                               struct bench_drawing *drawing_out)
{
    struct bench_drawing drawing = {
        .programs = programs, .grouping = grouping, .n_ranks = (uint32_t)n_ranks};
    gyre_status status = check(&drawing);
    if (status == GYRE_SUCCESS)
        status = open_steps(&drawing);
    if (status == GYRE_SUCCESS)
        status = bench_drawing_walk(&drawing);
    if (status == GYRE_SUCCESS)
        status = verify(&drawing);
    if (status == GYRE_SUCCESS)
        status = bench_draw_find_places(&drawing);
    if (status == GYRE_SUCCESS)
        *drawing_out = drawing;
    else
        bench_drawing_close(&drawing);
    return status;
}

void bench_drawing_close(struct bench_drawing *drawing)
{
    free(drawing->first_step);
    free(drawing->steps);
    free(drawing->values);
    free(drawing->operands);
    free(drawing->places);
    free(drawing->times.steps);
}

gyre_status bench_draw_title(const struct bench_drawing *drawing, char **title_out)
{
    const struct gyre_program *program = drawing->programs[0];
    size_t n_bytes = 0;
    char *title = NULL;
    FILE *file = open_memstream(&title, &n_bytes);
    if (file == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a title");
    fprintf(file, "%s %s, %u rank%s", program->algorithm, gyre_collectives[program->coll].name,
            drawing->n_ranks, drawing->n_ranks == 1 ? "" : "s");
    if (drawing->grouping != NULL && drawing->grouping->n_hosts > 1)
        fprintf(file, " on %u hosts", drawing->grouping->n_hosts);
    if (gyre_collectives[program->coll].has_root)
        fprintf(file, ", root %u", program->root);
    if (drawing->variant > 0)
        fprintf(file, ", variant %u", drawing->variant);
    if (fclose(file) != 0) {
        free(title);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a title");
    }
    *title_out = title;
    return GYRE_SUCCESS;
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
    for (uint32_t i = 0; i < drawing->n_values && drawing->values[i].n_operands == 0; i++) {
        const struct bench_draw_value *value = &drawing->values[i];
        const struct gyre_collective_traits *traits =
            &gyre_collectives[drawing->programs[value->rank]->coll];
        const uint32_t part = traits->out_blocks && !traits->in_blocks ? value->rank : value->chunk;
        state_out->now[(size_t)value->rank * drawing->n_parts + part] = i + 1;
    }
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
        return false; /* a picture only loses a mark */
    const bool is_whole =
        known->is_final && bench_draw_contributors(drawing, value, has) == drawing->n_ranks;
    free(has);
    return is_whole;
}

/* Of all rail programs, though one is drawn. They take about a second. */
#define MAX_SIMULATED_STEPS 1000000

struct recorder {
    struct bench_draw_times *times;
    uint32_t variant;
    uint32_t capacity;
    gyre_status status;
};

static gyre_status grow(struct recorder *recorder)
{
    const uint32_t capacity = recorder->capacity == 0 ? 1024 : 2 * recorder->capacity;
    if (recorder->times->n_steps >= BENCH_DRAW_MAX_STEPS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "the call has more than %u steps: give fewer --bytes or a larger --tile",
                         BENCH_DRAW_MAX_STEPS);
    struct gyre_simulated_step *steps = realloc(recorder->times->steps, capacity * sizeof(*steps));
    if (steps == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the times of %u steps", capacity);
    recorder->times->steps = steps;
    recorder->capacity = capacity;
    return GYRE_SUCCESS;
}

static void record(void *observer, const struct gyre_simulated_step *step)
{
    struct recorder *recorder = observer;
    struct bench_draw_times *times = recorder->times;
    if (step->variant != recorder->variant || recorder->status != GYRE_SUCCESS)
        return;
    if (times->n_steps == recorder->capacity)
        recorder->status = grow(recorder);
    if (recorder->status != GYRE_SUCCESS)
        return;
    times->steps[times->n_steps++] = *step;
    if (step->tile >= times->n_tiles)
        times->n_tiles = (uint32_t)step->tile + 1;
}

gyre_status bench_draw_find_times(struct bench_drawing *drawing,
                                  const struct bench_schedule_request *request, uint64_t n_bytes)
{
    struct bench_draw_times *times = &drawing->times;
    struct recorder recorder = {.times = times, .variant = drawing->variant};
    times->simulation.observe = record;
    times->simulation.observer = &recorder;
    times->cost = request->cost == NULL ? "h200" : request->cost;
    const gyre_status status = bench_schedule_simulate(request, n_bytes, MAX_SIMULATED_STEPS,
                                                       &times->simulation, &times->prediction);
    times->simulation.observe = NULL;
    times->simulation.observer = NULL;
    return status == GYRE_SUCCESS ? recorder.status : status;
}
