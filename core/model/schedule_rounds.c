/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the programs of all ranks side by side, for people. A line is a round, in which every
 * worker that can run does one step, or one run of steps that may execute at the same time. One
 * tile is shown, with FIFOs of the depth that the programs ask for.
 */
#include "core/base/status.h"
#include "core/model/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    uint32_t next; /* step of the program */
    uint32_t end;  /* of the worker */
    uint32_t last; /* of the steps that are shown in this round; < next: none */
};

struct rounds {
    const struct gyre_program *const *programs;
    unsigned n_ranks;
    unsigned n_lanes;
    unsigned depth;
    uint32_t *n_filled;   /* slots, by (from, to, lane) */
    struct place *places; /* GYRE_MAX_WORKERS for each rank */
    char **cells;         /* of the rounds so far, n_ranks for each */
    size_t n_rounds;
    size_t *widths; /* by rank */
};

static uint32_t *slots_of(const struct rounds *rounds, unsigned rank, struct gyre_operand operand)
{
    const struct gyre_connection *c = &rounds->programs[rank]->connections[operand.index];
    const size_t from = c->is_send ? rank : c->peer, to = c->is_send ? c->peer : rank;
    return &rounds->n_filled[(from * rounds->n_ranks + to) * rounds->n_lanes + c->lane];
}

static bool can_run(const struct rounds *rounds, unsigned rank, const struct gyre_step *step)
{
    for (unsigned i = 0; i < step->n_ins; i++)
        if (step->ins[i].kind == GYRE_OPERAND_CONNECTION &&
            *slots_of(rounds, rank, step->ins[i]) == 0)
            return false;
    for (unsigned i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind == GYRE_OPERAND_CONNECTION &&
            *slots_of(rounds, rank, step->outs[i]) >= rounds->depth)
            return false;
    return true;
}

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

/* Which steps run is decided by what was there before the round. */
static bool choose(struct rounds *rounds)
{
    bool any = false;
    for (unsigned rank = 0; rank < rounds->n_ranks; rank++) {
        const struct gyre_program *program = rounds->programs[rank];
        for (unsigned w = 0; w < program->n_workers; w++) {
            struct place *place = &rounds->places[rank * GYRE_MAX_WORKERS + w];
            bool ready = place->next < place->end;
            uint32_t last = place->next;
            for (; ready; last++) {
                ready = can_run(rounds, rank, &program->steps[last]);
                if ((program->steps[last].flags & GYRE_STEP_WITH_NEXT) == 0)
                    break;
            }
            place->last = ready ? last + 1 : place->next;
            any |= ready;
        }
    }
    return any;
}

/* Carry out what choose() chose on one rank; the cell is malloc'ed text. */
static char *run_rank(struct rounds *rounds, unsigned rank)
{
    const struct gyre_program *program = rounds->programs[rank];
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return NULL;
    for (unsigned w = 0; w < program->n_workers; w++) {
        struct place *place = &rounds->places[rank * GYRE_MAX_WORKERS + w];
        for (; place->next < place->last; place->next++) {
            const struct gyre_step *step = &program->steps[place->next];
            for (unsigned i = 0; i < step->n_ins; i++)
                if (step->ins[i].kind == GYRE_OPERAND_CONNECTION)
                    (*slots_of(rounds, rank, step->ins[i]))--;
            for (unsigned i = 0; i < step->n_outs; i++)
                if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
                    (*slots_of(rounds, rank, step->outs[i]))++;
            fputs(ftell(file) > 0 ? " " : "", file);
            print_step(file, program, step);
        }
    }
    const bool is_whole = ferror(file) == 0;
    if (fclose(file) != 0 || !is_whole) {
        free(text);
        return NULL;
    }
    if (n_bytes > rounds->widths[rank])
        rounds->widths[rank] = n_bytes;
    return text;
}

static gyre_status run_rounds(struct rounds *rounds)
{
    while (choose(rounds)) {
        char **cells =
            realloc(rounds->cells, (rounds->n_rounds + 1) * rounds->n_ranks * sizeof(*cells));
        if (cells == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
        rounds->cells = cells;
        char **row = &cells[rounds->n_rounds * rounds->n_ranks];
        memset(row, 0, rounds->n_ranks * sizeof(*row));
        rounds->n_rounds++;
        for (unsigned rank = 0; rank < rounds->n_ranks; rank++) {
            row[rank] = run_rank(rounds, rank);
            if (row[rank] == NULL)
                return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
        }
    }
    return GYRE_SUCCESS;
}

static bool is_stuck(const struct rounds *rounds)
{
    for (unsigned rank = 0; rank < rounds->n_ranks; rank++)
        for (unsigned w = 0; w < rounds->programs[rank]->n_workers; w++) {
            const struct place *place = &rounds->places[rank * GYRE_MAX_WORKERS + w];
            if (place->next < place->end)
                return true;
        }
    return false;
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
        for (unsigned rank = 0; rank < rounds->n_ranks; rank++)
            fprintf(file, "  %-*s", (int)rounds->widths[rank],
                    rounds->cells[round * rounds->n_ranks + rank]);
    }
    fputs(is_stuck(rounds) ? "\n# no further step can run\n" : "\n", file);
}

static gyre_status open_rounds(struct rounds *rounds)
{
    for (unsigned rank = 0; rank < rounds->n_ranks; rank++) {
        const struct gyre_program *program = rounds->programs[rank];
        if (program->n_ranks != rounds->n_ranks || program->rank != rank)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "program %u of %u is of rank %u of %u ranks", rank, rounds->n_ranks,
                             program->rank, program->n_ranks);
        rounds->n_lanes = program->n_lanes > rounds->n_lanes ? program->n_lanes : rounds->n_lanes;
    }
    const size_t n = rounds->n_ranks;
    rounds->n_filled = calloc(n * n * rounds->n_lanes, sizeof(*rounds->n_filled));
    rounds->places = calloc(n * GYRE_MAX_WORKERS, sizeof(*rounds->places));
    rounds->widths = calloc(n, sizeof(*rounds->widths));
    if (rounds->n_filled == NULL || rounds->places == NULL || rounds->widths == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
    for (unsigned rank = 0; rank < rounds->n_ranks; rank++) {
        const struct gyre_program *program = rounds->programs[rank];
        rounds->widths[rank] = strlen("rank 1023");
        for (unsigned w = 0; w < program->n_workers; w++) {
            struct place *place = &rounds->places[rank * GYRE_MAX_WORKERS + w];
            place->next = program->workers[w].first_step;
            place->end = place->next + program->workers[w].n_steps;
        }
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_rounds_to_text(const struct gyre_program *const *programs, int n_ranks,
                                char **text_out)
{
    struct rounds rounds = {.programs = programs, .n_ranks = (unsigned)n_ranks};
    char *text = NULL;
    size_t n_bytes = 0;
    if (n_ranks < 1 || n_ranks > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%d programs (1..%d)", n_ranks,
                         GYRE_MAX_RANKS);
    rounds.depth = programs[0]->min_depth;
    gyre_status status = open_rounds(&rounds);
    if (status == GYRE_SUCCESS)
        status = run_rounds(&rounds);
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
    free(rounds.n_filled);
    free(rounds.places);
    free(rounds.widths);
    if (status == GYRE_SUCCESS)
        *text_out = text;
    return status;
}
