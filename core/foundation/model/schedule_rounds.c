/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the programs of all ranks side by side, for people: a line for each round of
 * core/foundation/model/rounds.h, a column for each rank.
 */
#include "core/foundation/base/status.h"
#include "core/foundation/model/rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rounds {
    const struct gyre_program *const *programs;
    unsigned n_ranks;
    char **cells; /* of the rounds so far, n_ranks for each; NULL = empty */
    size_t n_rounds;
    size_t *widths; /* by rank */
    bool is_stuck;
};

/* "in", "out" without the number when it is the step's chunk; a peer is only its number. */
static void print_operand(FILE *file, const struct gyre_program *program,
                          const struct gyre_step *step, struct gyre_operand operand)
{
    static const char *const words[] = {"in", "out", "scratch"};
    if (operand.kind == GYRE_OPERAND_CONNECTION)
        fprintf(file, "%u%s", program->connections[operand.index].peer,
                operand.is_placed != 0 ? "*" : "");
    else if (operand.kind != GYRE_OPERAND_SCRATCH && operand.index == step->chunk)
        fputs(words[operand.kind], file);
    else
        fprintf(file, "%s%u", words[operand.kind], operand.index);
}

static void print_step(FILE *file, const struct gyre_program *program, const struct gyre_step *step)
{
    const uint32_t n_parts = gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH);
    fprintf(file, "c%u", step->chunk);
    if (step->n_chunks > 1)
        fprintf(file, "-%u", gyre_step_part(step, step->chunk, step->n_chunks - 1U, n_parts));
    if (step->spacing != 0)
        fprintf(file, "/%u", 1U << (step->spacing & 15));
    fputc(':', file);
    for (unsigned i = 0; i < step->n_ins; i++) {
        fputs(i == 0 ? "" : "+", file);
        print_operand(file, program, step, step->ins[i]);
    }
    for (unsigned i = 0; i < step->n_outs; i++) {
        fputs(i == 0 ? ">" : ",", file);
        print_operand(file, program, step, step->outs[i]);
    }
    fputs((step->flags & GYRE_STEP_FINAL) != 0 ? "!" : "", file);
}

static gyre_status add_round(struct rounds *rounds)
{
    char **cells =
        realloc(rounds->cells, (rounds->n_rounds + 1) * rounds->n_ranks * sizeof(*cells));
    if (cells == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
    rounds->cells = cells;
    memset(&cells[rounds->n_rounds * rounds->n_ranks], 0, rounds->n_ranks * sizeof(*cells));
    rounds->n_rounds++;
    return GYRE_SUCCESS;
}

/* Append what one worker does to the cell of its rank. */
static gyre_status print_steps(void *context, const struct gyre_round_steps *steps)
{
    struct rounds *rounds = context;
    const struct gyre_program *program = rounds->programs[steps->rank];
    while (rounds->n_rounds <= steps->round)
        GYRE_TRY(add_round(rounds));
    char **cell = &rounds->cells[steps->round * (size_t)rounds->n_ranks + steps->rank];
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
    fputs(*cell == NULL ? "" : *cell, file);
    for (uint32_t i = 0; i < steps->n_steps; i++) {
        fputs(*cell != NULL || i > 0 ? " " : "", file);
        print_step(file, program, &program->steps[steps->first_step + i]);
    }
    const bool is_whole = ferror(file) == 0;
    if (fclose(file) != 0 || !is_whole) {
        free(text);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
    }
    free(*cell);
    *cell = text;
    if (n_bytes > rounds->widths[steps->rank])
        rounds->widths[steps->rank] = n_bytes;
    return GYRE_SUCCESS;
}

static void print_rounds(const struct rounds *rounds, FILE *file)
{
    char title[16];
    fprintf(file, "# c2:3+in>out,1!  chunk 2: received from rank 3, plus own input, to own output "
                  "and to rank 1; ! = final\nround");
    for (unsigned rank = 0; rank < rounds->n_ranks; rank++) {
        snprintf(title, sizeof(title), "rank %u", rank);
        fprintf(file, "  %-*s", (int)rounds->widths[rank], title);
    }
    for (size_t round = 0; round < rounds->n_rounds; round++) {
        fprintf(file, "\n%5zu", round);
        for (unsigned rank = 0; rank < rounds->n_ranks; rank++) {
            const char *cell = rounds->cells[round * rounds->n_ranks + rank];
            fprintf(file, "  %-*s", (int)rounds->widths[rank], cell == NULL ? "" : cell);
        }
    }
    fputs(rounds->is_stuck ? "\n# no further step can run\n" : "\n", file);
}

gyre_status gyre_rounds_to_text(const struct gyre_program *const *programs, int n_ranks,
                                char **text_out)
{
    struct rounds rounds = {.programs = programs, .n_ranks = (unsigned)n_ranks};
    char *text = NULL;
    size_t n_bytes = 0;
    rounds.widths = calloc((size_t)(n_ranks < 1 ? 1 : n_ranks), sizeof(*rounds.widths));
    if (rounds.widths == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
    for (int rank = 0; rank < n_ranks; rank++)
        rounds.widths[rank] = strlen("rank 1023");
    gyre_status status =
        gyre_rounds_walk(programs, n_ranks, print_steps, &rounds, &rounds.is_stuck);
    if (status == GYRE_SUCCESS) {
        FILE *file = open_memstream(&text, &n_bytes);
        if (file != NULL)
            print_rounds(&rounds, file);
        if (file == NULL || fclose(file) != 0) {
            free(text);
            status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
        }
    }
    for (size_t i = 0; i < rounds.n_rounds * rounds.n_ranks; i++)
        free(rounds.cells[i]);
    free(rounds.cells);
    free(rounds.widths);
    if (status == GYRE_SUCCESS)
        *text_out = text;
    return status;
}
