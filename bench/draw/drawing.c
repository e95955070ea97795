/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a drawing (bench/draw/drawing.h): checks the programs, lists their steps, walks them
 * (drawing_walk.c) and asks the verifier for its verdict.
 */
#include "bench/draw/drawing.h"

#include "bench/draw/drawing_walk.h"
#include "core/foundation/base/status.h"

#include <stdio.h>
#include <stdlib.h>

/* Check that the programs can be drawn, and count the chunks of a rank. */
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
        if (program->max_range > 1)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "steps of %s move ranges of chunks, which draw cannot show; schedule "
                             "--rounds prints them",
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

/* Verify the programs out of place, then in place. The drawing keeps the report of the first
 * refusal. */
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
