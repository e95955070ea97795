/* SPDX-License-Identifier: Apache-2.0
 *
 * FIFOs keep their order, so the n-th slot received is the n-th sent.
 */
#include "bench/draw/drawing.h"

#include "core/foundation/base/status.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(BENCH_DRAW_NOTHING == GYRE_NO_VALUE, "values have the verifier's numbers");

struct slot {
    uint32_t value;
    uint32_t next; /* 0 = last */
};

struct fifo {
    uint32_t first; /* 0 = empty */
    uint32_t last;
};

struct known {
    uint32_t stored;
    uint32_t next; /* 0 = none */
};

struct walk {
    struct bench_drawing *drawing;
    struct gyre_values *values;
    struct known *known; /* by value, number 0 is unused */
    uint32_t known_capacity;
    uint32_t *newest; /* value by number in the verifier's store, 0 = none */
    uint32_t newest_capacity;
    struct bench_draw_state state;
    uint32_t n_lanes;
    struct fifo *fifos; /* by (from, to, lane) */
    struct slot *slots; /* number 0 is unused */
    uint32_t n_slots, slots_capacity;
    uint32_t n_scratch;
    uint32_t *scratch;     /* [rank][n_scratch] */
    uint32_t *first_input; /* by rank: value of IN(0), others follow */
};

