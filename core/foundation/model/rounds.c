/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/model/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    uint32_t next;
    uint32_t end;
    uint32_t last; /* behind this round's last step; = next: none */
};

struct walk {
    const struct gyre_program *const *programs;
    unsigned n_ranks;
    unsigned n_lanes;
    unsigned depth;
    uint32_t *n_filled;
    struct place *places;
};

static uint32_t *slots_of(const struct walk *walk, unsigned rank, struct gyre_operand operand)
{
    const struct gyre_connection *c = &walk->programs[rank]->connections[operand.index];
    const size_t from = c->is_send ? rank : c->peer, to = c->is_send ? c->peer : rank;
    return &walk->n_filled[(from * walk->n_ranks + to) * walk->n_lanes + c->lane];
}

static bool can_run(const struct walk *walk, unsigned rank, const struct gyre_step *step)
{
    for (unsigned i = 0; i < step->n_ins; i++)
        if (step->ins[i].kind == GYRE_OPERAND_CONNECTION &&
            *slots_of(walk, rank, step->ins[i]) == 0)
            return false;
    for (unsigned i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind == GYRE_OPERAND_CONNECTION &&
            *slots_of(walk, rank, step->outs[i]) >= walk->depth)
            return false;
    return true;
}

static bool choose(struct walk *walk)
{
    bool any = false;
    for (unsigned rank = 0; rank < walk->n_ranks; rank++) {
        const struct gyre_program *program = walk->programs[rank];
        for (unsigned w = 0; w < program->n_workers; w++) {
            struct place *place = &walk->places[rank * GYRE_MAX_WORKERS + w];
            bool ready = place->next < place->end;
            uint32_t last = place->next;
            for (; ready; last++) {
                ready = can_run(walk, rank, &program->steps[last]);
                if ((program->steps[last].flags & GYRE_STEP_WITH_NEXT) == 0)
                    break;
            }
            place->last = ready ? last + 1 : place->next;
            any |= ready;
        }
    }
    return any;
}

