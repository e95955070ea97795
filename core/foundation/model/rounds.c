/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk of core/foundation/model/rounds.h: it counts the filled slots of each FIFO and knows the
 * next step of each worker, but no values.
 */
#include "core/foundation/model/rounds.h"

#include "core/foundation/base/status.h"

#include <stdlib.h>

struct place {
    uint32_t next; /* step of the program */
    uint32_t end;  /* of the worker */
    uint32_t last; /* one past the steps that run in this round; = next: none */
};

struct walk {
    const struct gyre_program *const *programs;
    unsigned n_ranks;
    unsigned n_lanes;
    unsigned depth;
    uint32_t *n_filled;   /* slots, by (from, to, lane) */
    struct place *places; /* GYRE_MAX_WORKERS for each rank */
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

/* Choose the steps of this round. The choice depends only on the slots that were filled before the
 * round. */
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

/* Move the slots of the steps that a worker runs in this round. */
static void move_slots(struct walk *walk, unsigned rank, const struct place *place)
{
    for (uint32_t s = place->next; s < place->last; s++) {
        const struct gyre_step *step = &walk->programs[rank]->steps[s];
        for (unsigned i = 0; i < step->n_ins; i++)
            if (step->ins[i].kind == GYRE_OPERAND_CONNECTION)
                (*slots_of(walk, rank, step->ins[i]))--;
        for (unsigned i = 0; i < step->n_outs; i++)
            if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
                (*slots_of(walk, rank, step->outs[i]))++;
    }
}

static bool is_stuck(const struct walk *walk)
{
    for (unsigned rank = 0; rank < walk->n_ranks; rank++)
        for (unsigned w = 0; w < walk->programs[rank]->n_workers; w++) {
            const struct place *place = &walk->places[rank * GYRE_MAX_WORKERS + w];
            if (place->next < place->end)
                return true;
        }
    return false;
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
            move_slots(&walk, steps.rank, place);
            place->next = place->last;
            status = visit(context, &steps);
        }
    if (status == GYRE_SUCCESS)
        *is_stuck_out = is_stuck(&walk);
    free(walk.n_filled);
    free(walk.places);
    return status;
}