static gyre_status reserve(void *array_address, uint32_t *capacity, uint64_t n, size_t elem_bytes)
{
    void *array;
    if (n <= *capacity)
        return GYRE_SUCCESS;
    memcpy(&array, array_address, sizeof(array));
    array = n > UINT32_MAX / 2 ? NULL : realloc(array, 2 * n * elem_bytes);
    if (array == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a drawing");
    memcpy(array_address, &array, sizeof(array));
    *capacity = (uint32_t)(2 * n);
    return GYRE_SUCCESS;
}

/* Makes `value` the newest of @stored, its number in the verifier's store. */
static gyre_status add_value(struct walk *walk, uint32_t stored, struct bench_draw_value value,
                             uint32_t *value_out)
{
    struct bench_drawing *drawing = walk->drawing;
    const uint32_t number = drawing->n_values + 1;
    GYRE_TRY(
        reserve(&drawing->values, &drawing->values_capacity, number, sizeof(*drawing->values)));
    GYRE_TRY(reserve(&walk->known, &walk->known_capacity, number + 1ULL, sizeof(*walk->known)));
    drawing->values[number - 1] = value;
    walk->known[number] = (struct known){stored, walk->newest[stored]};
    walk->newest[stored] = number;
    drawing->n_values = number;
    *value_out = number;
    return GYRE_SUCCESS;
}

/* The store numbers values in order. */
static gyre_status reserve_newest(struct walk *walk, uint32_t stored)
{
    const uint32_t n_before = walk->newest_capacity;
    GYRE_TRY(reserve(&walk->newest, &walk->newest_capacity, stored + 1ULL, sizeof(*walk->newest)));
    memset(&walk->newest[n_before], 0, (walk->newest_capacity - n_before) * sizeof(*walk->newest));
    return GYRE_SUCCESS;
}

/* @stored: number in the verifier's store. */
static gyre_status remember(struct walk *walk, uint32_t stored, const uint32_t *ins, uint32_t n_ins,
                            uint32_t *value_out)
{
    struct bench_drawing *drawing = walk->drawing;
    const uint32_t chunk = drawing->values[ins[0] - 1].chunk;
    GYRE_TRY(reserve_newest(walk, stored));
    for (*value_out = walk->newest[stored]; *value_out != 0;
         *value_out = walk->known[*value_out].next)
        if (drawing->values[*value_out - 1].chunk == chunk)
            return GYRE_SUCCESS;
    GYRE_TRY(reserve(&drawing->operands, &drawing->operands_capacity,
                     (uint64_t)drawing->n_operands + n_ins, sizeof(*drawing->operands)));
    const struct bench_draw_value value = {.chunk = chunk,
                                           .first_operand = drawing->n_operands,
                                           .n_operands = n_ins,
                                           .is_final =
                                               gyre_values_get(walk->values, stored)->is_final};
    for (uint32_t i = 0; i < n_ins; i++)
        drawing->operands[drawing->n_operands++] = ins[i];
    return add_value(walk, stored, value, value_out);
}

static uint32_t find_input(const struct walk *walk, uint32_t rank, uint32_t chunk)
{
    const uint32_t first = walk->first_input[rank];
    return first == BENCH_DRAW_NOTHING ? BENCH_DRAW_NOTHING : first + chunk;
}

static gyre_status reduce(struct walk *walk, const struct gyre_step *step, const uint32_t *ins,
                          uint32_t *value_out)
{
    const bool is_final = (step->flags & GYRE_STEP_FINAL) != 0;
    const struct bench_draw_value *values = walk->drawing->values;
    uint32_t stored, operands[GYRE_STEP_MAX_INS];
    *value_out = step->n_ins == 0 ? BENCH_DRAW_NOTHING : ins[0];
    for (uint32_t i = 0; i < step->n_ins; i++) {
        if (ins[i] == BENCH_DRAW_NOTHING || ins[0] == BENCH_DRAW_NOTHING ||
            values[ins[i] - 1].chunk != values[ins[0] - 1].chunk) {
            *value_out = BENCH_DRAW_NOTHING;
            return GYRE_SUCCESS;
        }
        operands[i] = walk->known[ins[i]].stored;
    }
    if (step->n_ins == 0 || (step->n_ins == 1 && !is_final))
        return GYRE_SUCCESS;
    switch (gyre_values_reduce(walk->values, operands, step->n_ins, is_final, &stored)) {
    case GYRE_VALUE_FINE:
        return remember(walk, stored, ins, step->n_ins, value_out);
    case GYRE_VALUE_NO_MEMORY:
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the values of a drawing");
    default: /* a contribution twice */
        *value_out = BENCH_DRAW_NOTHING;
        return GYRE_SUCCESS;
    }
}

static struct fifo *fifo_of(const struct walk *walk, uint32_t rank, struct gyre_operand operand)
{
    const struct gyre_connection *c = &walk->drawing->programs[rank]->connections[operand.index];
    const size_t from = c->is_send ? rank : c->peer, to = c->is_send ? c->peer : rank;
    return &walk->fifos[(from * walk->drawing->n_ranks + to) * walk->n_lanes + c->lane];
}

static uint32_t read_operand(struct walk *walk, uint32_t rank, struct gyre_operand operand)
{
    const struct bench_drawing *drawing = walk->drawing;
    switch (operand.kind) {
    case GYRE_OPERAND_IN:
        return find_input(walk, rank, operand.index);
    case GYRE_OPERAND_OUT:
        return walk->state.out[(size_t)rank * drawing->n_parts + operand.index];
    case GYRE_OPERAND_SCRATCH:
        return walk->scratch[(size_t)rank * walk->n_scratch + operand.index];
    default: {
        struct fifo *fifo = fifo_of(walk, rank, operand);
        const struct slot *slot = &walk->slots[fifo->first];
        fifo->first = slot->next;
        return slot->value;
    }
    }
}

static gyre_status send_value(struct walk *walk, struct fifo *fifo, uint32_t value)
{
    GYRE_TRY(reserve(&walk->slots, &walk->slots_capacity, (uint64_t)walk->n_slots + 1,
                     sizeof(*walk->slots)));
    const uint32_t number = walk->n_slots++;
    walk->slots[number] = (struct slot){.value = value};
    if (fifo->first == 0)
        fifo->first = number;
    else
        walk->slots[fifo->last].next = number;
    fifo->last = number;
    return GYRE_SUCCESS;
}

static gyre_status run_step(struct walk *walk, uint32_t rank, uint32_t number, uint32_t round)
{
    struct bench_drawing *drawing = walk->drawing;
    const struct gyre_step *step = &drawing->programs[rank]->steps[number];
    struct bench_draw_step *drawn = &drawing->steps[drawing->first_step[rank] + number];
    uint32_t ins[GYRE_STEP_MAX_INS];
    for (uint32_t i = 0; i < step->n_ins; i++)
        ins[i] = read_operand(walk, rank, step->ins[i]);
    drawn->round = round;
    GYRE_TRY(reduce(walk, step, ins, &drawn->value));
    for (uint32_t i = 0; i < step->n_outs; i++) {
        const struct gyre_operand operand = step->outs[i];
        if (operand.kind == GYRE_OPERAND_CONNECTION)
            GYRE_TRY(send_value(walk, fifo_of(walk, rank, operand), drawn->value));
        else if (operand.kind == GYRE_OPERAND_SCRATCH)
            walk->scratch[(size_t)rank * walk->n_scratch + operand.index] = drawn->value;
    }
    bench_draw_apply(drawing, rank, number, &walk->state);
    return GYRE_SUCCESS;
}

static gyre_status run_steps(void *context, const struct gyre_round_steps *steps)
{
    struct walk *walk = context;
    walk->drawing->n_rounds = steps->round + 1;
    for (uint32_t i = 0; i < steps->n_steps; i++)
        GYRE_TRY(run_step(walk, steps->rank, steps->first_step + i, steps->round));
    return GYRE_SUCCESS;
}

static gyre_status run_walk(struct walk *walk)
{
    struct bench_drawing *drawing = walk->drawing;
    const size_t n = drawing->n_ranks;
    walk->fifos = calloc(n * n * walk->n_lanes, sizeof(*walk->fifos));
    walk->scratch = calloc(n * walk->n_scratch + 1, sizeof(*walk->scratch));
    walk->first_input = calloc(n, sizeof(*walk->first_input));
    walk->n_slots = 1;
    if (walk->fifos == NULL || walk->first_input == NULL || walk->scratch == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a drawing of %zu ranks", n);
    GYRE_TRY(gyre_values_open(drawing->n_ranks, false, &walk->values));
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        const struct gyre_program *program = drawing->programs[rank];
        if (!gyre_verify_owns_in(program))
            continue;
        for (uint32_t i = 0; i < gyre_program_n_parts(program, GYRE_OPERAND_IN); i++) {
            const uint32_t stored = gyre_values_input(rank);
            uint32_t value;
            GYRE_TRY(reserve_newest(walk, stored));
            GYRE_TRY(add_value(walk, stored, (struct bench_draw_value){.chunk = i, .rank = rank},
                               &value));
            if (i == 0)
                walk->first_input[rank] = value;
        }
    }
    GYRE_TRY(bench_draw_state_open(drawing, &walk->state));
    return gyre_rounds_walk(drawing->programs, (int)n, run_steps, walk, &drawing->is_stuck);
}

static void measure_programs(struct walk *walk)
{
    const struct bench_drawing *drawing = walk->drawing;
    walk->n_lanes = 1;
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        const struct gyre_program *program = drawing->programs[rank];
        walk->n_lanes = program->n_lanes > walk->n_lanes ? program->n_lanes : walk->n_lanes;
        walk->n_scratch =
            program->n_scratch > walk->n_scratch ? program->n_scratch : walk->n_scratch;
    }
}

gyre_status bench_drawing_walk(struct bench_drawing *drawing)
{
    struct walk walk = {.drawing = drawing};
    measure_programs(&walk);
    const gyre_status status = run_walk(&walk);
    gyre_values_close(walk.values);
    free(walk.known);
    free(walk.newest);
    bench_draw_state_close(&walk.state);
    free(walk.fifos);
    free(walk.slots);
    free(walk.scratch);
    free(walk.first_input);
    return status;
}