static gyre_status open_walk(struct walk *walk)
{
    for (unsigned rank = 0; rank < walk->n_ranks; rank++) {
        const struct gyre_program *program = walk->programs[rank];
        if (program->n_ranks != walk->n_ranks || program->rank != rank)
            return gyre_fail(
                GYRE_ERROR_INVALID_ARGUMENT,
                "program %u of %u is of rank %u of %u ranks: each rank has one program, in "
                "the order of the ranks",
                rank, walk->n_ranks, program->rank, program->n_ranks);
        walk->n_lanes = program->n_lanes > walk->n_lanes ? program->n_lanes : walk->n_lanes;
    }
    const size_t n = walk->n_ranks;
    walk->n_filled = calloc(n * n * walk->n_lanes, sizeof(*walk->n_filled));
    walk->places = calloc(n * GYRE_MAX_WORKERS, sizeof(*walk->places));
    if (walk->n_filled == NULL || walk->places == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the rounds of %zu ranks", n);
    for (unsigned rank = 0; rank < walk->n_ranks; rank++) {
        const struct gyre_program *program = walk->programs[rank];
        for (unsigned w = 0; w < program->n_workers; w++) {
            struct place *place = &walk->places[rank * GYRE_MAX_WORKERS + w];
            place->next = program->workers[w].first_step;
            place->end = place->next + program->workers[w].n_steps;
        }
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_rounds_walk(const struct gyre_program *const *programs, int n_ranks,
                             gyre_status (*visit)(void *context,
                                                  const struct gyre_round_steps *steps),
                             void *context, bool *is_stuck_out)
{
    struct walk walk = {.programs = programs, .n_ranks = (unsigned)n_ranks};
    if (n_ranks < 1 || n_ranks > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%d programs (1..%d)", n_ranks,
                         GYRE_MAX_RANKS);
    walk.depth = programs[0]->min_depth;
    bool is_stuck = false;
    gyre_status status = open_walk(&walk);
    for (uint32_t round = 0; status == GYRE_SUCCESS && choose(&walk); round++)
        for (unsigned at = 0; at < walk.n_ranks * GYRE_MAX_WORKERS && status == GYRE_SUCCESS;
             at++) {
            struct place *place = &walk.places[at];
            const struct gyre_round_steps steps = {round, at / GYRE_MAX_WORKERS,
                                                   at % GYRE_MAX_WORKERS, place->next,
                                                   place->last - place->next};
            if (place->last == place->next)
                continue;
            for (uint32_t s = place->next; s < place->last; s++) {
                const struct gyre_step *step = &walk.programs[steps.rank]->steps[s];
                for (unsigned i = 0; i < step->n_ins; i++)
                    if (step->ins[i].kind == GYRE_OPERAND_CONNECTION)
                        (*slots_of(&walk, steps.rank, step->ins[i]))--;
                for (unsigned i = 0; i < step->n_outs; i++)
                    if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
                        (*slots_of(&walk, steps.rank, step->outs[i]))++;
            }
            place->next = place->last;
            status = visit(context, &steps);
        }
    for (size_t at = 0; at < walk.n_ranks * (size_t)GYRE_MAX_WORKERS && status == GYRE_SUCCESS;
         at++)
        is_stuck = is_stuck || walk.places[at].next < walk.places[at].end;
    if (status == GYRE_SUCCESS)
        *is_stuck_out = is_stuck;
    free(walk.n_filled);
    free(walk.places);
    return status;
}

struct rounds {
    const struct gyre_program *const *programs;
    unsigned n_ranks;
    char **cells;
    size_t n_rounds;
    size_t *widths;
    bool is_stuck;
};

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

static gyre_status print_steps(void *context, const struct gyre_round_steps *steps)
{
    struct rounds *rounds = context;
    const struct gyre_program *program = rounds->programs[steps->rank];
    while (rounds->n_rounds <= steps->round) {
        const size_t n_cells = rounds->n_rounds * rounds->n_ranks;
        char **cells = realloc(rounds->cells, (n_cells + rounds->n_ranks) * sizeof(*cells));
        if (cells == NULL)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
        rounds->cells = cells;
        memset(&cells[n_cells], 0, rounds->n_ranks * sizeof(*cells));
        rounds->n_rounds++;
    }
    char **cell = &rounds->cells[steps->round * (size_t)rounds->n_ranks + steps->rank];
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
    fputs(*cell == NULL ? "" : *cell, file);
    for (uint32_t i = 0; i < steps->n_steps; i++) {
        fputs(*cell != NULL || i > 0 ? " " : "", file);
        const struct gyre_step *step = &program->steps[steps->first_step + i];
        const uint32_t n_parts = gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH);
        fprintf(file, "c%u", step->chunk);
        if (step->n_chunks > 1)
            fprintf(file, "-%u", gyre_step_part(step, step->chunk, step->n_chunks - 1U, n_parts));
        if (step->stride != 0)
            fprintf(file, "/%u", step->stride);
        fputc(':', file);
        for (unsigned j = 0; j < step->n_ins; j++) {
            fputs(j == 0 ? "" : "+", file);
            print_operand(file, program, step, step->ins[j]);
        }
        for (unsigned j = 0; j < step->n_outs; j++) {
            fputs(j == 0 ? ">" : ",", file);
            print_operand(file, program, step, step->outs[j]);
        }
        fputs((step->flags & GYRE_STEP_FINAL) != 0 ? "!" : "", file);
    }
    if (!gyre_text_finish(file, &text))
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
    free(*cell);
    *cell = text;
    if (n_bytes > rounds->widths[steps->rank])
        rounds->widths[steps->rank] = n_bytes;
    return GYRE_SUCCESS;
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
    FILE *file = status == GYRE_SUCCESS ? open_memstream(&text, &n_bytes) : NULL;
    if (file != NULL) {
        char title[16];
        fprintf(file,
                "# c2:3+in>out,1!  chunk 2: received from rank 3, plus own input, to own output "
                "and to rank 1; ! = final\nround");
        for (unsigned rank = 0; rank < rounds.n_ranks; rank++) {
            snprintf(title, sizeof(title), "rank %u", rank);
            fprintf(file, "  %-*s", (int)rounds.widths[rank], title);
        }
        for (size_t round = 0; round < rounds.n_rounds; round++) {
            fprintf(file, "\n%5zu", round);
            for (unsigned rank = 0; rank < rounds.n_ranks; rank++) {
                const char *cell = rounds.cells[round * rounds.n_ranks + rank];
                fprintf(file, "  %-*s", (int)rounds.widths[rank], cell == NULL ? "" : cell);
            }
        }
        fputs(rounds.is_stuck ? "\n# no further step can run\n" : "\n", file);
    }
    if (status == GYRE_SUCCESS && (file == NULL || !gyre_text_finish(file, &text)))
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print rounds");
    for (size_t i = 0; i < rounds.n_rounds * rounds.n_ranks; i++)
        free(rounds.cells[i]);
    free(rounds.cells);
    free(rounds.widths);
    if (status == GYRE_SUCCESS)
        *text_out = text;
    return status;
}
