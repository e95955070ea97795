/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be done with a finished program: freeing, hashing, copying. Building is in
 * schedule_builder.c, the structural check in schedule_check.c, the text form in schedule_to_text.c
 * and schedule_from_text.c.
 */
#include "core/foundation/model/schedule.h"

#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

void gyre_program_free(struct gyre_program *program)
{
    if (program == NULL)
        return;
    free(program->workers);
    free(program->connections);
    free(program->steps);
    free(program);
}

static uint64_t hash_operands(uint64_t hash, const struct gyre_operand *operands, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const uint16_t fields[] = {operands[i].kind, operands[i].is_placed, operands[i].index};
        hash = gyre_hash(hash, fields, sizeof(fields));
    }
    return hash;
}

uint64_t gyre_program_hash(const struct gyre_program *program)
{
    const uint32_t head[] = {
        (uint32_t)program->coll, program->n_ranks,   program->root,
        program->rank,           program->n_chunks,  program->n_scratch,
        program->n_lanes,        program->n_workers, program->n_connections,
        program->min_depth,      program->max_range, (uint32_t)program->n_steps};
    uint64_t hash = gyre_hash(GYRE_HASH_INIT, head, sizeof(head));
    for (unsigned i = 0; i < program->n_workers; i++) {
        const uint32_t fields[] = {program->workers[i].first_step, program->workers[i].n_steps};
        hash = gyre_hash(hash, fields, sizeof(fields));
    }
    for (unsigned i = 0; i < program->n_connections; i++) {
        const struct gyre_connection *connection = &program->connections[i];
        const uint16_t fields[] = {connection->peer, connection->lane, connection->is_send};
        hash = gyre_hash(hash, fields, sizeof(fields));
    }
    for (unsigned i = 0; i < program->n_steps; i++) {
        const struct gyre_step *step = &program->steps[i];
        const uint16_t fields[] = {step->n_ins,   step->n_outs, step->flags,
                                   step->spacing, step->chunk,  step->n_chunks};
        hash = gyre_hash(hash, fields, sizeof(fields));
        hash = hash_operands(hash, step->ins, step->n_ins);
        hash = hash_operands(hash, step->outs, step->n_outs);
    }
    return hash;
}

static bool only_copies(const struct gyre_program *program, const struct gyre_step *step)
{
    /* A step of a copy tail cannot apply the reduction operation to IN or to the result. */
    const bool reduces = gyre_collectives[program->coll].reduces;
    if (step->n_ins != 1 || step->n_chunks != 1 || (step->flags & GYRE_STEP_FINAL) != 0)
        return false;
    if (step->ins[0].kind == GYRE_OPERAND_SCRATCH ||
        (step->ins[0].kind == GYRE_OPERAND_IN && reduces) ||
        (step->ins[0].kind == GYRE_OPERAND_CONNECTION && step->ins[0].is_placed == 0))
        return false;
    for (unsigned i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind != GYRE_OPERAND_OUT && step->outs[i].is_placed == 0)
            return false;
    return true;
}

static bool places(const struct gyre_step *step)
{
    bool is_found = false;
    for (unsigned i = 0; i < step->n_ins; i++)
        is_found = is_found || step->ins[i].is_placed != 0;
    for (unsigned i = 0; i < step->n_outs; i++)
        is_found = is_found || step->outs[i].is_placed != 0;
    return is_found;
}

uint32_t gyre_program_copy_tail(const struct gyre_program *program)
{
    uint32_t first = program->n_steps;
    if (program->n_workers != 1 || program->is_placed == 0)
        return first;
    while (first > 0 && only_copies(program, &program->steps[first - 1]))
        first--;
    for (uint32_t i = 0; i < first; i++)
        if (places(&program->steps[i]))
            return program->n_steps;
    return first;
}

/* malloc'ed copy; n_bytes of 0 still gives memory, so that NULL means failure. */
static void *copy_of(const void *bytes, size_t n_bytes)
{
    void *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    if (copy != NULL && n_bytes > 0)
        memcpy(copy, bytes, n_bytes);
    return copy;
}

gyre_status gyre_program_clone(const struct gyre_program *program,
                               struct gyre_program **program_out)
{
    struct gyre_program *copy = copy_of(program, sizeof(*program));
    if (copy == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to copy a program");
    copy->workers = copy_of(program->workers, program->n_workers * sizeof(*program->workers));
    copy->connections =
        copy_of(program->connections, program->n_connections * sizeof(*program->connections));
    copy->steps = copy_of(program->steps, program->n_steps * sizeof(*program->steps));
    if (copy->workers == NULL || copy->connections == NULL || copy->steps == NULL) {
        gyre_program_free(copy);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to copy a program of %u steps",
                         program->n_steps);
    }
    *program_out = copy;
    return GYRE_SUCCESS;
}
